#include "nn/attention/rope.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/arena.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "nn/packed.h"
#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

constexpr int64_t kSmallestPlan = 256;  // positions
// Later positions are computed each time: a table for a sequence without end would grow without end.
constexpr int64_t kLargestPlan = 1 << 15;
constexpr int64_t kTokensPerTask = 64;

// Consecutive tokens of one sequence.
struct Piece {
  int64_t token, count, position;
};

}  // namespace

Rope::Rope(int64_t head_dim, double theta) : half_(head_dim / 2), theta_(theta) {
  if (head_dim <= 0 || head_dim % 2 != 0)
    throw Error("[rope] head_dim: given " + std::to_string(head_dim) + "; expected an even number above 0");
  if (!(theta > 0)) throw Error("[rope] theta: given " + std::to_string(theta) + "; expected a number above 0");
}

// The angle itself needs float64: at position 10^5, a float32 angle would be wrong by 10^-2.
void Rope::fill(int64_t first, int64_t count, float* cosine, float* sine) const {
  for (int64_t i = 0; i < half_; ++i) {
    const double frequency = std::pow(theta_, -static_cast<double>(i) / static_cast<double>(half_));
    for (int64_t n = 0; n < count; ++n) {
      const double angle = static_cast<double>(first + n) * frequency;
      cosine[n * half_ + i] = static_cast<float>(std::cos(angle));
      sine[n * half_ + i] = static_cast<float>(std::sin(angle));
    }
  }
}

void Rope::plan(int64_t length) {
  length = std::min(length, kLargestPlan);
  if (length <= planned_) return;
  length = std::min(std::max({length, 2 * planned_, kSmallestPlan}), kLargestPlan);
  cosine_.resize(static_cast<std::size_t>(length * half_));
  sine_.resize(cosine_.size());
  fill(planned_, length - planned_, cosine_.data() + planned_ * half_, sine_.data() + planned_ * half_);
  planned_ = length;
}

void Rope::rotate(std::span<const int64_t> offsets, std::span<const int64_t> starts, int64_t heads, float* x,
                  int64_t ldx, bool inverse, int threads) {
  check_offsets("rope", offsets);
  const std::size_t sequences = offsets.size() - 1;
  if (!starts.empty() && starts.size() != sequences)
    throw Error("[rope] starts: given " + std::to_string(starts.size()) + " entries; expected " +
                std::to_string(sequences) + ", one for each sequence");
  thread_local std::vector<Piece> kept;  // decoding allocates nothing
  std::vector<Piece>& pieces = kept;     // that of this thread, for all of them
  pieces.clear();
  int64_t length = 0;
  for (std::size_t n = 0; n < sequences; ++n) {
    const int64_t start = starts.empty() ? 0 : starts[n];
    if (start < 0) throw Error("[rope] starts: given " + std::to_string(start) + "; expected a position from 0");
    for (int64_t token = offsets[n]; token < offsets[n + 1]; token += kTokensPerTask) {
      pieces.push_back({token, std::min(kTokensPerTask, offsets[n + 1] - token), start + token - offsets[n]});
      length = std::max(length, pieces.back().position + pieces.back().count);
    }
  }
  plan(length);
  parallel_for(threads, static_cast<int64_t>(pieces.size()), [&](int64_t i) {
    const Piece& piece = pieces[static_cast<std::size_t>(i)];
    simd::Rotation call{.rows = piece.count,
                        .heads = heads,
                        .half = half_,
                        .x = x + piece.token * ldx,
                        .ldx = ldx,
                        .cosine = cosine_.data() + piece.position * half_,
                        .sine = sine_.data() + piece.position * half_,
                        .inverse = inverse};
    const TaskArena arena;
    if (piece.position + piece.count > planned_) {
      float* cosine = arena.get().take(piece.count * half_);
      float* sine = arena.get().take(piece.count * half_);
      fill(piece.position, piece.count, cosine, sine);
      call.cosine = cosine;
      call.sine = sine;
    }
    simd::kernels().attention.rotate(call);
  });
}

void Rope::forward(std::span<const int64_t> offsets, std::span<const int64_t> starts, int64_t heads, float* x,
                   int64_t ldx, int threads) {
  rotate(offsets, starts, heads, x, ldx, false, threads);
}

void Rope::backward(std::span<const int64_t> offsets, std::span<const int64_t> starts, int64_t heads, float* dx,
                    int64_t lddx, int threads) {
  rotate(offsets, starts, heads, dx, lddx, true, threads);
}

}  // namespace deltanet::nn
