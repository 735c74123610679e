// What is not finite must show: a NaN or an infinity in any input, and decays or squares that overflow, make everything
// that depends on them not finite, and nothing else changes. In every form and on every SIMD target.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "deltanet/recurrence.h"
#include "deltanet/runtime.h"
#include "problems.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// What a NaN may reach: everything that depends on it, or all tokens of its head and sequence.
enum class Reach { kDependents, kHead };

// A number for the head and sequence that an element belongs to.
std::size_t head_of(const Array& array, std::size_t element, const Shape& shape) {
  std::vector<std::size_t> at(array.shape.size());
  for (std::size_t axis = at.size(); axis-- > 0;) {
    at[axis] = element % static_cast<std::size_t>(array.shape[axis]);
    element /= static_cast<std::size_t>(array.shape[axis]);
  }
  if (at.size() < 3) return at[0];  // of all sequences
  const std::size_t head = array.shape[1] == shape.T ? at[2] : at[1];
  return at[0] * static_cast<std::size_t>(shape.H) + head;
}

// The first of `actual` that is finite although `expected` is not, or that changed from `clean` although `expected` did
// not change from `expected_clean`, in none of its head where `reach` says so; empty if none is. A double that float32
// does not hold is not finite here.
std::string first_hidden(const Arrays& actual, const Arrays& clean, const Arrays& expected,
                         const Arrays& expected_clean, const Shape& shape, Reach reach) {
  for (const auto& [name, array] : expected) {
    const std::vector<double>& before = expected_clean.at(name).data;
    std::set<std::size_t> reached;
    for (std::size_t i = 0; reach == Reach::kHead && i < before.size(); ++i) {
      if (array.data[i] != before[i]) reached.insert(head_of(array, i, shape));
    }
    for (std::size_t i = 0; i < before.size(); ++i) {
      const double given = actual.at(name).data[i], was = clean.at(name).data[i];
      const std::string place = name + "[" + std::to_string(i) + "] is " + std::to_string(given);
      if (!std::isfinite(static_cast<float>(array.data[i]))) {
        if (std::isfinite(given)) return place + " where the reference has " + std::to_string(array.data[i]);
      } else if (array.data[i] == before[i] && given != was && !reached.count(head_of(array, i, shape))) {
        return place + " where nothing reaches it and " + std::to_string(was) + " was";
      }
    }
  }
  return "";
}

std::vector<std::string> row_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.emplace_back(row.name);
  return names;
}

// One element of an input in the middle of the second sequence, first head: in the second chunk for what has tokens.
std::size_t element_of(const Array& array, const Shape& shape) {
  const std::vector<int64_t>& sizes = array.shape;
  std::size_t at = 0;
  for (std::size_t axis = 0; axis < sizes.size(); ++axis) {
    int64_t index = 0;
    if (axis == 0 && sizes[0] == shape.B && sizes.size() > 2) index = 1;
    if (axis == 1 && sizes[1] == shape.T) index = shape.T / 2 + 1;
    if (axis + 1 == sizes.size() && axis > 0) index = sizes[axis] - 1;
    at = at * static_cast<std::size_t>(sizes[axis]) + static_cast<std::size_t>(index);
  }
  return at;
}

using Poison = std::pair<std::string, double>;  // input, value

std::vector<Poison> poisons(const Arrays& inputs) {
  std::vector<Poison> all;
  for (const auto& [name, array] : inputs) {
    for (const double value : {kNan, kInfinity, -kInfinity}) all.emplace_back(name, value);
    // Out of contract, and so large that float32 cannot hold the decay; the largest is one of double, too.
    if (name == "g" || name == "g_atk") {
      for (const double value : {90.0, 700.0, 1e30}) all.emplace_back(name, value);
    }
  }
  return all;
}

class NotFinite : public testing::TestWithParam<std::string> {
 protected:
  static std::vector<Problem> problems(const Shape& shape) {
    std::vector<Problem> all(3, problem_of(GetParam(), shape, 21));
    all[1].spec.l2norm = true;
    all[2].spec.tie_gates = true;
    if (all[0].spec.key != Precond::kStable || all[0].spec.tie_gates) all.pop_back();
    return all;
  }
};

TEST_P(NotFinite, InputsShowInOutputsAndStates) {
  for (const Problem& problem : problems({2, 37, 2, 2, 20, 9, 2})) {
    const Arrays inputs = problem.inputs(), expected_clean = reference_forward(problem.spec, inputs);
    for (const auto& [name, value] : poisons(inputs)) {
      Arrays poisoned = inputs;
      poisoned[name].data[element_of(inputs.at(name), problem.shape)] = value;
      const Arrays expected = reference_forward(problem.spec, poisoned);
      for (const std::string& target : simd_targets()) {
        set_simd_target(target);
        for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
          const Options options{.mode = mode, .threads = 1};
          const Arrays clean = forward_arrays(problem.spec, inputs, options);
          EXPECT_EQ(first_hidden(forward_arrays(problem.spec, poisoned, options), clean, expected, expected_clean,
                                 problem.shape, Reach::kDependents),
                    "")
              << name << " = " << value << (mode == Mode::kChunk ? ", chunk, " : ", recurrent, ") << target << ", "
              << problem;
        }
      }
    }
  }
  set_simd_target("");
}

TEST_P(NotFinite, InputsShowInGradients) {
  for (const Problem& problem : problems({2, 21, 2, 2, 4, 3, 2})) {
    const Arrays inputs = problem.inputs(), upstream = problem.upstream();
    const Arrays expected_clean = reference_backward(problem.spec, inputs, upstream);
    for (const auto& [name, value] : poisons(inputs)) {
      Arrays poisoned = inputs;
      poisoned[name].data[element_of(inputs.at(name), problem.shape)] = value;
      const Arrays expected = reference_backward(problem.spec, poisoned, upstream);
      for (const std::string& target : simd_targets()) {
        set_simd_target(target);
        const Options options{.threads = 1};
        const Arrays clean = backward_arrays(problem.spec, inputs, upstream, options);
        EXPECT_EQ(first_hidden(backward_arrays(problem.spec, poisoned, upstream, options), clean, expected,
                               expected_clean, problem.shape, Reach::kHead),
                  "")
            << name << " = " << value << ", " << target << ", " << problem;
      }
    }
  }
  set_simd_target("");
}

TEST_P(NotFinite, UpstreamGradientsShow) {
  const Problem problem = problem_of(GetParam(), {2, 21, 2, 2, 4, 3, 2}, 22);
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  const Arrays expected_clean = reference_backward(problem.spec, inputs, upstream);
  for (const auto& [name, array] : upstream) {
    for (const double value : {kNan, kInfinity}) {
      Arrays poisoned = upstream;
      poisoned[name].data[element_of(array, problem.shape)] = value;
      const Arrays expected = reference_backward(problem.spec, inputs, poisoned);
      for (const std::string& target : simd_targets()) {
        set_simd_target(target);
        const Options options{.threads = 1};
        const Arrays clean = backward_arrays(problem.spec, inputs, upstream, options);
        EXPECT_EQ(first_hidden(backward_arrays(problem.spec, inputs, poisoned, options), clean, expected,
                               expected_clean, problem.shape, Reach::kHead),
                  "")
            << name << " = " << value << ", " << target;
      }
    }
  }
  set_simd_target("");
}

// Keys whose square is no float32: 1/(k.k), 1/(1 + k.Pk) and the norm would be zero, and the token would write nothing.
TEST_P(NotFinite, SquaresThatOverflowAreNotTakenForZero) {
  for (const bool l2norm : {false, true}) {
    Problem problem = problem_of(GetParam(), {1, 20, 1, 1, 16, 8, 1}, 23);
    problem.spec.l2norm = l2norm;
    Arrays inputs = problem.inputs();
    for (const char* name : {"q", "k"}) {
      for (double& value : inputs[name].data) value *= 1e25;
    }
    const Arrays expected = reference_forward(problem.spec, inputs);
    for (const std::string& target : simd_targets()) {
      set_simd_target(target);
      for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
        const Arrays actual = forward_arrays(problem.spec, inputs, {.mode = mode, .threads = 1});
        for (const double o : actual.at("o").data) {
          EXPECT_TRUE(!std::isfinite(o)) << o << (l2norm ? " with l2norm, " : ", ") << target;
          if (std::isfinite(o)) break;
        }
      }
    }
  }
  set_simd_target("");
}

INSTANTIATE_TEST_SUITE_P(Rows, NotFinite, testing::ValuesIn(row_names()), [](const auto& test) { return test.param; });

}  // namespace
}  // namespace deltanet::test
