// What several heads or several threads have in common: the sequence is long enough for more than one segment of the
// backward pass, value heads share key heads, threads share the columns of one head, and final states overwrite the
// initial ones.

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/parallel.h"
#include "bounds.h"
#include "deltanet/recurrence.h"
#include "problems.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

std::vector<std::string> row_names() {
  std::vector<std::string> names;
  for (const Row& row : rows()) names.emplace_back(row.name);
  return names;
}

class SharedHeads : public testing::TestWithParam<std::string> {};

// ---- against the reference

// Two key heads with two value heads each, sequences of one, two and three segments of 256 tokens, and one without
// tokens.
Problem segments_of(const std::string& row) {
  const int64_t U = allows_grouped_heads(find_row(row).spec) ? 4 : 2;
  Problem problem = problem_of(row, {1, 827, 2, U, 5, 3, 4}, 21);
  problem.spec.l2norm = true;
  problem.cu_seqlens = {0, 270, 270, 287, 827};
  return problem;
}

TEST_P(SharedHeads, HaveTheReferencesGradientsOverManySegments) {
  const Problem problem = segments_of(GetParam());
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  const Expected expected = expected_gradients(problem.spec, inputs, upstream);
  for (const int threads : {1, 3, 16}) {
    SCOPED_TRACE(std::to_string(threads) + " threads");
    const Options options{.threads = threads};
    EXPECT_EQ(first_difference(backward_arrays(problem.spec, inputs, upstream, options), expected), "");
    if (problem.spec.solve == Solve::kOffline) continue;
    KeptWrites writes(problem.shape);
    const Options handed{.threads = threads, .writes = writes.view()};
    forward_arrays(problem.spec, inputs, handed);
    EXPECT_EQ(first_difference(backward_arrays(problem.spec, inputs, upstream, handed), expected), "")
        << "with the writes of forward";
  }
}

TEST_P(SharedHeads, HaveTheReferencesOutputs) {
  const Problem problem = segments_of(GetParam());
  const Arrays inputs = problem.inputs();
  const Expected expected = expected_outputs(problem.spec, inputs);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    for (const int threads : {1, 16}) {
      const Options options{.mode = mode, .threads = threads};
      EXPECT_EQ(first_difference(forward_arrays(problem.spec, inputs, options), expected), "");
    }
  }
}

// ---- final states that overwrite the initial ones

// A state [N,heads,...] with rows and elements `gap` apart from each other, and NaN between them.
struct State {
  std::vector<float> memory;
  Tensor view;

  State(const Array& values, int64_t gap) {
    int64_t step = gap;
    view.rank = static_cast<int>(values.shape.size());
    for (std::size_t axis = values.shape.size(); axis-- > 0;) {
      view.shape[axis] = values.shape[axis];
      view.stride[axis] = step;
      step *= values.shape[axis];
    }
    memory.assign(values.data.size() * static_cast<std::size_t>(gap), std::numeric_limits<float>::quiet_NaN());
    for (std::size_t i = 0; i < values.data.size(); ++i) {
      memory[i * static_cast<std::size_t>(gap)] = static_cast<float>(values.data[i]);
    }
    view.data = memory.data();
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  std::vector<double> values() const {
    std::vector<double> out;
    for (std::size_t i = 0; i < memory.size(); i += static_cast<std::size_t>(view.stride[view.rank - 1])) {
      out.push_back(memory[i]);
    }
    return out;
  }
};

// The outputs of forward() with states in place; everything else is dense.
Arrays in_place(const Problem& problem, const Arrays& arrays, int64_t gap, const Options& options) {
  std::map<std::string, std::unique_ptr<State>> tensors;
  Inputs inputs;
  for (const auto& arg : input_args()) {
    const std::string name(arg.name);
    if (!arrays.count(name)) continue;
    const bool state = name == "S0" || name == "A0" || name == "P0" || name == "G0";
    tensors[name] = std::make_unique<State>(arrays.at(name), state ? gap : 1);
    inputs.*arg.member = tensors[name]->view;
  }
  inputs.cu_seqlens = problem.cu_seqlens;
  const State o({arrays.at("v").shape, std::vector<double>(arrays.at("v").data.size())}, 1);
  const auto state = [&](const char* name) { return tensors.count(name) ? tensors[name]->view : Tensor(); };
  forward(problem.spec, inputs, {o.view, state("S0"), state("A0"), state("P0"), state("G0")}, options);
  Arrays finals = {{"o", {arrays.at("v").shape, o.values()}}};
  for (const char* name : {"S0", "A0", "P0", "G0"}) {
    if (!tensors.count(name)) continue;
    finals[name[0] + std::string("_final")] = {arrays.at(name).shape, tensors.at(name)->values()};
  }
  return finals;
}

// Inside of a parallel loop the threads that share a head may be one after the other, so that the last finds what the
// first has stored.
TEST_P(SharedHeads, ReadTheirInitialStatesBeforeTheyAreOverwritten) {
  const int64_t U = allows_grouped_heads(find_row(GetParam()).spec) ? 2 : 1;
  const Problem problem = problem_of(GetParam(), {1, 40, 1, U, 20, 100, 1}, 31);
  const Arrays inputs = problem.inputs();
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    const Arrays expected = forward_arrays(problem.spec, inputs, {.mode = mode, .threads = 1});
    for (const int64_t gap : {1, 2}) {
      const Options options{.mode = mode, .threads = 8};
      Arrays alone = in_place(problem, inputs, gap, options), nested;
      parallel_for(2, 2, [&](int64_t i) {
        if (i == 0) nested = in_place(problem, inputs, gap, options);
      });
      for (const auto& [name, finals] : alone) {
        EXPECT_EQ(finals.data, expected.at(name).data) << name << ", gap " << gap;
        EXPECT_EQ(nested.at(name).data, expected.at(name).data) << name << ", gap " << gap << ", nested";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, SharedHeads, testing::ValuesIn(row_names()), [](const auto& row) { return row.param; });

}  // namespace
}  // namespace deltanet::test
