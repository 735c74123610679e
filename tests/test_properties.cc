// What must hold for every row, shape, packing and option: the chunkwise form, the recurrent form and the float64
// reference are the same function, backward is its gradient, and rows turn into each other where the paper says so.

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "bounds.h"
#include "deltanet/recurrence.h"
#include "problems.h"
#include "random_tests.h"
#include "recurrence/arrays.h"
#include "recurrence/preconditioners.h"
#include "recurrence/reference.h"

namespace deltanet::test {
namespace {

// One thread each: test_invariance.cc shows that more change nothing.
Arrays run_forward(const Spec& spec, const Arrays& inputs, Mode mode) {
  return forward_arrays(spec, inputs, {.mode = mode, .threads = 1, .check_values = true});
}

Arrays run_backward(const Spec& spec, const Arrays& inputs, const Arrays& upstream) {
  return backward_arrays(spec, inputs, upstream, {.mode = Mode::kChunk, .threads = 1, .check_values = true});
}

// ---- the three forms

RC_GTEST_PROP(Forward, ChunkEqualsRecurrentEqualsReference, ()) {
  const Problem problem = *any_problem(kForwardSizes);
  const Arrays inputs = problem.inputs();
  const Expected expected = expected_outputs(problem.spec, inputs);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(problem.spec, inputs, mode), expected) == "");
  }
}

RC_GTEST_PROP(Backward, EqualsReference, ()) {
  const Problem problem = *any_problem(kBackwardSizes);
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  const Expected expected = expected_gradients(problem.spec, inputs, upstream);
  RC_ASSERT(first_difference(run_backward(problem.spec, inputs, upstream), expected) == "");
}

// What forward has written into the state may be handed to backward.
RC_GTEST_PROP(Backward, EqualsReferenceWithTheWritesOfForward, ()) {
  const Problem problem =
      *rc::gen::suchThat(any_problem(kBackwardSizes), [](const Problem& p) { return p.spec.solve != Solve::kOffline; });
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  KeptWrites writes(problem.shape);
  const Options options{.threads = 1, .writes = writes.view()};
  const Arrays outputs = forward_arrays(problem.spec, inputs, options);
  for (const auto& [name, output] : run_forward(problem.spec, inputs, Mode::kChunk)) {
    RC_ASSERT(same_bits(outputs.at(name), output));
  }
  RC_ASSERT(writes.complete());
  const Expected expected = expected_gradients(problem.spec, inputs, upstream);
  RC_ASSERT(first_difference(backward_arrays(problem.spec, inputs, upstream, options), expected) == "");
}

// Backward believes the writes it is handed: it does not solve for them again.
TEST(Backward, TakesTheWritesItIsHanded) {
  const Shape shape{1, 40, 1, 1, 8, 8, 1};
  const Problem problem = problem_of("gdn", shape, 3);
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  KeptWrites writes(shape);
  const Options options{.threads = 1, .writes = writes.view()};
  forward_arrays(problem.spec, inputs, options);
  const Arrays gradients = backward_arrays(problem.spec, inputs, upstream, options);
  options.writes.data[0] += 1.0f;
  const Arrays others = backward_arrays(problem.spec, inputs, upstream, options);
  EXPECT_FALSE(same_bits(gradients.at("q"), others.at("q")));
}

// An upstream gradient that is not given counts as zero.
RC_GTEST_PROP(Backward, TakesAbsentUpstreamGradientsAsZero, ()) {
  const Problem problem = *any_problem(kTinySizes);
  const Arrays inputs = problem.inputs();
  Arrays some = problem.upstream(), all = some;
  for (auto& [name, array] : all) {
    if (*rc::gen::arbitrary<bool>()) continue;
    array.data.assign(array.data.size(), 0.0);
    some.erase(name);
  }
  const Arrays with_zeros = run_backward(problem.spec, inputs, all);
  const Arrays without = run_backward(problem.spec, inputs, some);
  for (const auto& [name, gradient] : with_zeros) RC_ASSERT(same_bits(without.at(name), gradient));
}

// Along a random direction, the reference's gradient is the derivative of its values.
RC_GTEST_PROP(ReferenceBackward, EqualsFiniteDifferences, ()) {
  const Problem problem = *any_problem(kTinySizes);
  const Arrays inputs = problem.inputs(), upstream = problem.upstream();
  const Arrays gradients = reference_backward(problem.spec, inputs, upstream);
  const auto loss = [&](const Arrays& at) {
    double sum = 0;
    for (const auto& [name, output] : reference_forward(problem.spec, at)) {
      const Array& weights = upstream.at("d" + name);
      for (std::size_t i = 0; i < output.data.size(); ++i) sum += output.data[i] * weights.data[i];
    }
    return sum;
  };
  std::mt19937_64 rng(problem.seed);
  std::normal_distribution<double> normal;
  Arrays above = inputs, below = inputs;
  double slope = 0, size = 1;
  constexpr double kStep = 1e-6;
  for (const auto& [name, gradient] : gradients) {
    for (std::size_t i = 0; i < gradient.data.size(); ++i) {
      const double direction = normal(rng) * std::fabs(inputs.at(name).data[i]);  // keeps signs and small keys
      above[name].data[i] += kStep * direction;
      below[name].data[i] -= kStep * direction;
      slope += gradient.data[i] * direction;
      size += std::fabs(gradient.data[i] * direction);
    }
  }
  RC_ASSERT(std::fabs((loss(above) - loss(below)) / (2 * kStep) - slope) <= 1e-6 * size);
}

// ---- rows that turn into each other

Spec without_preconditioner(Spec spec) {
  const Spec defaults;
  spec.key = Precond::kNone;
  spec.squash = defaults.squash;
  spec.range = defaults.range;
  spec.tie_gates = false;
  return spec;
}

RC_GTEST_PROP(Rows, WithXEqualToOneAreTheirBase, ()) {
  Problem problem = *rc::gen::suchThat(any_problem(kForwardSizes), [](const Problem& p) {
    return p.spec.key == Precond::kStable && !has_gates({.query = p.spec.query});
  });
  problem.spec.x = 1;
  Arrays inputs = problem.inputs();
  Problem base = problem;
  base.spec = without_preconditioner(problem.spec);
  Arrays base_inputs = inputs;
  for (const char* name : {"g_atk", "beta_atk", "log_atk_scale", "A0"}) base_inputs.erase(name);
  if (input_shape(base.spec, "beta", base.shape).empty()) base_inputs.erase("beta");  // a tied moment alone read it
  const Expected expected = expected_outputs(base.spec, base_inputs);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(problem.spec, inputs, mode), expected) == "");
  }
}

// Distinct read and write keys that happen to be equal.
RC_GTEST_PROP(Rows, WithTheIdentityPreconditionerAreTheirBase, ()) {
  const Problem base = *rc::gen::suchThat(any_problem(kBackwardSizes), [](const Problem& p) {
    return p.spec.key == Precond::kNone && p.spec.solve != Solve::kDplr;
  });
  Spec identity = base.spec;
  identity.key = Precond::kIdentity;
  const Arrays inputs = base.inputs(), upstream = base.upstream();
  const Expected expected = expected_outputs(base.spec, inputs);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(identity, inputs, mode), expected) == "");
  }
  const Expected gradients = expected_gradients(base.spec, inputs, upstream);
  RC_ASSERT(first_difference(run_backward(identity, inputs, upstream), gradients) == "");
}

// A key of its own that equals k is k, and the gradient of k is the sum of theirs.
RC_GTEST_PROP(Rows, WithAFreeKeyThatIsKAreTheirBase, ()) {
  const Problem base = *rc::gen::suchThat(any_problem(kBackwardSizes), [](const Problem& p) {
    return p.spec.key == Precond::kNone && p.spec.erase == Erase::kKey && p.spec.solve == Solve::kOnline;
  });
  const bool plain_gain = base.spec.gain == Gain::kOne || base.spec.gain == Gain::kBeta;
  const bool erase = plain_gain && *rc::gen::arbitrary<bool>();
  const std::string name = erase ? "k_erase" : "k_write";
  Spec plain = base.spec;
  plain.l2norm = false;  // which free keys are exempt from
  Spec spec = plain;
  if (erase) {
    spec.erase = Erase::kFree;
  } else {
    spec.key = Precond::kFree;
  }
  Arrays inputs = base.inputs();
  const Arrays upstream = base.upstream();
  const Expected outputs = expected_outputs(plain, inputs);
  Arrays with_key = inputs;
  with_key[name] = inputs.at("k");
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(spec, with_key, mode), outputs) == "");
  }
  Expected sums = expected_gradients(spec, with_key, upstream);
  sums.values = reference_backward(plain, inputs, upstream);
  for (std::size_t i = 0; i < sums.errors.at("k").data.size(); ++i)
    sums.errors["k"].data[i] += sums.errors[name].data[i];
  Arrays gradients = run_backward(spec, with_key, upstream);
  for (std::size_t i = 0; i < gradients.at("k").data.size(); ++i) gradients["k"].data[i] += gradients[name].data[i];
  RC_ASSERT(first_difference(gradients, sums) == "");
}

// B*k given as k_write: a preconditioned row is the fast engine with a preconditioner of one's own.
RC_GTEST_PROP(Rows, WithAStablePreconditionerAreRowsWithItsWriteKey, ()) {
  Problem problem = *rc::gen::suchThat(any_problem(kForwardSizes), [](const Problem& p) {
    return p.spec.key == Precond::kStable && p.spec.query == Precond::kNone && p.spec.erase == Erase::kKey &&
           !p.spec.tie_gates && p.cu_seqlens.empty();
  });
  problem.spec.l2norm = false;
  const Arrays inputs = problem.inputs();
  const auto [B, T, H, U, K, V, N] = problem.shape;
  Arrays free = inputs;
  Array& w = free["k_write"] = inputs.at("k");
  const auto optional = [&](const char* name, int64_t i, double absent) {
    return inputs.count(name) ? inputs.at(name).data[i] : absent;
  };
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t i = 0; i < H * K; ++i) {
      double A = optional("A0", b * H * K + i, 0);
      for (int64_t t = 0; t < T; ++t) {
        const int64_t gate = (b * T + t) * H + i / K, at = (b * T + t) * H * K + i;
        const double k = inputs.at("k").data[at];
        A = std::exp(optional("g_atk", gate, 0)) * A + optional("beta_atk", gate, 1) * k * k;
        w.data[at] = k * reference::stable_preconditioner(problem.spec, A, inputs.at("log_atk_scale").data[i / K]);
      }
    }
  }
  for (const char* name : {"A0", "g_atk", "beta_atk", "log_atk_scale"}) free.erase(name);
  Spec spec = without_preconditioner(problem.spec);
  spec.key = Precond::kFree;
  Expected expected = expected_outputs(problem.spec, inputs);
  expected.values.erase("A_final");
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(spec, free, mode), expected) == "");
  }
}

RC_GTEST_PROP(Rows, GdnWithoutDecayIsDeltaNet, ()) {
  Problem problem = *any_problem(kForwardSizes);
  const bool l2norm = problem.spec.l2norm;
  problem.spec = find_row("gdn").spec;
  problem.spec.l2norm = l2norm;
  Arrays inputs = problem.inputs();
  for (double& g : inputs["g"].data) g = 0;
  Arrays ungated = inputs;
  ungated.erase("g");
  Spec delta_net = find_row("delta_net").spec;
  delta_net.l2norm = l2norm;
  const Expected expected = expected_outputs(delta_net, ungated);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(problem.spec, inputs, mode), expected) == "");
  }
}

RC_GTEST_PROP(Rows, KdaWithEqualGatesIsGdn, ()) {
  Problem problem = *any_problem(kForwardSizes);
  const bool l2norm = problem.spec.l2norm;
  problem.spec = find_row("gdn").spec;
  problem.spec.l2norm = l2norm;
  const Arrays inputs = problem.inputs();
  Arrays spread = inputs;
  Array& g = spread["g"];
  g.shape.push_back(problem.shape.K);
  g.data.clear();
  for (const double value : inputs.at("g").data) {
    g.data.insert(g.data.end(), static_cast<std::size_t>(problem.shape.K), value);
  }
  Spec kda = find_row("kda").spec;
  kda.l2norm = l2norm;
  const Expected expected = expected_outputs(problem.spec, inputs);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    RC_ASSERT(first_difference(run_forward(kda, spread, mode), expected) == "");
  }
}

// ---- blocks: from the diagonal to the exact Gram

Problem block_problem(const Spec& spec, int block) {
  Problem problem = problem_of("pgdn_block", {2, 45, 2, 2, 12, 7, 2}, 17);
  problem.spec = spec;
  problem.spec.block = block;
  problem.spec.l2norm = true;
  return problem;
}

// The outputs but the statistics, which are kept differently.
void expect_same(const Spec& spec, const Arrays& inputs, Expected expected) {
  for (const char* state : {"A_final", "P_final", "G_final"}) expected.values.erase(state);
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    EXPECT_EQ(first_difference(run_forward(spec, inputs, mode), expected), "");
  }
}

TEST(Blocks, OfOneChannelAreTheDiagonal) {
  for (const bool on_key : {true, false}) {
    Spec block = find_row("gdn").spec, diagonal = block;
    (on_key ? block.key : block.query) = Precond::kBlock;
    (on_key ? diagonal.key : diagonal.query) = on_key ? Precond::kPrevious : Precond::kInverse;
    block.gain = diagonal.gain = Gain::kOnePlus;
    const Problem problem = block_problem(block, 1);
    diagonal.l2norm = true;
    Arrays inputs = problem.inputs();
    inputs.erase("G0");
    expect_same(problem.spec, inputs, expected_outputs(diagonal, inputs));
  }
}

TEST(Blocks, OfAllChannelsAreRecursiveLeastSquares) {
  Spec block = find_row("delta_net").spec;
  block.key = Precond::kBlock;
  block.gain = Gain::kOnePlus;
  const Problem problem = block_problem(block, 12);
  Arrays inputs = problem.inputs();
  for (const char* name : {"G0", "g_atk", "beta_atk"}) inputs.erase(name);
  for (double& beta : inputs["beta"].data) beta = 1;
  for (double& ridge : inputs["ridge"].data) ridge = 0.75;
  Arrays least_squares = inputs;
  least_squares.erase("beta");
  least_squares["ridge"] = {{2}, {0.75, 0.75}};
  Spec rls = find_row("rls").spec;
  rls.l2norm = true;
  expect_same(problem.spec, inputs, expected_outputs(rls, least_squares));
}

TEST(Blocks, OfAllChannelsAreMesa) {
  Spec mesa = find_row("mesa").spec;
  mesa.l2norm = true;
  Spec block = mesa;
  block.query = Precond::kBlock;
  block.tie_gates = true;
  const Problem problem = block_problem(block, 12);
  expect_same(problem.spec, problem.inputs(), expected_outputs(mesa, problem.inputs()));
}

// ---- splitting

const std::pair<const char*, const char*> kStates[] = {
    {"S0", "S_final"}, {"A0", "A_final"}, {"P0", "P_final"}, {"G0", "G_final"}};

RC_GTEST_PROP(Splitting, AndCarryingTheStateEqualsOnePass, ()) {
  Problem problem = *rc::gen::suchThat(any_problem(kForwardSizes), [](const Problem& p) { return p.shape.T > 1; });
  problem.cu_seqlens.clear();
  problem.shape.N = problem.shape.B;
  const Arrays inputs = problem.inputs();
  const int64_t cut = *rc::gen::inRange<int64_t>(1, problem.shape.T);
  Expected expected = expected_outputs(problem.spec, inputs);
  for (Arrays* arrays : {&expected.values, &expected.errors}) {
    (*arrays)["o"] = slice((*arrays)["o"], 1, cut, problem.shape.T);
  }
  const Arrays before = tokens_of(inputs, 0, cut);
  const auto rest_after = [&](const Arrays& outputs) {
    Arrays rest = tokens_of(inputs, cut, problem.shape.T);
    for (const auto& [initial, final] : kStates) {
      if (outputs.count(final)) rest[initial] = outputs.at(final);
    }
    if (rest.count("P0") && ridge_makes_P0(problem.spec)) rest.erase("ridge");
    return rest;
  };
  // The chunks of the rest begin elsewhere than those of one pass, and so do the errors of their tokens.
  const Expected alone = expected_outputs(problem.spec, rest_after(reference_forward(problem.spec, before)));
  for (auto& [name, errors] : expected.errors) {
    const Array& others = alone.errors.at(name);
    for (std::size_t i = 0; i < errors.data.size(); ++i) errors.data[i] = std::hypot(errors.data[i], others.data[i]);
  }
  for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
    const Arrays rest = rest_after(run_forward(problem.spec, before, mode));
    RC_ASSERT(first_difference(run_forward(problem.spec, rest, mode), expected) == "");
  }
}

}  // namespace
}  // namespace deltanet::test
