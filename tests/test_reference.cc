// The float64 reference against the golden files, the table of rows and finite differences.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <random>
#include <set>
#include <string>

#include "deltanet/error.h"
#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "golden_file.h"

namespace deltanet::test {
namespace {

double largest(const Array& array) {
  double most = 0;
  for (double x : array.data) most = std::max(most, std::fabs(x));
  return most;
}

// Every expected array is there, and agrees to `tolerance` of its largest entry. Arrays that vanish altogether (below
// 1e-6, the gradient through a saturated tanh) are compared on that scale.
void expect_close(const Arrays& actual, const Arrays& expected, double tolerance) {
  for (const auto& [name, want] : expected) {
    const auto found = actual.find(name);
    ASSERT_NE(found, actual.end()) << name << " is missing";
    const Array& got = found->second;
    ASSERT_EQ(got.shape, want.shape) << name;
    const double bound = tolerance * std::max(largest(want), 1e-6);
    for (std::size_t i = 0; i < want.data.size(); ++i) {
      ASSERT_NEAR(got.data[i], want.data[i], bound) << name << " at flat index " << i;
    }
  }
}

constexpr double kTolerance = 1e-10;

class Reference : public testing::TestWithParam<std::filesystem::path> {};

TEST_P(Reference, ForwardEqualsGolden) {
  const GoldenFile golden = read_golden(GetParam());
  expect_close(reference_forward(golden.spec, golden.inputs), golden.outputs, kTolerance);
}

TEST_P(Reference, BackwardEqualsGolden) {
  const GoldenFile golden = read_golden(GetParam());
  ASSERT_FALSE(golden.gradients.empty());
  expect_close(reference_backward(golden.spec, golden.inputs, golden.upstream), golden.gradients, kTolerance);
}

INSTANTIATE_TEST_SUITE_P(Golden, Reference, testing::ValuesIn(golden_paths()),
                         [](const auto& test) { return golden_name(test.param); });

TEST(Golden, CoversEveryRowAndCase) {
  std::set<std::string> rows_seen, cases_seen;
  for (const auto& path : golden_paths()) {
    const GoldenFile golden = read_golden(path);
    rows_seen.insert(golden.row);
    cases_seen.insert(golden.case_name);
  }
  for (const Row& row : rows()) {
    if (row.name == "pgdn_tied" || row.name == "pgdn_identity") continue;  // tested below without files
    if (row.name == "pgdn_block") continue;  // between the diagonal and the exact Gram: test_properties.cc
    // Rows with free keys are others of the table where these keys are what those compute (test_properties.cc).
    if (row.spec.key == Precond::kFree || row.spec.erase == Erase::kFree) continue;
    EXPECT_TRUE(rows_seen.count(std::string(row.name))) << row.name;
  }
  EXPECT_EQ(cases_seen, (std::set<std::string>{"base", "gva", "harsh", "noinit", "t1", "varlen"}));
}

// The table and the files describe the same recurrences; the files state the l2 norm and the scale of their own run.
TEST(Golden, SpecsAreTheRowsOfTheTable) {
  for (const auto& path : golden_paths()) {
    const GoldenFile golden = read_golden(path);
    Spec spec = find_row(golden.row).spec;
    spec.l2norm = golden.spec.l2norm;
    if (!spec.scale) spec.scale = golden.spec.scale;
    EXPECT_EQ(options(spec), options(golden.spec)) << golden.row;
  }
}

// ---- properties of the reference itself

Array random_array(std::vector<int64_t> shape, std::mt19937_64& rng, double low, double high) {
  std::size_t size = 1;
  for (int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  std::uniform_real_distribution<double> uniform(low, high);
  Array array{std::move(shape), std::vector<double>(size)};
  for (double& x : array.data) x = uniform(rng);
  return array;
}

Arrays pgdn_inputs(int64_t T, std::mt19937_64& rng) {
  const int64_t B = 1, H = 2, K = 4, V = 3;
  Arrays inputs;
  inputs["q"] = random_array({B, T, H, K}, rng, -1, 1);
  inputs["k"] = random_array({B, T, H, K}, rng, -1, 1);
  inputs["v"] = random_array({B, T, H, V}, rng, -1, 1);
  inputs["g"] = random_array({B, T, H}, rng, -1, 0);
  inputs["beta"] = random_array({B, T, H}, rng, 0, 1);
  inputs["g_atk"] = random_array({B, T, H}, rng, -1, 0);
  inputs["beta_atk"] = random_array({B, T, H}, rng, 0, 1);
  inputs["log_atk_scale"] = random_array({H}, rng, -1, 0);
  return inputs;
}

TEST(TiedGates, EqualGivingTheGatesTwice) {
  std::mt19937_64 rng(1);
  Arrays inputs = pgdn_inputs(9, rng);
  inputs["g_atk"] = inputs["g"];
  inputs["beta_atk"] = inputs["beta"];
  const Arrays untied = reference_forward(find_row("pgdn").spec, inputs);
  const Arrays upstream = {{"do", random_array(untied.at("o").shape, rng, -1, 1)},
                           {"dA_final", random_array(untied.at("A_final").shape, rng, -1, 1)}};
  Arrays gradients = reference_backward(find_row("pgdn").spec, inputs, upstream);
  for (const auto& [main, moment] : {std::pair{"g", "g_atk"}, std::pair{"beta", "beta_atk"}}) {
    for (std::size_t i = 0; i < gradients[main].data.size(); ++i) gradients[main].data[i] += gradients[moment].data[i];
    gradients.erase(moment);
  }
  inputs.erase("g_atk");
  inputs.erase("beta_atk");
  const Spec& tied = find_row("pgdn_tied").spec;
  expect_close(reference_forward(tied, inputs), untied, kTolerance);
  expect_close(reference_backward(tied, inputs, upstream), gradients, kTolerance);
}

TEST(TiedGates, DecayElementwiseWithADiagonalDecay) {
  Spec spec = find_row("pkda").spec;
  spec.tie_gates = true;
  Arrays inputs;
  inputs["q"] = inputs["k"] = {{1, 1, 1, 2}, {1, 2}};
  inputs["v"] = {{1, 1, 1, 1}, {1}};
  inputs["g"] = {{1, 1, 1, 2}, {std::log(0.5), std::log(0.25)}};
  inputs["beta"] = {{1, 1, 1}, {0.5}};
  inputs["log_atk_scale"] = {{1}, {0}};
  inputs["A0"] = {{1, 1, 2}, {8, 8}};
  const Array moment = reference_forward(spec, inputs).at("A_final");
  EXPECT_DOUBLE_EQ(moment.data[0], 0.5 * 8 + 0.5 * 1);
  EXPECT_DOUBLE_EQ(moment.data[1], 0.25 * 8 + 0.5 * 4);
}

TEST(Identity, AsAPreconditionerChangesNothing) {
  std::mt19937_64 rng(6);
  Arrays inputs = pgdn_inputs(7, rng);
  for (const char* unused : {"g_atk", "beta_atk", "log_atk_scale"}) inputs.erase(unused);
  const Spec &identity = find_row("pgdn_identity").spec, &base = find_row("gdn").spec;
  const Arrays expected = reference_forward(base, inputs);
  expect_close(reference_forward(identity, inputs), expected, 0);
  const Arrays upstream = {{"do", random_array(expected.at("o").shape, rng, -1, 1)}};
  expect_close(reference_backward(identity, inputs, upstream), reference_backward(base, inputs, upstream), 0);
}

TEST(ReferenceBackward, EqualsFiniteDifferences) {
  std::mt19937_64 rng(2);
  Arrays inputs = pgdn_inputs(5, rng);
  const Spec& spec = find_row("pgdn").spec;
  Arrays upstream;
  for (const auto& [name, array] : reference_forward(spec, inputs)) {
    upstream["d" + name] = random_array(array.shape, rng, -1, 1);
  }
  const auto loss = [&] {
    double sum = 0;
    for (const auto& [name, array] : reference_forward(spec, inputs)) {
      for (std::size_t i = 0; i < array.data.size(); ++i) sum += array.data[i] * upstream.at("d" + name).data[i];
    }
    return sum;
  };
  const Arrays gradients = reference_backward(spec, inputs, upstream);
  for (auto& [name, array] : inputs) {
    for (std::size_t i = 0; i < array.data.size(); ++i) {
      const double at = array.data[i], step = 1e-5;
      array.data[i] = at + step;
      const double above = loss();
      array.data[i] = at - step;
      const double below = loss();
      array.data[i] = at;
      EXPECT_NEAR((above - below) / (2 * step), gradients.at(name).data[i], 1e-7) << name << " at " << i;
    }
  }
}

// RLS without P0 starts from I/ridge, and the gradient reaches the ridge.
TEST(Rls, StartsFromTheRidge) {
  std::mt19937_64 rng(3);
  const Spec& spec = find_row("rls").spec;
  Arrays inputs;
  for (const char* name : {"q", "k", "v"}) inputs[name] = random_array({1, 4, 1, 3}, rng, -1, 1);
  const Array weights = random_array({1, 4, 1, 3}, rng, -1, 1);
  const auto loss = [&](double ridge) {
    Arrays given = inputs;
    given["P0"] = {{1, 1, 3, 3}, {1 / ridge, 0, 0, 0, 1 / ridge, 0, 0, 0, 1 / ridge}};
    const Array o = reference_forward(spec, given).at("o");
    double sum = 0;
    for (std::size_t i = 0; i < o.data.size(); ++i) sum += o.data[i] * weights.data[i];
    return sum;
  };
  Arrays with_ridge = inputs;
  with_ridge["ridge"] = {{1}, {0.5}};
  const double gradient = reference_backward(spec, with_ridge, {{"do", weights}}).at("ridge").data[0];
  EXPECT_NEAR(gradient, (loss(0.5 + 1e-5) - loss(0.5 - 1e-5)) / 2e-5, 1e-7);
}

TEST(ZeroKeys, WriteNothingAndStayFinite) {
  for (const char* name : {"nlms", "efla", "pgdn_norm_inv", "pgdn_norm_alpha_beta", "pgdn_norm_one_plus"}) {
    std::mt19937_64 rng(4);
    const Spec& spec = find_row(name).spec;
    Arrays inputs = pgdn_inputs(3, rng);
    if (spec.key == Precond::kNone) {
      for (const char* unused : {"g_atk", "beta_atk", "log_atk_scale"}) inputs.erase(unused);
    }
    std::fill(inputs["k"].data.begin(), inputs["k"].data.end(), 0.0);
    std::fill(inputs["g"].data.begin(), inputs["g"].data.end(), 0.0);
    if (spec.decay == Decay::kNone) inputs.erase("g");
    if (spec.gain == Gain::kNlms) inputs.erase("beta");
    inputs["S0"] = random_array({1, 2, 4, 3}, rng, -1, 1);
    EXPECT_EQ(reference_forward(spec, inputs).at("S_final").data, inputs["S0"].data) << name;
    const Arrays upstream = {{"do", random_array({1, 3, 2, 3}, rng, -1, 1)}};
    for (const auto& [input, gradient] : reference_backward(spec, inputs, upstream)) {
      for (double x : gradient.data) EXPECT_TRUE(std::isfinite(x)) << name << " gradient of " << input;
    }
  }
}

// ---- wrong input

std::string error_of(const Spec& spec, const Arrays& inputs) {
  try {
    reference_forward(spec, inputs);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReferenceErrors, NameTheArgument) {
  std::mt19937_64 rng(5);
  const Spec& spec = find_row("pgdn").spec;
  const Arrays good = pgdn_inputs(4, rng);
  Arrays bad = good;
  bad.erase("beta");
  EXPECT_EQ(error_of(spec, bad), "[reference] beta: given nothing; expected shape [1,4,2], which this row needs");
  bad = good;
  bad["k"].shape = {1, 4, 2, 5};
  EXPECT_EQ(error_of(spec, bad), "[reference] k: given shape [1,4,2,5]; expected shape [1,4,2,4]");
  bad = good;
  bad["cu_seqlens"] = {{3}, {0, 3, 5}};
  EXPECT_EQ(error_of(spec, bad),
            "[reference] cu_seqlens: given [0,3,5]; expected offsets that never fall, from 0 to T = 4");
  bad = good;
  bad["ridge"] = {{2}, {1, 1}};
  EXPECT_EQ(error_of(spec, bad),
            "[reference] ridge: given shape [2]; expected nothing, because this row does not read it");
  EXPECT_THROW(reference_backward(spec, good, {{"dP_final", {{1}, {0}}}}), Error);
}

}  // namespace
}  // namespace deltanet::test
