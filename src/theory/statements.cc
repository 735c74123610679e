#include "theory/statements.h"

namespace deltanet::theory {

bool Check::holds() const {
  if (relation == "<=") return measured <= bound;
  if (relation == ">=") return measured >= bound;
  if (relation == "<") return measured < bound;
  if (relation == ">") return measured > bound;
  return std::fabs(measured - bound) <= 1e-14 * std::fabs(bound);  // "=", to the rounding of a few operations
}

}  // namespace deltanet::theory
