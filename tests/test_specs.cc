// The choices of a spec are independent, so every combination that validate() takes works, also those that have no row
// of their own in the table: three forms that agree, and the reference's gradients.

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "bounds.h"
#include "deltanet/error.h"
#include "deltanet/recurrence.h"
#include "problems.h"
#include "recurrence/arrays.h"
#include "recurrence/preconditioners.h"

namespace deltanet::test {
namespace {

bool is_valid(const Spec& spec) {
  try {
    validate(spec);
    return true;
  } catch (const Error&) {
    return false;
  }
}

using Sides = std::pair<Precond, Precond>;  // of the key, of the query

// Every combination of the choices that decide which code runs. What the gain does is independent of the query, so that
// it varies over some gains only where both sides have a preconditioner.
std::vector<Spec> specs_with(const Sides& sides) {
  const std::vector<Gain> all = {Gain::kOne,  Gain::kBeta, Gain::kLonghorn, Gain::kNlms,
                                 Gain::kEfla, Gain::kInv,  Gain::kOnePlus,  Gain::kAlphaBeta};
  const bool both = sides.first != Precond::kNone && sides.second != Precond::kNone;
  std::vector<Spec> specs;
  for (const Solve solve : {Solve::kOnline, Solve::kOffline, Solve::kDplr}) {
    for (const Decay decay : {Decay::kNone, Decay::kConst, Decay::kScalar, Decay::kDiag}) {
      for (const Gain gain : both ? std::vector<Gain>{Gain::kOne, Gain::kBeta, Gain::kLonghorn} : all) {
        for (const Erase erase : {Erase::kKey, Erase::kFree, Erase::kOwnGain}) {
          for (const Tying tying : {Tying::kGeneral, Tying::kRwkv7, Tying::kAEqB, Tying::kBEqK}) {
            for (const bool tie_gates : {false, true}) {
              Spec spec{.solve = solve, .decay = decay, .gain = gain, .erase = erase};
              spec.key = sides.first;
              spec.query = sides.second;
              spec.tying = tying;
              spec.tie_gates = tie_gates;
              spec.l2norm = true;
              if (is_valid(spec)) specs.push_back(spec);
            }
          }
        }
      }
    }
  }
  return specs;
}

std::vector<Sides> all_sides() {
  std::vector<Sides> sides;
  for (const Preconditioner& key : preconditioners()) {
    for (const Preconditioner& query : preconditioners()) {
      const bool two_grams = key.id == Precond::kBlock && query.id == Precond::kMesa;  // refused: G0 is one
      if (key.on_key && query.on_query && !two_grams) sides.emplace_back(key.id, query.id);
    }
  }
  return sides;
}

class Specs : public testing::TestWithParam<Sides> {};

// A chunk that is full and one that is not, sequences of one token and of none, and two value heads for each key head
// where the spec has that.
Problem problem_with(const Spec& spec) {
  Problem problem;
  problem.row = "spec";
  problem.spec = spec;
  problem.shape = {1, 44, 2, allows_grouped_heads(spec) ? 4 : 2, 5, 3, 4};
  problem.cu_seqlens = {0, 38, 38, 39, 44};
  problem.seed = 5;
  return problem;
}

TEST_P(Specs, HaveFormsThatAgreeAndTheReferencesGradients) {
  const std::vector<Spec> specs = specs_with(GetParam());
  ASSERT_FALSE(specs.empty());
  for (const Spec& spec : specs) {
    const Problem problem = problem_with(spec);
    const Arrays inputs = problem.inputs(), upstream = problem.upstream();
    const Expected outputs = expected_outputs(spec, inputs);
    for (const Mode mode : {Mode::kChunk, Mode::kRecurrent}) {
      const Options options{.mode = mode, .threads = 1};
      EXPECT_EQ(first_difference(forward_arrays(spec, inputs, options), outputs), "") << problem;
    }
    const Expected gradients = expected_gradients(spec, inputs, upstream);
    EXPECT_EQ(first_difference(backward_arrays(spec, inputs, upstream, {.threads = 1}), gradients), "") << problem;
  }
}

INSTANTIATE_TEST_SUITE_P(Preconditioners, Specs, testing::ValuesIn(all_sides()), [](const auto& test) {
  return std::string(definition(test.param.first).name) + "_" + std::string(definition(test.param.second).name);
});

}  // namespace
}  // namespace deltanet::test
