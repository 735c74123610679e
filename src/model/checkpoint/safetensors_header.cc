#include "model/checkpoint/safetensors_header.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/json.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

using nlohmann::json;

// Receives the header piece by piece instead of as a tree, so that a hostile header takes no more memory than its
// text, and stops at the first thing that has no place in it.
class HeaderHandler {
 public:
  explicit HeaderHandler(const std::string& file) : file_(file) {}

  SafetensorsHeader take() { return std::move(header_); }

  bool null() { unexpected("null"); }
  bool boolean(bool value) { unexpected(value ? "true" : "false"); }
  bool number_integer(int64_t value) { unexpected(std::to_string(value)); }  // called for negative ones only
  bool number_float(double /*value*/, const std::string& text) { unexpected(text); }
  bool binary(json::binary_t& /*value*/) { unexpected("binary data"); }

  bool number_unsigned(uint64_t value) {
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) unexpected(std::to_string(value));
    const int64_t number = static_cast<int64_t>(value);
    if (place_ == Place::kShape) {
      entry().shape.push_back(number);
    } else if (place_ == Place::kOffsets && offsets_ < 2) {
      (offsets_++ == 0 ? entry().begin : entry().end) = number;
    } else {
      unexpected(std::to_string(value));
    }
    return true;
  }

  bool string(std::string& value) {
    if (place_ == Place::kMetadataValue) {
      header_.metadata[key_] = value;
      place_ = Place::kMetadata;
    } else if (place_ == Place::kField && key_ == "dtype") {
      entry().dtype = value;
      place_ = Place::kTensor;
    } else {
      unexpected(in_quotes(value));
    }
    return true;
  }

  bool start_object(size_t /*size*/) {
    if (place_ == Place::kStart) {
      place_ = Place::kTop;
    } else if (place_ == Place::kTopValue && key_ == kMetadataKey) {
      place_ = Place::kMetadata;
    } else if (place_ == Place::kTopValue) {
      header_.entries.push_back({.name = key_, .dtype = {}, .shape = {}});
      fields_.clear();
      place_ = Place::kTensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool end_object() {
    if (place_ == Place::kTop) {
      place_ = Place::kEnd;
      return true;
    }
    for (const char* field : {"dtype", "shape", "data_offsets"}) {
      if (place_ == Place::kTensor && !fields_.contains(field)) fail(where() + field + ": missing");
    }
    place_ = Place::kTop;
    return true;
  }

  bool start_array(size_t /*size*/) {
    if (place_ == Place::kField && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kField && key_ == "data_offsets") {
      place_ = Place::kOffsets;
      offsets_ = 0;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool end_array() {
    if (place_ == Place::kOffsets && offsets_ != 2) unexpected("an array of " + std::to_string(offsets_));
    place_ = Place::kTensor;
    return true;
  }

  bool key(std::string& name) {
    key_ = name;
    switch (place_) {
      case Place::kTop:
        if (!names_.insert(name).second) fail(in_quotes(name) + ": given twice");
        place_ = Place::kTopValue;
        break;
      case Place::kMetadata:
        if (header_.metadata.contains(name)) fail("metadata, " + in_quotes(name) + ": given twice");
        place_ = Place::kMetadataValue;
        break;
      default:  // only objects have keys: Place::kTensor
        if (!fields_.insert(name).second) fail(where() + in_quotes(name) + ": given twice");
        place_ = Place::kField;
    }
    return true;
  }

  bool parse_error(size_t byte, const std::string& /*last*/, const json::exception& error) {
    fail("header: at byte " + std::to_string(byte) + ": expected JSON (" + error.what() + ")");
  }

 private:
  enum class Place {
    kStart,  // before the header
    kTop,
    kTopValue,  // after a key of the header
    kMetadata,
    kMetadataValue,
    kTensor,
    kField,  // after a key of a tensor
    kShape,
    kOffsets,
    kEnd,
  };
  static constexpr std::string_view kMetadataKey = "__metadata__";

  [[noreturn]] void fail(const std::string& what) const { throw Error("[safetensors] " + file_ + ": " + what); }

  std::string where() const { return "tensor " + in_quotes(header_.entries.back().name) + ", "; }

  [[noreturn]] void unexpected(const std::string& given) const {
    switch (place_) {
      case Place::kTopValue:
        fail(in_quotes(key_) + ": given " + given + "; expected an object");
      case Place::kMetadata:
      case Place::kMetadataValue:
        fail("metadata, " + in_quotes(key_) + ": given " + given + "; expected a string");
      case Place::kField:
        if (key_ == "dtype") fail(where() + "dtype: given " + given + "; expected a string");
        if (key_ == "shape") fail(where() + "shape: given " + given + "; expected an array of sizes");
        if (key_ != "data_offsets") fail(where() + in_quotes(key_) + ": expected dtype, shape or data_offsets");
        [[fallthrough]];
      case Place::kOffsets:
        fail(where() + "data_offsets: given " + given + "; expected two whole numbers from 0 to 2^63-1");
      case Place::kShape:
        fail(where() + "shape: given " + given + "; expected a whole number from 0 to 2^63-1");
      default:
        fail("header: given " + given + "; expected an object");
    }
  }

  SafetensorsEntry& entry() { return header_.entries.back(); }

  const std::string& file_;
  SafetensorsHeader header_;
  Place place_ = Place::kStart;
  std::string key_;  // the last one
  std::set<std::string> names_, fields_;
  int offsets_ = 0;
};

}  // namespace

SafetensorsHeader parse_safetensors_header(std::string_view text, const std::string& file) {
  if (!text.starts_with("{")) throw Error("[safetensors] " + file + ": header: expected an object");
  // The parser takes a zero byte for the end and would not look at what follows.
  if (text.find('\0') != std::string_view::npos) {
    throw Error("[safetensors] " + file + ": header: given a zero byte; expected JSON");
  }
  HeaderHandler handler(file);
  json::sax_parse(text, &handler);
  return handler.take();
}

}  // namespace deltanet
