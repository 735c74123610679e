#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "deltanet/rows.h"

namespace deltanet::theory {

// A line of a row's definition in the symbols of the paper, and where the paper has it or what it is called here.
struct RowFormula {
  std::string equation, note;
};

// The recurrence in one line, then what it is made of. As in the paper S_t is [V,K]: the transpose of our arrays.
std::vector<RowFormula> row_formulas(const Spec& spec);

// The value of an option as text.
std::string row_option(const Spec& spec, std::string_view key);

}  // namespace deltanet::theory
