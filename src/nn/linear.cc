#include "nn/linear.h"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <string>

#include "base/arena.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "nn/matmul/matmul.h"
#include "simd/kernels.h"

namespace deltanet::nn {
namespace {

constexpr int64_t kItem = 1 << 15;       // elements that are worth handing to a thread
constexpr int64_t kFewBytes = 64 << 10;  // weights that are worth handing to a thread when decoding

int64_t bytes_of(WeightType type) {
  return type == WeightType::kFloat32 ? sizeof(float) : type == WeightType::kBfloat16 ? sizeof(uint16_t) : 1;
}

// Up to so many rows the kernels that read the weights once are faster than matmul; measured.
int64_t few_rows(WeightType type) {
  if (!matmul_is_fast(type)) return 32;  // matmul would take widened copies
  return type == WeightType::kInt8 ? 6 : type == WeightType::kBfloat16 ? 12 : 16;
}

// Kept by the thread, apart from the arena of tasks, which the callers may be using.
Arena& scratch() {
  thread_local Arena arena;
  return arena;
}

template <class T>
T* take(int64_t count) {
  constexpr int64_t kPerFloat = sizeof(float) / sizeof(T);
  return reinterpret_cast<T*>(scratch().take((count + kPerFloat - 1) / kPerFloat));
}

int64_t rows_of(int64_t elements, int64_t columns) {
  return std::max<int64_t>(1, elements / std::max<int64_t>(1, columns));
}

// A factor of a product in bfloat16: given so, or rounded a part at a time, at most part_sizes().narrowed elements or
// one row.
class NarrowFactor {
 public:
  NarrowFactor(const ConstFactor& source, int64_t rows, int64_t n) : source_(source), n_(n), rows_(rows) {
    if (source.narrow) return;
    rows_ = std::min(rows, rows_of(part_sizes().narrowed, n));
    copy_ = {take<uint16_t>(rows_ * narrow_ld(n)), narrow_ld(n)};
  }

  int64_t rows() const { return rows_; }  // of a part

  ConstFactor part(int64_t first, int64_t count, int threads) const {
    if (source_.narrow) return source_.from(first);
    copy_rows(count, n_, {source_.wide + first * source_.ld, source_.ld}, copy_, threads);
    return copy_;
  }

 private:
  ConstFactor source_;
  int64_t n_, rows_;
  Factor copy_;
};

// Weight rows [first, first + count) as floats.
void widen(const Weight& w, int64_t first, int64_t count, float* wide, int threads) {
  const simd::NarrowKernels& narrow = simd::kernels().narrow;
  parallel_blocks(threads, count, rows_of(kItem, w.in), [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t at = (first + o) * w.in;
      if (w.type == WeightType::kBfloat16) {
        simd::kernels().convert.bf16_to_f32(w.in, static_cast<const uint16_t*>(w.data) + at, wide + o * w.in);
      } else {
        narrow.from_int8(w.in, w.scale[first + o], static_cast<const int8_t*>(w.data) + at, wide + o * w.in);
      }
    }
  });
}

// What `linear` is given.
struct Call {
  ConstFactor x;
  int64_t rows;
  const Weight& w;
  const float* bias;
  float* y;
  int64_t ldy;
  bool add;
  int threads;
};

Matmul product_of(const Call& c) {
  return {.type = c.w.type,
          .m = c.rows,
          .n = c.w.out,
          .depth = c.w.in,
          .a = c.x.wide,
          .lda = c.x.ld,
          .b = c.w.data,
          .ldb = c.w.in,
          .b_transposed = true,
          .bias = c.bias,
          .c = c.y,
          .ldc = c.ldy,
          .add = c.add};
}

void linear_few(const Call& c) {
  const simd::MatvecKernels& matvec = simd::kernels().matvec;
  const auto kernel = c.w.type == WeightType::kFloat32    ? matvec.f32
                      : c.w.type == WeightType::kBfloat16 ? matvec.bf16
                                                          : matvec.int8;
  const float* packed = c.x.wide;
  if (c.rows > 1 || simd::padded(c.w.in) != c.w.in) {
    float* copy = take<float>(c.rows * simd::padded(c.w.in));
    matvec.pack(c.rows, c.w.in, c.x.wide, c.x.ld, copy);
    packed = copy;
  }
  const int64_t row_bytes = std::max<int64_t>(1, c.w.in * (bytes_of(c.w.type) + c.rows - 1));
  const int most = std::min(c.threads > 0 ? c.threads : default_threads(), kMaxShares);
  const int shares = static_cast<int>(std::clamp<int64_t>(c.w.out * row_bytes / kFewBytes, 1, most));
  // A share is kMatvecRows runs through memory.
  const int64_t run = (c.w.out + shares * simd::kMatvecRows - 1) / (shares * simd::kMatvecRows);
  const int64_t least = kFewBytes / (row_bytes * simd::kMatvecRows) + 1;
  parallel_shares(c.threads, shares, run, least, [&](int64_t share, int64_t begin, int64_t end) {
    const int64_t first = share * run * simd::kMatvecRows;
    kernel({.rows = c.rows,
            .in = c.w.in,
            .x = packed,
            .w = c.w.data,
            .scale = c.w.scale,
            .bias = c.bias,
            .begin = first + begin,
            .end = first + end,
            .apart = run,
            .out = c.w.out,
            .y = c.y,
            .ldy = c.ldy,
            .add = c.add});
  });
}

void linear_widened(const Call& c) {
  const int64_t block = std::min(c.w.out, rows_of(part_sizes().widened, c.w.in));
  float* wide = take<float>(block * c.w.in);
  for (int64_t o = 0; o < c.w.out; o += block) {
    Matmul part = product_of(c);
    part.type = WeightType::kFloat32;
    part.n = std::min(block, c.w.out - o);
    part.b = wide;
    part.bias = c.bias ? c.bias + o : nullptr;
    part.c = c.y + o;
    widen(c.w, o, part.n, wide, c.threads);
    matmul(part, c.threads);
  }
}

void linear_bf16(const Call& c) {
  const NarrowFactor x(c.x, c.rows, c.w.in);
  for (int64_t r = 0; r < c.rows; r += x.rows()) {
    Matmul part = product_of(c);
    part.m = std::min(x.rows(), c.rows - r);
    const ConstFactor rounded = x.part(r, part.m, c.threads);
    part.a = rounded.narrow;
    part.lda = rounded.ld;
    part.c = c.y + r * c.ldy;
    matmul(part, c.threads);
  }
}

void linear_int8(const Call& c) {
  const simd::NarrowKernels& narrow = simd::kernels().narrow;
  const int64_t in = c.w.in, out = c.w.out;
  const int64_t block = std::min(c.rows, rows_of(part_sizes().sums, std::max(in, out)));
  auto* levels = take<int8_t>(block * in);
  auto* scales = take<float>(block);
  auto* sums = take<int32_t>(block * out);
  for (int64_t r = 0; r < c.rows; r += block) {
    Matmul part = product_of(c);
    part.m = std::min(block, c.rows - r);
    part.a = levels;
    part.lda = in;
    part.bias = nullptr;
    part.c = sums;
    part.ldc = out;
    part.add = false;
    parallel_blocks(c.threads, part.m, rows_of(kItem, in), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        scales[i] = narrow.to_int8(in, c.x.wide + (r + i) * c.x.ld, levels + i * in);
    });
    matmul(part, c.threads);
    parallel_blocks(c.threads, part.m, rows_of(kItem, out), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        narrow.rescale(out, sums + i * out, scales[i], c.w.scale, c.bias, c.add, c.y + (r + i) * c.ldy);
      }
    });
  }
}

void require_differentiable(const char* operation, WeightType type) {
  if (type == WeightType::kInt8) {
    throw Error("[" + std::string(operation) + "] weight type: given int8; expected float32 or bfloat16");
  }
}

// A narrow factor is for products that round.
void require_type([[maybe_unused]] const ConstFactor& factor, [[maybe_unused]] WeightType type) {
  assert(!factor.narrow || rounds_activations(type));
}

// dx [rows,in] = dy W
Matmul input_product(const ConstFactor& dy, int64_t rows, const Weight& w, float* dx, int64_t lddx, bool add) {
  return {.type = w.type,
          .m = rows,
          .n = w.in,
          .depth = w.out,
          .a = dy.data(),
          .lda = dy.ld,
          .b = w.data,
          .ldb = w.in,
          .c = dx,
          .ldc = lddx,
          .add = add};
}

// dw [out,in] = dy^T x, or added to dw; both factors narrow or both wide
Matmul weight_product(const ConstFactor& dy, const ConstFactor& x, int64_t rows, float* dw, bool add, int64_t out,
                      int64_t in) {
  return {.type = dy.narrow ? WeightType::kBfloat16 : WeightType::kFloat32,
          .m = out,
          .n = in,
          .depth = rows,
          .a = dy.data(),
          .lda = dy.ld,
          .a_transposed = true,
          .b = x.data(),
          .ldb = x.ld,
          .c = dw,
          .ldc = in,
          .add = add};
}

void input_widened(Matmul product, const float* dy, const Weight& w, int threads) {
  const int64_t block = std::min(w.out, rows_of(part_sizes().widened, w.in));
  float* wide = take<float>(block * w.in);
  const bool add = product.add;
  product.type = WeightType::kFloat32;
  product.b = wide;
  for (int64_t o = 0; o < w.out; o += block) {
    product.depth = std::min(block, w.out - o);
    product.a = dy + o;
    product.add = add || o > 0;
    widen(w, o, product.depth, wide, threads);
    matmul(product, threads);
  }
}

// dbias (or null) += the column sums of dy
void add_bias_gradient(const ConstFactor& dy, int64_t rows, int64_t out, float* dbias, int threads) {
  if (!dbias) return;
  assert(dy.wide);
  constexpr int64_t kColumns = 64;
  parallel_blocks(threads, out, kColumns, [&](int64_t begin, int64_t end) {
    simd::kernels().narrow.add_column_sums(rows, end - begin, dy.wide + begin, dy.ld, dbias + begin);
  });
}

// Calls body(first, count, dy, x) for parts of the rows, with both factors narrow.
template <class Body>
void for_narrow_parts(const ConstFactor& dy, int64_t out, const ConstFactor& x, int64_t in, int64_t rows, int threads,
                      const Body& body) {
  const NarrowFactor dy_narrow(dy, rows, out), x_narrow(x, rows, in);
  const int64_t block = std::min(dy_narrow.rows(), x_narrow.rows());
  for (int64_t first = 0; first < rows; first += block) {
    const int64_t count = std::min(block, rows - first);
    body(first, count, dy_narrow.part(first, count, threads), x_narrow.part(first, count, threads));
  }
}

}  // namespace

PartSizes& part_sizes() {
  static PartSizes sizes;
  return sizes;
}

bool rounds_activations(WeightType type) { return type == WeightType::kBfloat16 && matmul_is_fast(type); }

Factor factor_for(WeightType type, int64_t rows, float* memory, int64_t n) {
  if (!rounds_activations(type) || rows <= few_rows(type)) return {memory, wide_ld(n)};
  return {reinterpret_cast<uint16_t*>(memory), narrow_ld(n)};
}

void linear(const ConstFactor& x, int64_t rows, const Weight& w, const float* bias, float* y, int64_t ldy, bool add,
            int threads) {
  if (rows == 0 || w.out == 0) return;
  scratch().reset();
  require_type(x, w.type);
  const Call call{x, rows, w, bias, y, ldy, add, threads};
  if (x.narrow) return linear_bf16(call);
  if (rows <= few_rows(w.type)) return linear_few(call);
  if (w.type == WeightType::kFloat32) return matmul(product_of(call), threads);
  if (!matmul_is_fast(w.type)) return linear_widened(call);
  return w.type == WeightType::kBfloat16 ? linear_bf16(call) : linear_int8(call);
}

void linear_backward_input(const ConstFactor& dy, int64_t rows, const Weight& w, float* dx, int64_t lddx, bool add,
                           int threads) {
  require_differentiable("linear_backward_input", w.type);
  if (rows == 0 || w.in == 0) return;
  scratch().reset();
  require_type(dy, w.type);
  const Matmul product = input_product(dy, rows, w, dx, lddx, add);
  if (w.type == WeightType::kFloat32) return matmul(product, threads);
  if (!matmul_is_fast(w.type)) return input_widened(product, dy.wide, w, threads);
  const NarrowFactor narrow(dy, rows, w.out);
  for (int64_t r = 0; r < rows; r += narrow.rows()) {
    const int64_t count = std::min(narrow.rows(), rows - r);
    matmul(input_product(narrow.part(r, count, threads), count, w, dx + r * lddx, lddx, add), threads);
  }
}

void linear_backward_weight(const ConstFactor& dy, const ConstFactor& x, int64_t rows, WeightType products, float* dw,
                            bool add, int64_t out, int64_t in, float* dbias, int threads) {
  require_differentiable("linear_backward_weight", products);
  if (rows == 0 && !add) std::fill_n(dw, out * in, 0.0f);
  if (rows == 0 || out == 0) return;
  scratch().reset();
  add_bias_gradient(dy, rows, out, dbias, threads);
  require_type(dy, products);
  require_type(x, products);
  if (!rounds_activations(products)) return matmul(weight_product(dy, x, rows, dw, add, out, in), threads);
  for_narrow_parts(dy, out, x, in, rows, threads,
                   [&](int64_t first, int64_t count, const auto& dy_part, const auto& x_part) {
                     matmul(weight_product(dy_part, x_part, count, dw, add || first > 0, out, in), threads);
                   });
}

void linear_backward(const ConstFactor& dy, const ConstFactor& x, int64_t rows, const Weight& w, float* dx,
                     int64_t lddx, float* dw, bool add, float* dbias, int threads) {
  if (!rounds_activations(w.type)) {
    linear_backward_weight(dy, x, rows, w.type, dw, add, w.out, w.in, dbias, threads);
    linear_backward_input(dy, rows, w, dx, lddx, false, threads);
    return;
  }
  if (rows == 0 && !add) std::fill_n(dw, w.out * w.in, 0.0f);
  if (rows == 0) return;
  scratch().reset();
  add_bias_gradient(dy, rows, w.out, dbias, threads);
  for_narrow_parts(dy, w.out, x, w.in, rows, threads,
                   [&](int64_t first, int64_t count, const auto& dy_part, const auto& x_part) {
                     matmul(weight_product(dy_part, x_part, count, dw, add || first > 0, w.out, w.in), threads);
                     matmul(input_product(dy_part, count, w, dx + first * lddx, lddx, false), threads);
                   });
}

}  // namespace deltanet::nn
