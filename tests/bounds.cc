#include "bounds.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <utility>
#include <vector>

#include "chunked_state.h"
#include "recurrence/reference_run.h"
#include "rounded.h"

namespace deltanet::test {
namespace {

template <class Run>
Expected with_errors(Arrays values, const Run& run) {
  Arrays squares = values;
  for (auto& [name, array] : squares) array.data.assign(array.data.size(), 0.0);
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    Rounded::set_draw(draw);
    for (const auto& [name, array] : run()) {
      const std::vector<double>& exact = values.at(name).data;
      std::vector<double>& sums = squares.at(name).data;
      for (std::size_t i = 0; i < exact.size(); ++i) sums[i] += std::pow(array.data[i] - exact[i], 2);
    }
  }
  for (auto& [name, array] : squares) {
    for (double& x : array.data) x = std::sqrt(x / kDraws);
  }
  return {std::move(values), std::move(squares)};
}

}  // namespace

Expected expected_outputs(const Spec& spec, const Arrays& inputs) {
  return with_errors(reference_forward(spec, inputs),
                     [&] { return reference::forward<Rounded, ChunkedState>(spec, inputs); });
}

Expected expected_gradients(const Spec& spec, const Arrays& inputs, const Arrays& upstream) {
  return with_errors(reference_backward(spec, inputs, upstream),
                     [&] { return reference::backward<Rounded, ChunkedState>(spec, inputs, upstream); });
}

std::string first_difference(const Arrays& actual, const Expected& expected) {
  double worst = 0;
  std::ostringstream text;
  for (const auto& [name, want] : expected.values) {
    const auto found = actual.find(name);
    if (found == actual.end()) return name + " is missing";
    if (found->second.shape != want.shape) return name + " has another shape";
    const std::vector<double>& errors = expected.errors.at(name).data;
    for (std::size_t i = 0; i < want.data.size(); ++i) {
      const double difference = std::fabs(found->second.data[i] - want.data[i]);
      const double bound = kFactor * std::hypot(errors[i], want.data[i] * 0x1p-24);
      if (difference <= bound || difference <= bound * worst) continue;
      worst = difference / bound;
      text.str("");
      text << name << "[" << i << "] is " << found->second.data[i] << " instead of " << want.data[i] << ", off by "
           << difference << ", allowed " << bound;
      if (std::isnan(worst)) return text.str();
    }
  }
  return text.str();
}

}  // namespace deltanet::test
