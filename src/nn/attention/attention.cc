#include "nn/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <tuple>
#include <vector>

#include "base/arena.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "nn/attention/attention_blocks.h"

namespace deltanet::nn {
namespace {

struct Outputs {
  float* o;
  int64_t ldo;
  float* lse;  // null: not wanted
};

// The query heads of one key head for some queries.
struct Task {
  int64_t sequence, key_head;
  QueryBlock queries;
};

// As many queries share a copy of their keys as leave every thread four tasks. Tasks that see the most keys come first.
void make_tasks(const Attention& in, const AttentionSizes& sizes, int threads, std::vector<Task>& tasks) {
  const int64_t wanted = 4 * (threads > 0 ? threads : default_threads());
  const int64_t blocks = in.offsets.back() * in.key_heads / (wanted * kQueryBlock);
  const int64_t together = std::min(sizes.queries_per_task, std::max<int64_t>(1, blocks) * kQueryBlock);
  tasks.clear();
  for (std::size_t n = 0; n + 1 < in.offsets.size(); ++n) {
    const auto sequence = static_cast<int64_t>(n);
    const int64_t past = KeySource{in, sequence, 0}.past();
    QueryBlock left{past, in.offsets[n + 1] - in.offsets[n], in.offsets[n]};
    while (left.count > 0) {
      const QueryBlock queries = first_part(left, together);
      for (int64_t head = 0; head < in.key_heads; ++head) tasks.push_back({sequence, head, queries});
      left = after(left, queries);
    }
  }
  std::sort(tasks.begin(), tasks.end(), [](const Task& a, const Task& b) {  // a stable sort would allocate
    return std::tuple(-a.queries.first, a.sequence, a.key_head) < std::tuple(-b.queries.first, b.sequence, b.key_head);
  });
}

void store_lse(const Attention& in, const AttentionSizes& sizes, int64_t token, int64_t head, float maximum, float sum,
               const Outputs& out) {
  if (out.lse) out.lse[token * in.query_heads + head] = kLn2 * (sizes.scale2 * maximum) + std::log(sum);
}

// ---- blocks

// Queries of one head, transposed, and what is accumulated over the key blocks.
struct HeadBlock {
  int64_t head;
  QueryBlock queries;
  float* q;           // [Dp][kScoreStride]: Q^T
  float* o;           // [Dp][kScoreStride]: O^T
  float* maximum;     // [columns]
  float* sum;         // [columns]
  float* correction;  // [columns]
};

HeadBlock start_head(const Attention& in, const AttentionSizes& sizes, const QueryBlock& queries, int64_t head,
                     float* rows, Arena& arena) {
  HeadBlock made;
  made.head = head;
  made.queries = queries;
  made.q = arena.take(sizes.Dp * kScoreStride);
  pack_rows(in.q + queries.token * in.ldq + head * sizes.D, in.ldq, queries.count, sizes.D, rows);
  simd::kernels().transpose(queries.columns(), sizes.Dp, rows, sizes.Dp, made.q, kScoreStride);
  made.o = arena.take_zeros(sizes.Dp * kScoreStride);
  made.maximum = arena.take(kQueryBlock);
  std::fill_n(made.maximum, kQueryBlock, simd::kNoScore);
  made.sum = arena.take_zeros(kQueryBlock);
  made.correction = arena.take(kQueryBlock);
  return made;
}

// S^T = K Q^T, P^T = softmax(S^T), O^T = O^T diag(correction) + V^T P^T.
void add_keys(const AttentionSizes& sizes, const KeyBlock& keys, const float* k, const float* v, float* scores,
              const HeadBlock& block) {
  const simd::Kernels& kernels = simd::kernels();
  const int64_t key_rows = rows_seen(sizes, block.queries, keys);
  if (key_rows == 0) return;
  kernels.gemm_rows(simd::Into::kSet, {.m = simd::padded(key_rows),
                                       .n = block.queries.columns(),
                                       .depth = sizes.D,
                                       .a = k,
                                       .lda = sizes.Dp,
                                       .b = block.q,
                                       .ldb = kScoreStride,
                                       .c = scores,
                                       .ldc = kScoreStride});
  kernels.attention.softmax(
      {score_block(sizes, block.queries, keys, key_rows, scores), block.maximum, block.sum, block.correction});
  kernels.gemm_cols(simd::Into::kColScale, {.m = sizes.Dp,
                                            .n = block.queries.columns(),
                                            .depth = key_rows,
                                            .a = v,
                                            .lda = sizes.Dp,
                                            .b = scores,
                                            .ldb = kScoreStride,
                                            .c = block.o,
                                            .ldc = kScoreStride,
                                            .scale = block.correction});
}

// o = O / sum and the log-sum-exp.
void finish_head(const Attention& in, const AttentionSizes& sizes, const HeadBlock& block, float* rows,
                 const Outputs& out) {
  simd::kernels().transpose(sizes.Dp, block.queries.columns(), block.o, kScoreStride, rows, sizes.Dp);
  for (int64_t i = 0; i < block.queries.count; ++i) {
    const int64_t token = block.queries.token + i;
    float* o = out.o + token * out.ldo + block.head * sizes.D;
    unpack_rows(rows + i * sizes.Dp, 1, sizes.D, 1.0f / block.sum[i], o, out.ldo);
    store_lse(in, sizes, token, block.head, block.maximum[i], block.sum[i], out);
  }
}

void run_blocks(const Attention& in, const AttentionSizes& sizes, const Task& task, const Outputs& out) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  float* k = arena.take(kKeyBlock * sizes.Dp);
  float* v = arena.take(kKeyBlock * sizes.Dp);
  float* scores = arena.take(kKeyBlock * kScoreStride);
  float* rows = arena.take(kQueryBlock * sizes.Dp);
  std::vector<HeadBlock> blocks;
  for (const QueryBlock& queries : split(task.queries, kQueryBlock)) {
    for (int64_t h = 0; h < sizes.group; ++h) {
      blocks.push_back(start_head(in, sizes, queries, task.key_head * sizes.group + h, rows, arena));
    }
  }
  for (const KeyBlock& keys : seen_keys(sizes, task.queries)) {
    KeySource{in, task.sequence, task.key_head}.pack(keys, k, v);
    for (const HeadBlock& block : blocks) add_keys(sizes, keys, k, v, scores, block);
  }
  for (const HeadBlock& block : blocks) finish_head(in, sizes, block, rows, out);
}

// ---- one token after a past

void run_token(const Attention& in, const AttentionSizes& sizes, const Task& task, const Outputs& out) {
  const TaskArena task_arena;
  Arena& arena = task_arena.get();
  const int64_t group = sizes.group, Dp = sizes.Dp, token = task.queries.token;
  simd::DecodeBlock block{};
  block.heads = group;
  block.n = Dp;
  block.scale2 = sizes.scale2;
  float* q = arena.take(simd::padded(group) * Dp);
  pack_rows(in.q + token * in.ldq + task.key_head * group * sizes.D, sizes.D, group, sizes.D, q);
  block.q = q;
  block.scores = arena.take(group * kKeyBlock);
  block.maximum = arena.take(group);
  std::fill_n(block.maximum, group, simd::kNoScore);
  block.sum = arena.take_zeros(group);
  block.o = arena.take_zeros(group * Dp);

  const KvCache::Sequence& cached = in.past->sequences[static_cast<std::size_t>(task.sequence)];
  for (int64_t position = std::max<int64_t>(0, cached.length + 1 - sizes.window); position < cached.length;) {
    const int64_t from = in.past->row(task.sequence, task.key_head, position);
    block.keys = std::min(kKeyBlock, in.past->contiguous(task.sequence, position));
    block.k = cached.k.data() + from;
    block.v = cached.v.data() + from;
    simd::kernels().attention.decode(block);
    position += block.keys;
  }

  // The token itself.
  float* k = arena.take(simd::kPad * Dp);
  float* v = arena.take(simd::kPad * Dp);
  KeySource{in, task.sequence, task.key_head}.pack({cached.length, 1, cached.length}, k, v);
  block.keys = 1;
  block.k = k;
  block.v = v;
  simd::kernels().attention.decode(block);

  for (int64_t h = 0; h < group; ++h) {
    const int64_t head = task.key_head * group + h;
    unpack_rows(block.o + h * Dp, 1, sizes.D, 1.0f / block.sum[h], out.o + token * out.ldo + head * sizes.D, out.ldo);
    store_lse(in, sizes, token, head, block.maximum[h], block.sum[h], out);
  }
}

bool is_one_token(const Attention& in, const Task& task) {
  const auto n = static_cast<std::size_t>(task.sequence);
  return in.past && in.past->sequences[n].length > 0 && in.offsets[n + 1] - in.offsets[n] == 1;
}

}  // namespace

void attention_forward(const Attention& in, float* o, int64_t ldo, float* lse, int threads) {
  check_attention("attention_forward", in);
  if (ldo < in.query_heads * in.head_dim)
    throw Error("[attention_forward] o: has rows " + std::to_string(ldo) + " apart; expected at least " +
                std::to_string(in.query_heads * in.head_dim));
  const AttentionSizes sizes(in);
  const Outputs out{o, ldo, lse};
  thread_local std::vector<Task> kept;  // decoding allocates nothing
  std::vector<Task>& tasks = kept;      // that of this thread, for all of them
  make_tasks(in, sizes, threads, tasks);
  parallel_for(threads, static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    const Task& task = tasks[static_cast<std::size_t>(i)];
    is_one_token(in, task) ? run_token(in, sizes, task, out) : run_blocks(in, sizes, task, out);
  });
}

}  // namespace deltanet::nn
