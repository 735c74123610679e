#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace deltanet {

// Parses a JSON document from outside. Stricter than the parser beneath: names must be unique in their object, values
// nest at most 64 deep, and nothing follows the document. An Error begins with "[what]" and says where.
nlohmann::json parse_json(std::string_view text, const std::string& what);

// A name from outside for use in an error text: in quotes, control characters escaped, long ones cut.
std::string in_quotes(std::string_view name);

}  // namespace deltanet
