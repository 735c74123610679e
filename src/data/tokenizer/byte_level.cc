#include "data/tokenizer/byte_level.h"

#include <array>
#include <cstdint>

#include "data/unicode/utf8.h"

namespace deltanet::data {
namespace {

struct Table {
  std::array<std::string, 256> characters;
  std::array<int16_t, 512> bytes;  // by character; -1: none

  Table() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
      const char32_t character = printable ? static_cast<char32_t>(byte) : next++;
      append_utf8(characters[static_cast<std::size_t>(byte)], character);
      bytes[character] = static_cast<int16_t>(byte);
    }
  }
};

const Table& table() {
  static const Table kTable;
  return kTable;
}

}  // namespace

void append_byte_level(std::string& text, std::string_view bytes) {
  const Table& t = table();
  for (const char byte : bytes) text += t.characters[static_cast<unsigned char>(byte)];
}

std::optional<std::string> from_byte_level(std::string_view token) {
  std::string result;
  while (!token.empty()) {
    const Utf8Char c = first_char(token);
    if (c.code >= table().bytes.size() || table().bytes[c.code] < 0) return {};
    result += static_cast<char>(table().bytes[c.code]);
    token.remove_prefix(c.size);
  }
  return result;
}

}  // namespace deltanet::data
