#include "nn/embedding.h"

#include <bit>

namespace deltanet::nn {
namespace {

void gather(const Weight& table, int64_t id, float* y) {
  const int64_t n = table.in;
  switch (table.type) {
    case WeightType::kFloat32:
      std::copy_n(static_cast<const float*>(table.data) + id * n, n, y);
      return;
    case WeightType::kBfloat16: {
      const uint16_t* row = static_cast<const uint16_t*>(table.data) + id * n;
      for (int64_t i = 0; i < n; ++i) y[i] = std::bit_cast<float>(static_cast<uint32_t>(row[i]) << 16);
      return;
    }
    case WeightType::kInt8: {
      const int8_t* row = static_cast<const int8_t*>(table.data) + id * n;
      const float scale = table.scale[id];
      for (int64_t i = 0; i < n; ++i) y[i] = scale * static_cast<float>(row[i]);
      return;
    }
  }
}

}  // namespace

void embedding_forward(int64_t tokens, const int32_t* ids, const Weight& table, View y, int threads) {
  for_row_blocks(tokens, table.in, threads, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) gather(table, ids[t], y.row(t));
  });
}

void embedding_backward(int64_t tokens, int64_t D, const int32_t* ids, ConstView dy, float* dtable, int threads) {
  // Tokens repeat, so threads share the columns and not the tokens: nobody else writes to a thread's columns.
  constexpr int64_t kColumns = 256;
  parallel_for(threads, (D + kColumns - 1) / kColumns, [&](int64_t part) {
    const int64_t begin = part * kColumns, count = std::min(D - begin, kColumns);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* from = dy.row(t) + begin;
      float* to = dtable + ids[t] * D + begin;
      for (int64_t i = 0; i < count; ++i) to[i] += from[i];
    }
  });
}

}  // namespace deltanet::nn
