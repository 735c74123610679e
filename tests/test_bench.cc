// What the benchmarks count and compare: operations, bytes, quantiles, promises. Times are not tested.

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bench/floor.h"
#include "bench/measure.h"
#include "bench/rows.h"
#include "bench/work.h"
#include "deltanet/error.h"
#include "simd/kernels.h"

namespace deltanet::bench {
namespace {

TEST(Quantile, IsThatOfTheSortedValues) {
  EXPECT_EQ(median({3, 1, 2}), 2);
  EXPECT_EQ(median({4, 1, 3, 2}), 2.5);
  EXPECT_EQ(quantile({5, 1, 2, 3, 4}, 0.1), 1.4);
  EXPECT_EQ(quantile({5, 1, 2, 3, 4}, 0.9), 4.6);
  EXPECT_EQ(quantile({7, 9}, 0), 7);
  EXPECT_EQ(quantile({7, 9}, 1), 9);
  EXPECT_EQ(median({8}), 8);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(Ratios, GoAsFarAsBoth) {
  using Values = std::vector<double>;
  EXPECT_EQ(ratios({6, 8, 1}, {2, 4}), (Values{3, 2}));
  EXPECT_EQ(sums({6, 8}, {2, 4, 9}), (Values{8, 12}));
}

TEST(Interleave, TurnsTheOrderRoundInEveryOtherRound) {
  std::string order;
  const auto candidate = [&](char name) { return [&order, name] { order += name; }; };
  const auto seconds = interleave({candidate('a'), candidate('b'), candidate('c')}, 3,
                                  [&](int round) { order += static_cast<char>('0' + round); });
  EXPECT_EQ(order, "cba0abc1cba2abc");  // the first three are not measured
  ASSERT_EQ(seconds.size(), 3u);
  for (const auto& one : seconds) {
    EXPECT_EQ(one.size(), 3u);
    for (const double each : one) EXPECT_GE(each, 0);
  }
}

TEST(Floor, PromisesAreKeptOrNot) {
  const auto floor = [](const char* relation, std::vector<double> values) {
    return Floor{"what", relation, 2, std::move(values)};
  };
  EXPECT_TRUE(floor("<=", {1, 2, 9}).holds() && floor(">=", {1, 2, 9}).holds() && floor("", {}).holds());
  EXPECT_FALSE(floor("<=", {1, 3, 9}).holds() || floor(">=", {0, 1, 9}).holds());
  EXPECT_FALSE(floor("<=", {}).holds() || floor(">=", {}).holds());  // nothing was measured
  EXPECT_TRUE(all_hold({floor("<=", {1}), floor(">=", {3})}));
  EXPECT_FALSE(all_hold({floor("<=", {1}), floor(">=", {1}), floor("<=", {1})}));
}

// The products of one chunk, one after the other.
double counted_flops(const Spec& spec, const Shape& s) {
  const bool erases = spec.solve != Solve::kOffline;
  const bool two_writes = spec.solve == Solve::kDplr && spec.tying != Tying::kBEqK;
  const auto group = static_cast<double>(s.U / s.H), K = static_cast<double>(s.K), V = static_cast<double>(s.V);
  const bool shared = spec.decay != Decay::kDiag && !two_writes;  // one Gram matrix for all value heads of a key head
  double flops = 0;
  for (int64_t i = 0; i < simd::kChunk; ++i) {
    for (int writes = 0; writes < (two_writes ? 2 : 1); ++writes) {
      for (int64_t j = 0; j <= i; ++j) {
        flops += (shared ? 1 : group) * 2 * K + group * 2 * V;                       // q_i.w_j, and what it reads
        if (erases && j < i) flops += (shared ? 1 : group) * 2 * K + group * 2 * V;  // e_i.w_j, and what it erases
      }
      flops += group * 2 * K * V;  // w_i into the state
    }
    flops += group * 2 * K * V * (erases ? 2 : 1);            // q_i and e_i read the state
    if (spec.key == Precond::kRls) flops += 2 * (2 * K * K);  // P k_i, and P less its outer product
  }
  return flops * static_cast<double>(s.H * s.B * s.T) / static_cast<double>(simd::kChunk);
}

TEST(Flops, AreThoseOfTheProducts) {
  const Shape shape{2, 4096, 3, 6, 64, 96, 2};
  for (const Row& row : rows()) {
    const auto forward = forward_flops(row.spec, shape), training = training_flops(row.spec, shape);
    const bool solves = row.spec.query == Precond::kMesa || row.spec.key == Precond::kBlock;  // as many as it takes
    EXPECT_EQ(forward.has_value(), !solves) << row.name;
    if (!forward) {
      EXPECT_FALSE(training) << row.name;
      continue;
    }
    EXPECT_NEAR(*forward, counted_flops(row.spec, shape), 1e-9 * *forward) << row.name;
    EXPECT_EQ(*training, 3 * *forward) << row.name;
  }
}

TEST(BenchRows, AreRowsOfTheTable) {
  for (const std::string& label : default_bench_labels()) {
    EXPECT_TRUE(bench_row(label, true).spec.l2norm);
    EXPECT_FALSE(bench_row(label, false).spec.l2norm);
  }
  EXPECT_THROW(bench_row("gnd", true), Error);
}

// The shape of a benchmark with more tokens than are drawn, so that they repeat.
constexpr Shape kShape{2, 700, 2, 2, 8, 12, 2};

TEST(Workspace, HandsOutWhatItSaysItTakes) {
  for (const bool with_backward : {false, true}) {
    std::vector<BenchRow> all;
    Workspace workspace(kShape);
    for (const char* label : {"gdn", "pgdn", "kda", "rls", "mesa", "dplr"}) {
      const BenchRow& row = all.emplace_back(bench_row(label, true));
      workspace.work(row.spec, with_backward);
      workspace.other_outputs(row.spec);
      EXPECT_EQ(workspace.bytes(), workspace_bytes(all, kShape, with_backward)) << label;
    }
  }
}

TEST(Workspace, RepeatsTheTokensOfEverySequence) {
  Workspace workspace(kShape);
  const Work work = workspace.work(bench_row("pgdn", false).spec, true);
  for (const ConstTensor& tensor : {work.inputs.q, work.inputs.v, work.inputs.g, work.upstream.o}) {
    const int64_t inner = tensor.size() / (kShape.B * kShape.T);
    for (int64_t b = 0; b < kShape.B; ++b) {
      const float* sequence = tensor.data + b * kShape.T * inner;
      for (int64_t i = 512 * inner; i < kShape.T * inner; ++i) ASSERT_EQ(sequence[i], sequence[i - 512 * inner]);
      EXPECT_NE(sequence[0], sequence[511 * inner]);
    }
    EXPECT_NE(tensor.data[0], tensor.data[kShape.T * inner]) << "both sequences are the same";
  }
}

TEST(Workspace, StartsFromNothingButRls) {
  Workspace workspace(kShape);
  for (const Row& row : rows()) {
    const Work work = workspace.work(row.spec, true);
    EXPECT_FALSE(work.inputs.S0 || work.inputs.A0 || work.inputs.G0) << row.name;
    EXPECT_EQ(static_cast<bool>(work.inputs.P0), row.spec.key == Precond::kRls) << row.name;
    EXPECT_NO_THROW(infer_shape(row.spec, work.inputs)) << row.name;
  }
}

TEST(Errors, AreSmallAndWouldShow) {
  for (const char* label : {"gdn", "pkda", "rls", "mesa", "dplr"}) {
    const BenchRow row = bench_row(label, true);
    for (const bool with_backward : {false, true}) {
      const double error = error_against_reference(row, kShape, with_backward, 1);
      EXPECT_GT(error, 1e-9) << label;  // float32 rounds
      EXPECT_LE(error, kReferenceTolerance) << label;
    }
    Workspace workspace(kShape);
    const Work work = workspace.work(row.spec, false);
    const double error = error_against_recurrent(row, workspace, work);
    EXPECT_GT(error, 1e-9) << label;
    EXPECT_LE(error, kRecurrentTolerance) << label;
    const_cast<float*>(work.inputs.v.data)[5] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(error_against_recurrent(row, workspace, work))) << label;
  }
}

}  // namespace
}  // namespace deltanet::bench
