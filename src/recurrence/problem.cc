#include "recurrence/problem.h"

#include <algorithm>

namespace deltanet {
namespace {

template <class Float>
Float* element(const BasicTensor<Float>& t, int64_t i, int64_t j, int64_t k = 0) {
  return t.data + i * t.stride[0] + j * t.stride[1] + k * t.stride[2];
}

void copy_row(const float* source, int64_t source_step, int64_t width, float* target, int64_t target_step) {
  if (source_step == 1 && target_step == 1) {
    std::copy_n(source, width, target);
  } else {
    for (int64_t i = 0; i < width; ++i) target[i * target_step] = source[i * source_step];
  }
}

}  // namespace

Sequence sequence_at(const Inputs& in, const Shape& shape, int64_t n) {
  if (in.cu_seqlens.empty()) return {n, n, 0, shape.T};
  return {n, 0, in.cu_seqlens[n], in.cu_seqlens[n + 1]};
}

void load_tokens(const ConstTensor& source, const Span& span, int64_t head, int64_t width, float* rows, int64_t ld) {
  for (int64_t r = 0; r < span.fill; ++r, rows += ld) {
    if (r < span.tokens) {
      copy_row(element(source, span.batch, span.token + r, head), source.stride[3], width, rows, 1);
      std::fill(rows + width, rows + simd::padded(width), 0.0f);
    } else {
      std::fill_n(rows, simd::padded(width), 0.0f);
    }
  }
}

void prefetch_tokens(const ConstTensor& source, const Span& span, int64_t head, int64_t width,
                     simd::Prefetcher& prefetcher) {
  if (!source || source.rank != 4 || source.stride[3] != 1 || span.tokens <= 0) return;
  const float* row = first_token(source, span, head);
  for (int64_t r = 0; r < span.tokens; ++r) prefetcher.add(row + r * source.stride[1], width);
}

void store_tokens(const float* rows, int64_t ld, const Span& span, int64_t head, int64_t width, const Tensor& target) {
  for (int64_t r = 0; r < span.tokens; ++r, rows += ld) {
    copy_row(rows, 1, width, element(target, span.batch, span.token + r, head), target.stride[3]);
  }
}

void load_scalars(const ConstTensor& source, const Span& span, int64_t head, float missing, float* values) {
  for (int64_t r = 0; r < span.fill; ++r) {
    values[r] = r < span.tokens ? *element(source, span.batch, span.token + r, head) : missing;
  }
}

void store_scalars(const float* values, const Span& span, int64_t head, const Tensor& target) {
  for (int64_t r = 0; r < span.tokens; ++r) *element(target, span.batch, span.token + r, head) = values[r];
}

void load_state(const ConstTensor& source, int64_t n, int64_t head, int64_t rows, int64_t columns, float* state,
                int64_t ld) {
  const float* from = element(source, n, head);
  const int64_t row_step = source.rank == 4 ? source.stride[2] : 0;
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(from + r * row_step, source.stride[source.rank - 1], columns, state + r * ld, 1);
  }
}

void store_state(const float* state, int64_t ld, int64_t n, int64_t head, int64_t rows, int64_t columns,
                 const Tensor& target) {
  float* to = element(target, n, head);
  const int64_t row_step = target.rank == 4 ? target.stride[2] : 0;
  for (int64_t r = 0; r < rows; ++r) {
    copy_row(state + r * ld, 1, columns, to + r * row_step, target.stride[target.rank - 1]);
  }
}

void load_transposed(const ConstTensor& source, int64_t n, int64_t head, int64_t rows, int64_t columns, float* state,
                     int64_t ld) {
  const float* from = element(source, n, head);
  for (int64_t r = 0; r < rows; ++r) copy_row(from + r * source.stride[2], source.stride[3], columns, state + r, ld);
}

void store_transposed(const float* state, int64_t ld, int64_t n, int64_t head, int64_t rows, int64_t columns,
                      const Tensor& target) {
  float* to = element(target, n, head);
  for (int64_t r = 0; r < rows; ++r) copy_row(state + r, ld, columns, to + r * target.stride[2], target.stride[3]);
}

}  // namespace deltanet
