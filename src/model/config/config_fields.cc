#include "model/config/config_fields.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/edit_distance.h"
#include "base/json.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

using Json = nlohmann::json;

std::string range_text(int64_t smallest, int64_t largest) {
  return "an integer from " + std::to_string(smallest) + " to " + std::to_string(largest);
}

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  constexpr std::size_t kLongest = 60;
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

Json parse(std::string_view text, const std::string& file) {
  Json json = parse_json(text, "config " + file);
  if (!json.is_object()) throw Error("[config] " + file + ": given " + shown(json) + "; expected a JSON object");
  return json;
}

}  // namespace

struct Fields::Document {
  Json json;
  mutable std::set<std::string, std::less<>> asked = {};  // fields that something looked for

  const Json* find(std::string_view key) const {
    asked.emplace(key);
    const auto found = json.find(key);
    return found == json.end() || found->is_null() ? nullptr : &*found;
  }
};

Fields::Fields(std::string_view text, const std::string& file)
    : document_(std::make_shared<Document>(Document{parse(text, file)})), file_(file) {}

Fields::Fields(std::shared_ptr<const Document> document, std::string file, std::string prefix)
    : document_(std::move(document)), file_(std::move(file)), prefix_(std::move(prefix)) {}

void Fields::refuse_others(std::string_view known) const {
  const Json more = Json::parse(known);
  const auto& asked = document_->asked;
  for (const auto& [key, value] : document_->json.items()) {
    if (asked.contains(key) || more.contains(key)) continue;
    const std::vector<std::string_view> names(asked.begin(), asked.end());
    throw Error("[config] " + file_ + ": unknown field " + in_quotes(prefix_ + key) + "; " + suggestion(key, names));
  }
}

void Fields::fail(std::string_view key, const std::string& expected) const {
  const Json* value = document_->find(key);
  if (!value) fail_missing(key, expected);
  throw Error("[config] " + file_ + ": " + prefix_ + std::string(key) + ": given " + shown(*value) + "; expected " +
              expected);
}

void Fields::fail_missing(std::string_view key, const std::string& expected) const {
  throw Error("[config] " + file_ + ": " + prefix_ + std::string(key) + ": missing; expected " + expected);
}

std::string Fields::text(std::string_view key) const {
  const Json* value = document_->find(key);
  if (!value || !value->is_string()) fail(key, "a string");
  return value->get<std::string>();
}

std::string Fields::text_or(std::string_view key, std::string_view fallback) const {
  return document_->find(key) ? text(key) : std::string(fallback);
}

int64_t Fields::integer(std::string_view key, int64_t smallest, int64_t largest) const {
  const Json* value = document_->find(key);
  if (!value || !value->is_number_integer()) fail(key, range_text(smallest, largest));
  const bool too_large = value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(largest);
  if (too_large || value->get<int64_t>() < smallest || value->get<int64_t>() > largest) {
    fail(key, range_text(smallest, largest));
  }
  return value->get<int64_t>();
}

int64_t Fields::integer_or(std::string_view key, int64_t fallback, int64_t smallest, int64_t largest) const {
  return document_->find(key) ? integer(key, smallest, largest) : fallback;
}

std::vector<int64_t> Fields::integers(std::string_view key, int64_t smallest, int64_t largest) const {
  const Json* value = document_->find(key);
  const std::string expected = "a list, each entry " + range_text(smallest, largest);
  if (!value || !value->is_array()) fail(key, expected);
  std::vector<int64_t> entries;
  for (const Json& entry : *value) {
    const bool valid = entry.is_number_integer() &&
                       !(entry.is_number_unsigned() && entry.get<uint64_t>() > static_cast<uint64_t>(largest)) &&
                       entry.get<int64_t>() >= smallest && entry.get<int64_t>() <= largest;
    if (!valid) fail(key, expected);
    entries.push_back(entry.get<int64_t>());
  }
  return entries;
}

double Fields::number_or(std::string_view key, double fallback, double smallest, double largest) const {
  const Json* value = document_->find(key);
  if (!value) return fallback;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (!(number >= smallest && number <= largest)) {
    fail(key, "a number from " + shown(Json(smallest)) + " to " + shown(Json(largest)));
  }
  return number;
}

bool Fields::flag_or(std::string_view key, bool fallback) const {
  const Json* value = document_->find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) fail(key, "true or false");
  return value->get<bool>();
}

std::optional<int64_t> Fields::id_or_none(std::string_view key, int64_t vocab_size) const {
  if (!document_->find(key)) return std::nullopt;
  return integer(key, 0, vocab_size - 1);
}

std::optional<int64_t> Fields::integer_or_none(std::string_view key) const {
  if (!document_->find(key)) return std::nullopt;
  return integer(key, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

std::vector<std::pair<std::string, std::string>> Fields::object_or_empty(std::string_view key) const {
  std::vector<std::pair<std::string, std::string>> entries;
  const Json* value = document_->find(key);
  if (!value) return entries;
  if (!value->is_object()) fail(key, "an object");
  for (const auto& [name, entry] : value->items()) {
    entries.emplace_back(name, entry.is_string() ? entry.get<std::string>() : entry.dump());
  }
  return entries;
}

std::vector<Fields> Fields::objects_or_empty(std::string_view key) const {
  std::vector<Fields> objects;
  const Json* value = document_->find(key);
  if (!value) return objects;
  const auto add = [&](const Json& json, const std::string& prefix) {
    if (!json.is_object()) fail(key, "an object, or a list of objects");
    objects.push_back(Fields(std::make_shared<Document>(Document{json}), file_, prefix));
  };
  if (value->is_array()) {
    for (std::size_t i = 0; i < value->size(); ++i) {
      add((*value)[i], std::string(key) + "[" + std::to_string(i) + "].");
    }
  } else {
    add(*value, std::string(key) + ".");
  }
  return objects;
}

void Fields::require_text(std::string_view key, std::initializer_list<std::string_view> allowed) const {
  if (!document_->find(key)) return;
  const std::string given = text(key);
  if (std::find(allowed.begin(), allowed.end(), given) != allowed.end()) return;
  std::string expected;
  for (std::string_view word : allowed) expected += (expected.empty() ? "" : " or ") + std::string(word);
  fail(key, expected + "; other values are not supported");
}

void Fields::require_flag(std::string_view key, bool allowed) const {
  if (flag_or(key, allowed) != allowed)
    fail(key, std::string(allowed ? "true" : "false") + "; the other is not supported");
}

void Fields::require_null(std::string_view key) const {
  if (document_->find(key)) fail(key, "null; other values are not supported");
}

}  // namespace deltanet
