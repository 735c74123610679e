// What must not change a single bit of the result: later tokens, the rest of the batch or of the packed sequences, the
// number of threads, the strides of the tensors, and final states that overwrite the initial ones.

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "bounds.h"
#include "deltanet/recurrence.h"
#include "problems.h"
#include "random_tests.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

Options options_of(Mode mode, int threads = 1) { return {.mode = mode, .threads = threads, .check_values = false}; }

constexpr int kThreads[] = {2, 3, 16};  // the last is more than there are heads of all sequences

constexpr Mode kModes[] = {Mode::kChunk, Mode::kRecurrent};

bool same_bits(const Arrays& x, const Arrays& y) {
  for (const auto& [name, array] : x) {
    if (!y.count(name) || !test::same_bits(array, y.at(name))) return false;
  }
  return x.size() == y.size();
}

// The gradients with the writes of a forward pass before them.
Arrays handed_gradients(const Spec& spec, const Shape& shape, const Arrays& inputs, const Arrays& upstream,
                        int threads) {
  KeptWrites writes(shape);
  const Options options{.threads = threads, .writes = writes.view()};
  forward_arrays(spec, inputs, options);
  return backward_arrays(spec, inputs, upstream, options);
}

void unpack(Problem& problem) {
  problem.cu_seqlens.clear();
  problem.shape.N = problem.shape.B;
}

RC_GTEST_PROP(Forward, GivesEarlierTokensTheSameBitsWhateverFollows, ()) {
  Problem problem = *any_problem(kForwardSizes);
  unpack(problem);
  const Arrays inputs = problem.inputs();
  const int64_t prefix = *rc::gen::inRange<int64_t>(1, problem.shape.T + 1);
  for (const Mode mode : kModes) {
    const Array whole = forward_arrays(problem.spec, inputs, options_of(mode)).at("o");
    const Array part = forward_arrays(problem.spec, tokens_of(inputs, 0, prefix), options_of(mode)).at("o");
    RC_ASSERT(test::same_bits(slice(whole, 1, 0, prefix), part));
  }
}

RC_GTEST_PROP(Forward, GivesABatchEntryTheSameBitsAlone, ()) {
  Problem problem = *any_problem(kForwardSizes);
  problem.shape.B = *rc::gen::inRange<int64_t>(2, 4);
  unpack(problem);
  const Arrays inputs = problem.inputs();
  const int64_t b = *rc::gen::inRange<int64_t>(0, problem.shape.B);
  for (const Mode mode : kModes) {
    const Arrays batch = forward_arrays(problem.spec, inputs, options_of(mode));
    Arrays expected;
    for (const auto& [name, array] : batch) expected[name] = slice(array, 0, b, b + 1);
    RC_ASSERT(same_bits(forward_arrays(problem.spec, batch_entry(inputs, b), options_of(mode)), expected));
  }
}

RC_GTEST_PROP(Forward, GivesAPackedSequenceTheSameBitsAlone, ()) {
  const Problem problem =
      *rc::gen::suchThat(any_problem(kForwardSizes), [](const Problem& p) { return p.cu_seqlens.size() > 2; });
  const Arrays inputs = problem.inputs();
  const auto n = *rc::gen::inRange<std::size_t>(0, problem.cu_seqlens.size() - 1);
  const int64_t begin = problem.cu_seqlens[n], end = problem.cu_seqlens[n + 1];
  Arrays alone = tokens_of(inputs, begin, end);
  alone.erase("cu_seqlens");
  for (const char* state : {"S0", "A0", "P0", "G0"}) {
    if (alone.count(state)) alone[state] = slice(alone[state], 0, static_cast<int64_t>(n), static_cast<int64_t>(n) + 1);
  }
  for (const Mode mode : kModes) {
    const Arrays packed = forward_arrays(problem.spec, inputs, options_of(mode));
    Arrays expected;
    for (const auto& [name, array] : packed) {
      const auto at = static_cast<int64_t>(n);
      expected[name] = name == "o" ? slice(array, 1, begin, end) : slice(array, 0, at, at + 1);
    }
    RC_ASSERT(same_bits(forward_arrays(problem.spec, alone, options_of(mode)), expected));
  }
}

RC_GTEST_PROP(Threads, GiveTheSameBits, ()) {
  const Problem problem = *any_problem(kForwardSizes);
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  for (const Mode mode : kModes) {
    const Arrays one = forward_arrays(problem.spec, inputs, options_of(mode, 1));
    for (const int threads : kThreads) {
      RC_ASSERT(same_bits(forward_arrays(problem.spec, inputs, options_of(mode, threads)), one));
    }
  }
  const Arrays one = backward_arrays(problem.spec, inputs, upstream, options_of(Mode::kChunk, 1));
  for (const int threads : kThreads) {
    RC_ASSERT(same_bits(backward_arrays(problem.spec, inputs, upstream, options_of(Mode::kChunk, threads)), one));
  }
  if (problem.spec.solve == Solve::kOffline) return;
  const Arrays handed = handed_gradients(problem.spec, problem.shape, inputs, upstream, 1);
  for (const int threads : kThreads) {
    RC_ASSERT(same_bits(handed_gradients(problem.spec, problem.shape, inputs, upstream, threads), handed));
  }
}

// ---- strides

// A tensor that lives in a larger buffer: axes in another order, gaps between elements and rows, and an odd start. What
// lies between its elements is NaN and must stay so.
struct Strided {
  std::vector<float> buffer;
  Tensor view;

  Strided() = default;
  Strided(const std::vector<int64_t>& shape, const std::vector<std::size_t>& order, int64_t gap) {
    view.rank = static_cast<int>(shape.size());
    int64_t step = gap;
    for (const std::size_t axis : order) {  // innermost first
      view.shape[axis] = shape[axis];
      view.stride[axis] = step;
      step = step * shape[axis] + 3;
    }
    buffer.assign(static_cast<std::size_t>(step) + 1, std::numeric_limits<float>::quiet_NaN());
    view.data = buffer.data() + 1;
  }

  template <class Visit>
  void for_each(const Visit& visit) {
    const int64_t size = view.size();
    for (int64_t flat = 0; flat < size; ++flat) {
      int64_t rest = flat, offset = 0;
      for (int axis = view.rank - 1; axis >= 0; --axis) {
        offset += rest % view.shape[static_cast<std::size_t>(axis)] * view.stride[static_cast<std::size_t>(axis)];
        rest /= view.shape[static_cast<std::size_t>(axis)];
      }
      visit(static_cast<std::size_t>(flat), view.data[offset]);
    }
  }

  void fill(const Array& values) {
    for_each([&](std::size_t i, float& x) { x = static_cast<float>(values.data[i]); });
  }
  Array read() {
    Array array{{view.shape.begin(), view.shape.begin() + view.rank}, {}};
    for_each([&](std::size_t, const float& x) { array.data.push_back(x); });
    return array;
  }
  // Elements of the buffer that are no longer NaN; every one of them must belong to the view.
  std::size_t written() const {
    std::size_t count = 0;
    for (const float x : buffer) count += x == x;
    return count;
  }
};

Strided any_strided(const std::vector<int64_t>& shape) {
  std::vector<std::size_t> order;
  for (std::size_t axis = shape.size(); axis-- > 0;) order.push_back(axis);
  if (*rc::gen::arbitrary<bool>() && order.size() > 1) std::swap(order[0], order.back());
  if (*rc::gen::arbitrary<bool>() && order.size() > 2) std::swap(order[1], order[2]);
  return {shape, order, *rc::gen::inRange<int64_t>(1, 3)};
}

template <class Group, class Args>
Group strided_views(std::map<std::string, Strided>& tensors, const Args& args, const std::string& prefix = "") {
  Group group{};
  for (const auto& arg : args) {
    const auto found = tensors.find(prefix + std::string(arg.name));
    if (found != tensors.end()) group.*arg.member = found->second.view;
  }
  return group;
}

RC_GTEST_PROP(Strides, GiveTheSameBits, ()) {
  const Problem problem = *any_problem(kBackwardSizes);
  const Arrays arrays = problem.inputs(), upstream = problem.upstream();
  std::map<std::string, Strided> in, out, weights, gradients;
  for (const auto& [name, array] : arrays) {
    if (name == "cu_seqlens") continue;
    in[name] = any_strided(array.shape);
    in[name].fill(array);
    gradients[name] = any_strided(array.shape);
  }
  for (const auto& [name, array] : upstream) {
    weights[name] = any_strided(array.shape);
    weights[name].fill(array);
    out[name.substr(1)] = any_strided(array.shape);
  }
  Inputs inputs = strided_views<Inputs>(in, input_args());
  inputs.cu_seqlens = problem.cu_seqlens;
  for (const Mode mode : kModes) {
    forward(problem.spec, inputs, strided_views<Outputs>(out, output_args()), options_of(mode));
    const Arrays dense = forward_arrays(problem.spec, arrays, options_of(mode));
    for (auto& [name, tensor] : out) {
      RC_ASSERT(test::same_bits(tensor.read(), dense.at(name)));
      RC_ASSERT(tensor.written() == dense.at(name).data.size());
    }
  }
  const auto expect_gradients = [&](const Options& options, const Arrays& dense) {
    backward(problem.spec, inputs, strided_views<OutputGradients>(weights, output_gradient_args(), "d"),
             strided_views<InputGradients>(gradients, input_gradient_args()), options);
    for (auto& [name, tensor] : gradients) {
      RC_ASSERT(test::same_bits(tensor.read(), dense.at(name)));
      RC_ASSERT(tensor.written() == dense.at(name).data.size());
    }
  };
  expect_gradients(options_of(Mode::kChunk), backward_arrays(problem.spec, arrays, upstream, options_of(Mode::kChunk)));
  if (problem.spec.solve == Solve::kOffline) return;
  const Shape& s = problem.shape;
  Strided writes = any_strided({s.B, s.T, s.U, s.V});
  const Options handed{.threads = 1, .writes = writes.view};
  forward(problem.spec, inputs, strided_views<Outputs>(out, output_args()), handed);
  RC_ASSERT(writes.written() == static_cast<std::size_t>(writes.view.size()));
  expect_gradients(handed, handed_gradients(problem.spec, s, arrays, upstream, 1));
}

// ---- outputs

// The decode loop of a server: the state is updated where it lies.
RC_GTEST_PROP(FinalStates, MayOverwriteTheInitialOnes, ()) {
  Problem problem = *any_problem(kForwardSizes);
  problem.omitted.clear();
  const Arrays arrays = problem.inputs();
  std::vector<std::pair<const char*, const char*>> states = {
      {"S0", "S_final"}, {"A0", "A_final"}, {"P0", "P_final"}, {"G0", "G_final"}};
  for (const Mode mode : kModes) {
    const Arrays expected = forward_arrays(problem.spec, arrays, options_of(mode));
    std::map<std::string, Strided> tensors;
    for (const auto& [name, array] : arrays) {
      if (name == "cu_seqlens") continue;
      std::vector<std::size_t> order;
      for (std::size_t axis = array.shape.size(); axis-- > 0;) order.push_back(axis);
      tensors[name] = Strided(array.shape, order, 1);
      tensors[name].fill(array);
    }
    Inputs inputs = strided_views<Inputs>(tensors, input_args());
    inputs.cu_seqlens = problem.cu_seqlens;
    const Outputs in_place{{}, tensors["S0"].view, tensors["A0"].view, tensors["P0"].view, tensors["G0"].view};
    forward(problem.spec, inputs, in_place, options_of(mode));
    for (const auto& [initial, final] : states) {
      if (expected.count(final)) RC_ASSERT(test::same_bits(tensors.at(initial).read(), expected.at(final)));
    }
  }
}

// Asking for one output or gradient alone does not change it.
RC_GTEST_PROP(Outputs, AreTheSameBitsWhenAskedForAlone, ()) {
  const Problem problem = *any_problem(kTinySizes);
  const Arrays arrays = problem.inputs(), upstream = problem.upstream();
  std::map<std::string, Strided> in, weights;
  for (const auto& [name, array] : arrays) {
    if (name == "cu_seqlens") continue;
    in[name] = any_strided(array.shape);
    in[name].fill(array);
  }
  for (const auto& [name, array] : upstream) {
    weights[name] = any_strided(array.shape);
    weights[name].fill(array);
  }
  Inputs inputs = strided_views<Inputs>(in, input_args());
  inputs.cu_seqlens = problem.cu_seqlens;
  for (const Mode mode : kModes) {
    for (const auto& [name, expected] : forward_arrays(problem.spec, arrays, options_of(mode))) {
      std::map<std::string, Strided> alone;
      alone[name] = any_strided(expected.shape);
      forward(problem.spec, inputs, strided_views<Outputs>(alone, output_args()), options_of(mode));
      RC_ASSERT(test::same_bits(alone[name].read(), expected));
    }
  }
  for (const auto& [name, expected] : backward_arrays(problem.spec, arrays, upstream, options_of(Mode::kChunk))) {
    std::map<std::string, Strided> alone;
    alone[name] = any_strided(expected.shape);
    backward(problem.spec, inputs, strided_views<OutputGradients>(weights, output_gradient_args(), "d"),
             strided_views<InputGradients>(alone, input_gradient_args()), options_of(Mode::kChunk));
    RC_ASSERT(test::same_bits(alone[name].read(), expected));
  }
}

// Heads that no number of tasks divides: the last task has fewer than the others.
TEST(Threads, SharingAnOddNumberOfHeadsGivesTheSameBits) {
  for (const char* name : {"gdn", "pkda", "rls", "dplr"}) {
    const Spec& spec = find_row(name).spec;
    for (const int64_t H : {5, 7}) {
      const Shape shape{1, 40, H, 2 * H, 6, 5, 1};
      const Arrays inputs = random_inputs(spec, shape, 1), upstream = random_upstream(spec, shape, 2);
      const Arrays gradients = backward_arrays(spec, inputs, upstream, {.threads = 1});
      for (const int threads : {2, 3, 4}) {
        SCOPED_TRACE(std::string(name) + ", " + std::to_string(H) + " heads on " + std::to_string(threads));
        for (const Mode mode : kModes) {
          EXPECT_TRUE(same_bits(forward_arrays(spec, inputs, options_of(mode, threads)),
                                forward_arrays(spec, inputs, options_of(mode))));
        }
        EXPECT_TRUE(same_bits(backward_arrays(spec, inputs, upstream, {.threads = threads}), gradients));
      }
    }
  }
}

// One head wider than a column block: the threads share its columns, forward and backward.
TEST(Threads, SharingOneWideHeadGivesTheSameBits) {
  for (const char* name : {"gdn", "pgdn", "kda", "mamba2", "dplr", "mesa"}) {
    const Spec& spec = find_row(name).spec;
    const Shape shape{1, 300, 1, 1, 20, 150, 1};
    const Arrays inputs = random_inputs(spec, shape, 1), upstream = random_upstream(spec, shape, 2);
    const Options one{.threads = 1};
    const Arrays outputs = forward_arrays(spec, inputs, one), gradients = backward_arrays(spec, inputs, upstream, one);
    const bool solves = spec.solve != Solve::kOffline;
    const Arrays handed = solves ? handed_gradients(spec, shape, inputs, upstream, 1) : Arrays();
    const Expected expected = expected_gradients(spec, inputs, upstream);
    EXPECT_TRUE(!solves || first_difference(handed, expected) == "") << name;
    for (const int threads : {2, 3}) {
      const Options several{.threads = threads};
      for (const auto& [key, array] : forward_arrays(spec, inputs, several)) {
        EXPECT_EQ(array.data, outputs.at(key).data) << name << " " << key << " on " << threads << " threads";
      }
      for (const auto& [key, array] : backward_arrays(spec, inputs, upstream, several)) {
        EXPECT_EQ(array.data, gradients.at(key).data) << name << " d" << key << " on " << threads << " threads";
      }
      if (!solves) continue;
      for (const auto& [key, array] : handed_gradients(spec, shape, inputs, upstream, threads)) {
        EXPECT_EQ(array.data, handed.at(key).data) << name << " d" << key << " handed, on " << threads << " threads";
      }
    }
  }
}

}  // namespace
}  // namespace deltanet::test
