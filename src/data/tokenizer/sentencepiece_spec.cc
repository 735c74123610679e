#include "data/tokenizer/sentencepiece_spec.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <optional>

namespace deltanet::data {
namespace {

// Field numbers of sentencepiece_model.proto.
constexpr uint64_t kTrainerSpec = 2, kNormalizerSpec = 3;     // of ModelProto
constexpr uint64_t kModelType = 3, kWhitespaceAsSuffix = 24;  // of TrainerSpec
constexpr uint64_t kRulesName = 1, kAddDummyPrefix = 3;       // of NormalizerSpec
constexpr uint64_t kBpe = 2;                                  // of ModelType

constexpr std::string_view kRules[] = {"identity", "nfkc", "nfkc_cf", "nmt_nfkc", "nmt_nfkc_cf"};

std::optional<uint64_t> take_varint(std::string_view& bytes) {
  uint64_t value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if (byte < 0x80) return value;
  }
  return {};
}

// Calls field(number, value, bytes) for every field of a message: value of numbers, bytes of strings and messages.
void for_each_field(std::string_view message, const std::function<void(uint64_t, uint64_t, std::string_view)>& field) {
  enum : uint64_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };
  while (const auto key = take_varint(message)) {
    const uint64_t number = *key >> 3, kind = *key & 7;
    if (kind == kVarint) {
      const auto value = take_varint(message);
      if (!value) return;
      field(number, *value, {});
      continue;
    }
    uint64_t size = kind == kFixed64 ? 8 : 4;
    if (kind == kBytes) {
      const auto length = take_varint(message);
      if (!length) return;
      size = *length;
    } else if (kind != kFixed64 && kind != kFixed32) {
      return;
    }
    if (size > message.size()) return;
    field(number, 0, message.substr(0, size));
    message.remove_prefix(size);
  }
}

}  // namespace

SentencePieceSpec read_sentencepiece_spec(std::string_view model) {
  SentencePieceSpec spec;
  for_each_field(model, [&](uint64_t part, uint64_t, std::string_view bytes) {
    if (part == kTrainerSpec) {
      for_each_field(bytes, [&](uint64_t number, uint64_t value, std::string_view) {
        if (number == kModelType) spec.is_bpe = value == kBpe;
        if (number == kWhitespaceAsSuffix) spec.treat_whitespace_as_suffix = value != 0;
      });
    } else if (part == kNormalizerSpec) {
      for_each_field(bytes, [&](uint64_t number, uint64_t value, std::string_view text) {
        if (number == kRulesName) spec.has_own_rules = std::ranges::find(kRules, text) == std::end(kRules);
        if (number == kAddDummyPrefix) spec.add_dummy_prefix = value != 0;
      });
    }
  });
  return spec;
}

}  // namespace deltanet::data
