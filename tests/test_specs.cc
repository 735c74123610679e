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

// Every combination of the choices that decide which code runs.
std::vector<Spec> specs_with(Precond precond) {
  std::vector<Spec> specs;
  for (const Solve solve : {Solve::kOnline, Solve::kOffline, Solve::kDplr}) {
    for (const Decay decay : {Decay::kNone, Decay::kConst, Decay::kScalar, Decay::kDiag}) {
      for (const Gain gain : {Gain::kOne, Gain::kBeta, Gain::kLonghorn, Gain::kNlms, Gain::kEfla, Gain::kComba}) {
        for (const Norm norm : {Norm::kNone, Norm::kInv, Norm::kOnePlus, Norm::kAlphaBeta}) {
          for (const Tying tying : {Tying::kGeneral, Tying::kRwkv7, Tying::kAEqB, Tying::kBEqK}) {
            for (const auto& [erase, tie_gates] :
                 {std::pair{Erase::kKey, false}, {Erase::kKey, true}, {Erase::kFree, false}, {Erase::kFree, true}}) {
              Spec spec{.solve = solve, .decay = decay, .gain = gain, .precond = precond, .norm = norm};
              spec.tying = tying;
              spec.erase = erase;
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

class Specs : public testing::TestWithParam<Precond> {};

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

INSTANTIATE_TEST_SUITE_P(Preconditioners, Specs,
                         testing::Values(Precond::kNone, Precond::kIdentity, Precond::kAtkStable, Precond::kAtkUnstable,
                                         Precond::kAtkRaw, Precond::kRls, Precond::kAtq, Precond::kMesa,
                                         Precond::kFree),
                         [](const auto& test) {
                           Spec spec;
                           spec.precond = test.param;
                           for (const auto& [key, value] : options(spec)) {
                             if (key == "precond") return value;
                           }
                           return std::string();
                         });

}  // namespace
}  // namespace deltanet::test
