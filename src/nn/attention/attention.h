#pragma once

#include <cstdint>
#include <span>

#include "nn/attention/kv_cache.h"

namespace deltanet::nn {

// Causal softmax attention over packed sequences, q and o [T, HQ, D], k and v [T, HK, D], lse [T, HQ]:
//   o_i = sum_j p_ij v_j,   p_ij = exp(D^-1/2 q_i.k_j - lse_i),   j <= i, and i - window < j with a window.
// HQ is a multiple of HK; HQ/HK neighboring query heads share one key head. RoPE is the caller's (rope.h).
struct Attention {
  int64_t query_heads = 0, key_heads = 0, head_dim = 0;
  int64_t window = 0;                // 0: all earlier tokens
  std::span<const int64_t> offsets;  // [N+1]: sequence n is the tokens [offsets[n], offsets[n+1])
  // Rows of heads * head_dim floats with any distance: slices of one projection will do.
  const float* q = nullptr;
  int64_t ldq = 0;
  const float* k = nullptr;
  int64_t ldk = 0;
  const float* v = nullptr;
  int64_t ldv = 0;
  // What the N sequences saw before; null: nothing. The caller appends k and v afterwards.
  const KvCache* past = nullptr;
};

// Sets o, and lse unless null. A token's bits depend on the tokens it sees only: not on later tokens (of finite
// values), other sequences or the number of threads. One token after a past runs as one pass over the cache, more run
// in blocks.
void attention_forward(const Attention& in, float* o, int64_t ldo, float* lse, int threads);

struct AttentionGrads {
  const float* o = nullptr;  // from the forward pass
  int64_t ldo = 0;
  const float* lse = nullptr;
  const float* d_o = nullptr;
  int64_t lddo = 0;
  // Set, not added to.
  float* dq = nullptr;
  int64_t lddq = 0;
  float* dk = nullptr;
  int64_t lddk = 0;
  float* dv = nullptr;
  int64_t lddv = 0;
};

// Gradients of q, k and v; without a past. The probabilities are computed again, block by block.
void attention_backward(const Attention& in, const AttentionGrads& grads, int threads);

}  // namespace deltanet::nn
