#pragma once

#include <optional>
#include <string>
#include <string_view>

// GPT-2's way to write bytes as characters: printable Latin-1 bytes stand for themselves, the others for the
// characters from U+0100 on, so that a vocabulary of bytes is readable text without blanks.

namespace deltanet::data {

void append_byte_level(std::string& text, std::string_view bytes);

// The bytes of a token, or nothing when it has a character that stands for no byte.
std::optional<std::string> from_byte_level(std::string_view token);

}  // namespace deltanet::data
