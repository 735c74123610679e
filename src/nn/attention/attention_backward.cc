#include <algorithm>
#include <span>
#include <vector>

#include "base/arena.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "nn/attention/attention.h"
#include "nn/attention/attention_blocks.h"

// With P recomputed from the log-sum-exp, dP = dO V^T, delta_i = do_i.o_i and dS = P * (dP - delta):
//   dV = P^T dO,   dK = D^-1/2 dS^T Q,   dQ = D^-1/2 dS K.
// All score matrices are transposed, as in the forward pass: rows are keys.

namespace deltanet::nn {
namespace {

// The gradients of the keys and values of one head are summed over the queries of its whole group by one task.
struct Task {
  int64_t sequence, key_head, length;
};

// Queries of one head. Rows are [columns][Dp], transposed ones [Dp][kScoreStride].
struct HeadBlock {
  int64_t head;
  QueryBlock queries;
  float *q, *q_t, *d_o, *d_o_t, *dq;
  float *lse2, *delta;  // [columns]
};

HeadBlock take_head(const AttentionSizes& sizes, Arena& arena) {
  const int64_t rows = kQueryBlock * sizes.Dp, transposed = sizes.Dp * kScoreStride;
  HeadBlock made;
  for (float** matrix : {&made.q, &made.d_o, &made.dq}) *matrix = arena.take(rows);
  for (float** matrix : {&made.q_t, &made.d_o_t}) *matrix = arena.take(transposed);
  for (float** vector : {&made.lse2, &made.delta}) *vector = arena.take(kQueryBlock);
  return made;
}

// Padded queries are zero, and so is their dO: they add nothing to dK and dV.
void start_head(const Attention& in, const AttentionSizes& sizes, const AttentionGrads& grads,
                const QueryBlock& queries, int64_t head, HeadBlock& block) {
  const simd::Kernels& kernels = simd::kernels();
  const int64_t token = queries.token, column = head * sizes.D, n = queries.columns(), Dp = sizes.Dp;
  block.head = head;
  block.queries = queries;
  float* o = block.dq;  // until dQ is summed there
  pack_rows(grads.o + token * grads.ldo + column, grads.ldo, queries.count, sizes.D, o);
  pack_rows(grads.d_o + token * grads.lddo + column, grads.lddo, queries.count, sizes.D, block.d_o);
  pack_rows(in.q + token * in.ldq + column, in.ldq, queries.count, sizes.D, block.q);
  kernels.dot_rows(n, Dp, o, Dp, block.d_o, Dp, block.delta);
  kernels.transpose(n, Dp, block.d_o, Dp, block.d_o_t, kScoreStride);
  kernels.transpose(n, Dp, block.q, Dp, block.q_t, kScoreStride);
  std::fill_n(block.lse2, n, 0.0f);
  for (int64_t i = 0; i < queries.count; ++i) {
    block.lse2[i] = kLog2e * grads.lse[(token + i) * in.query_heads + head];
  }
  std::fill_n(block.dq, n * Dp, 0.0f);
}

// Keys, values and their gradients; p and ds [kKeyBlock][kScoreStride] are scratch.
struct KeyRows {
  float *k, *v, *dk, *dv, *p, *ds;
};

void add_block(const AttentionSizes& sizes, const KeyBlock& keys, const KeyRows& rows, const HeadBlock& block) {
  const simd::Kernels& kernels = simd::kernels();
  const int64_t key_rows = rows_seen(sizes, block.queries, keys);
  if (key_rows == 0) return;
  const int64_t columns = block.queries.columns(), Dp = sizes.Dp;
  const auto scores = [&](const float* a, const float* b_t, float* c) {  // C = A B^T
    kernels.gemm_rows(simd::Into::kSet, {.m = simd::padded(key_rows),
                                         .n = columns,
                                         .depth = sizes.D,
                                         .a = a,
                                         .lda = Dp,
                                         .b = b_t,
                                         .ldb = kScoreStride,
                                         .c = c,
                                         .ldc = kScoreStride});
  };
  const auto add_to_keys = [&](const float* a, const float* b, float* c) {  // C += A B
    kernels.gemm_rows(simd::Into::kAdd, {.m = simd::padded(key_rows),
                                         .n = Dp,
                                         .depth = block.queries.count,
                                         .a = a,
                                         .lda = kScoreStride,
                                         .b = b,
                                         .ldb = Dp,
                                         .c = c,
                                         .ldc = Dp});
  };
  scores(rows.k, block.q_t, rows.p);
  scores(rows.v, block.d_o_t, rows.ds);
  kernels.attention.softmax_grad(
      {score_block(sizes, block.queries, keys, key_rows, rows.p), block.lse2, block.delta, rows.ds});
  add_to_keys(rows.p, block.d_o, rows.dv);
  add_to_keys(rows.ds, block.q, rows.dk);
  kernels.gemm_cols(simd::Into::kAdd, {.m = columns,
                                       .n = Dp,
                                       .depth = key_rows,
                                       .a = rows.ds,
                                       .lda = kScoreStride,
                                       .b = rows.k,
                                       .ldb = Dp,
                                       .c = block.dq,
                                       .ldc = Dp});
}

void run_head(const Attention& in, const AttentionSizes& sizes, const AttentionGrads& grads, const Task& task) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  const int64_t Dp = sizes.Dp;
  const QueryBlock all{0, task.length, in.offsets[static_cast<std::size_t>(task.sequence)]};
  KeyRows rows;
  for (float** matrix : {&rows.k, &rows.v}) *matrix = arena.take(kKeyBlock * Dp);
  for (float** matrix : {&rows.p, &rows.ds}) *matrix = arena.take(kKeyBlock * kScoreStride);
  float* dk = arena.take_zeros(simd::padded(task.length) * Dp);
  float* dv = arena.take_zeros(simd::padded(task.length) * Dp);
  std::vector<HeadBlock> blocks;  // the memory of the first queries serves the others

  for (const QueryBlock& queries : split(all, sizes.queries_per_task)) {
    std::size_t count = 0;
    for (const QueryBlock& part : split(queries, kQueryBlock)) {
      for (int64_t h = 0; h < sizes.group; ++h, ++count) {
        if (count == blocks.size()) blocks.push_back(take_head(sizes, arena));
        start_head(in, sizes, grads, part, task.key_head * sizes.group + h, blocks[count]);
      }
    }
    const std::span<const HeadBlock> used(blocks.data(), count);
    for (const KeyBlock& keys : seen_keys(sizes, queries)) {
      KeySource{in, task.sequence, task.key_head}.pack(keys, rows.k, rows.v);
      rows.dk = dk + keys.first * Dp;
      rows.dv = dv + keys.first * Dp;
      for (const HeadBlock& block : used) add_block(sizes, keys, rows, block);
    }
    for (const HeadBlock& block : used) {
      unpack_rows(block.dq, block.queries.count, sizes.D, sizes.scale,
                  grads.dq + block.queries.token * grads.lddq + block.head * sizes.D, grads.lddq);
    }
  }
  const int64_t column = task.key_head * sizes.D;
  unpack_rows(dk, task.length, sizes.D, sizes.scale, grads.dk + all.token * grads.lddk + column, grads.lddk);
  unpack_rows(dv, task.length, sizes.D, 1.0f, grads.dv + all.token * grads.lddv + column, grads.lddv);
}

void check_grads(const Attention& in, const AttentionGrads& grads) {
  const std::string where = "[attention_backward] ";
  if (in.past) throw Error(where + "past: given; expected none, gradients do not reach the cache");
  struct Given {
    const char* name;
    const float* data;
    int64_t ld, heads;
  };
  for (const Given& given : {Given{"o", grads.o, grads.ldo, in.query_heads},
                             {"d_o", grads.d_o, grads.lddo, in.query_heads},
                             {"lse", grads.lse, in.query_heads * in.head_dim, in.query_heads},
                             {"dq", grads.dq, grads.lddq, in.query_heads},
                             {"dk", grads.dk, grads.lddk, in.key_heads},
                             {"dv", grads.dv, grads.lddv, in.key_heads}}) {
    if (in.offsets.back() > 0 && !given.data) throw Error(where + given.name + ": not given; expected all arrays");
    if (given.ld < given.heads * in.head_dim)
      throw Error(where + given.name + ": has rows " + std::to_string(given.ld) + " apart; expected at least " +
                  std::to_string(given.heads * in.head_dim));
  }
}

}  // namespace

void attention_backward(const Attention& in, const AttentionGrads& grads, int threads) {
  check_attention("attention_backward", in);
  check_grads(in, grads);
  const AttentionSizes sizes(in);
  std::vector<Task> tasks;
  for (std::size_t n = 0; n + 1 < in.offsets.size(); ++n) {
    for (int64_t head = 0; head < in.key_heads; ++head) {
      tasks.push_back({static_cast<int64_t>(n), head, in.offsets[n + 1] - in.offsets[n]});
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) { return a.length > b.length; });
  parallel_for(threads, static_cast<int64_t>(tasks.size()),
               [&](int64_t i) { run_head(in, sizes, grads, tasks[static_cast<std::size_t>(i)]); });
}

}  // namespace deltanet::nn
