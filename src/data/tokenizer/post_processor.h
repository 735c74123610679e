#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "data/tokenizer/json_field.h"

namespace deltanet::data {

// A template of special tokens around a text; no value stands for the text itself.
using Template = std::vector<std::optional<int32_t>>;

// The templates of the "post_processor" of a tokenizer.json, to be applied one after the other. `vocab_size` bounds the
// ids.
std::vector<Template> read_post_processor(const JsonField& field, int64_t vocab_size, int depth = 0);

std::vector<int32_t> apply_template(const Template& pattern, const std::vector<int32_t>& text);

}  // namespace deltanet::data
