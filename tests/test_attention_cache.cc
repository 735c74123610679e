// The key-value cache: tokens that come one by one or a few at a time give what one pass gives, within constant memory
// where there is a window.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attention_samples.h"
#include "nn/attention/kv_cache.h"
#include "simd/kernels.h"

namespace deltanet::test {
namespace {

using nn::KvCache;

// Rows of all sequences by turns, `step` tokens of each at a time, through a cache.
AttentionResult run_in_steps(const AttentionSample& s, int64_t step, KvCache& cache) {
  AttentionResult out{std::vector<float>(s.d_o.size(), kNan),
                      std::vector<float>(static_cast<std::size_t>(s.rows() * s.shape.query_heads), kNan)};
  const auto columns = static_cast<std::size_t>(s.ld());
  for (int64_t t = 0; t < *std::max_element(s.shape.lengths.begin(), s.shape.lengths.end()); t += step) {
    AttentionSample part = s;
    part.matrix.clear();
    std::vector<int64_t> rows;
    part.offsets = {0};
    for (std::size_t n = 0; n + 1 < s.offsets.size(); ++n) {
      const int64_t begin = std::min(s.offsets[n] + t, s.offsets[n + 1]),
                    end = std::min(begin + step, s.offsets[n + 1]);
      for (int64_t row = begin; row < end; ++row) rows.push_back(row);
      part.offsets.push_back(static_cast<int64_t>(rows.size()));
    }
    for (const int64_t row : rows) {
      part.matrix.insert(part.matrix.end(), s.matrix.data() + row * s.ld(),
                         s.matrix.data() + row * s.ld() + static_cast<int64_t>(columns));
    }
    Attention in = part.call();
    in.past = &cache;
    const AttentionResult result = run(part, in);
    cache.append(part.offsets, in.k, in.ldk, in.v, in.ldv);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto from = static_cast<int64_t>(i);
      std::copy_n(result.o.data() + from * s.o_columns(), s.o_columns(), out.o.data() + rows[i] * s.o_columns());
      std::copy_n(result.lse.data() + from * s.shape.query_heads, s.shape.query_heads,
                  out.lse.data() + rows[i] * s.shape.query_heads);
    }
  }
  return out;
}

TEST_P(AttentionShapes, StepsThroughACacheEqualOnePass) {
  const AttentionSample s(GetParam(), 4);
  const auto sequences = static_cast<int64_t>(s.shape.lengths.size());
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    const AttentionResult whole = run(s, s.call());
    for (const int64_t step : {int64_t{1}, int64_t{3}, int64_t{50}}) {
      SCOPED_TRACE(target + ", steps of " + std::to_string(step));
      KvCache cache(sequences, s.shape.key_heads, s.shape.head_dim, s.shape.window);
      const AttentionResult steps = run_in_steps(s, step, cache);
      EXPECT_LE(difference(steps.o, whole.o), kForwardBound);
      EXPECT_LE(difference(steps.lse, whole.lse), kForwardBound);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, AttentionShapes, testing::ValuesIn(attention_cases()),
                         [](const auto& test) { return name_of(test.param); });

// What a cache keeps beyond the window is not seen: attention with windows of its own reads a longer memory.
TEST_F(AttentionTest, AWindowMayBeShorterThanWhatIsKept) {
  const AttentionSample s({{150}, 2, 1, 16, 40}, 9);
  const AttentionResult whole = run(s, s.call());
  for (const int64_t kept : {int64_t{40}, int64_t{41}, int64_t{100}, int64_t{0}}) {
    for (const int64_t step : {int64_t{1}, int64_t{7}}) {
      KvCache cache(1, 1, 16, kept);
      EXPECT_LE(difference(run_in_steps(s, step, cache).o, whole.o), kForwardBound) << kept << " kept";
    }
  }
}

TEST_F(AttentionTest, LargeScoresStayFiniteInSteps) {
  const AttentionSample s({{130}, 2, 1, 64, 0}, 5, 1000.0f);
  const AttentionReference expected = reference(s);
  for (const std::string& target : simd_targets()) {
    set_simd_target(target);
    KvCache cache(1, 1, 64, 0);
    EXPECT_LE(difference(run_in_steps(s, 1, cache).o, expected.o), 2e-3);
  }
}

TEST_F(AttentionTest, ARingKeepsItsMemoryAndACopyItsState) {
  const AttentionSample s({{400}, 2, 1, 16, 64}, 8);
  KvCache cache(1, 1, 16, 64);
  run_in_steps(s, 1, cache);
  EXPECT_EQ(cache.bytes(), 2 * 64 * 16 * 4);
  EXPECT_EQ(cache.sequences[0].length, 400);

  const std::vector<int64_t> one_token{0, 1};
  Attention in = s.call(one_token, 17);
  const KvCache copy = cache;
  in.past = &cache;
  const AttentionResult before = run(s, in);
  cache.append(in.offsets, in.k, in.ldk, in.v, in.ldv);
  in.past = &copy;
  EXPECT_TRUE(same_bits(run(s, in).o, before.o));
  in.past = &cache;
  EXPECT_FALSE(same_bits(run(s, in).o, before.o));
  cache.clear(0);
  const AttentionResult cleared = run(s, in), fresh = run(s, s.call(one_token, 17));
  EXPECT_TRUE(same_bits(cleared.o, fresh.o));
}

// Sizes from a file, which may say anything: what is taken lies within the memory that came with it.
TEST(KvCache, RestoresOnlySizesThatFitTogether) {
  constexpr int64_t kHeads = 2, kDim = 5;
  struct Sizes {
    int64_t length, capacity, k_rows, v_rows, more = 0;  // floats beyond whole rows
  };
  const auto takes = [&](int64_t window, const Sizes& sizes) {
    KvCache cache(2, kHeads, kDim, window);
    const auto floats = [&](int64_t rows) {
      return std::vector<float>(static_cast<std::size_t>(rows * kHeads * simd::padded(kDim) + sizes.more), 1.0f);
    };
    const bool taken = cache.restore(1, sizes.length, sizes.capacity, floats(sizes.k_rows), floats(sizes.v_rows));
    EXPECT_EQ(cache.sequences[1].length, taken ? sizes.length : 0) << "a sequence that was refused has changed";
    EXPECT_EQ(cache.sequences[0].length, 0);
    return taken;
  };
  for (const Sizes& sizes : {Sizes{0, 0, 0, 0}, {0, 64, 64, 64}, {40, 64, 64, 64}, {64, 64, 64, 64}}) {
    EXPECT_TRUE(takes(0, sizes)) << sizes.length << " of " << sizes.capacity;
    EXPECT_TRUE(takes(64, sizes)) << sizes.length << " of " << sizes.capacity << " in a window";
  }
  EXPECT_TRUE(takes(64, {65, 64, 64, 64}));  // the ring has gone round
  EXPECT_TRUE(takes(64, {1'000'000'007, 64, 64, 64}));

  for (const int64_t window : {int64_t{0}, int64_t{64}}) {
    EXPECT_FALSE(takes(window, {-1, 64, 64, 64}));
    EXPECT_FALSE(takes(window, {10, -64, 64, 64}));
    EXPECT_FALSE(takes(window, {10, 63, 64, 64}));  // another capacity than there is memory for
    EXPECT_FALSE(takes(window, {10, 65, 64, 64}));
    EXPECT_FALSE(takes(window, {10, 64, 64, 63}));  // fewer values than keys
    EXPECT_FALSE(takes(window, {10, 64, 64, 65}));
    EXPECT_FALSE(takes(window, {10, 63, 63, 63, 1}));  // part of a row
    EXPECT_FALSE(takes(window, {1, 0, 0, 0}));
    EXPECT_FALSE(takes(window, {(int64_t{1} << 48) + 1, 64, 64, 64}));
  }
  EXPECT_FALSE(takes(0, {65, 64, 64, 64}));   // nothing is thrown away without a window
  EXPECT_FALSE(takes(64, {10, 65, 65, 65}));  // more than the window
  EXPECT_FALSE(takes(64, {41, 40, 40, 40}));  // a ring that is smaller than the window does not go round
}

}  // namespace
}  // namespace deltanet::test
