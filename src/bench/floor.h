#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"

namespace deltanet::bench {

// A number that was measured, and what is promised about it.
struct Floor {
  std::string what;
  std::string relation;  // "<=", ">=" or, where nothing is promised, ""
  double bound = 0;
  std::vector<double> values = {};  // one per round
  std::string problem = {};         // why there are none

  double measured() const { return median(values); }
  bool holds() const {  // a promise about NaN does not
    return relation.empty() || (relation == "<=" ? measured() <= bound : measured() >= bound);
  }
};

inline bool all_hold(const std::vector<Floor>& floors) {
  for (const Floor& floor : floors) {
    if (!floor.holds()) return false;
  }
  return true;
}

}  // namespace deltanet::bench
