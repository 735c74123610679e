#include "attention_samples.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

namespace deltanet::test {
namespace {

template <class Expected>
double difference_of(const std::vector<float>& actual, const std::vector<Expected>& expected) {
  double error = 0, size = 1e-30;
  if (actual.size() != expected.size()) return std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (!std::isfinite(actual[i])) return std::numeric_limits<double>::infinity();
    error = std::max(error, std::abs(static_cast<double>(actual[i]) - static_cast<double>(expected[i])));
    size = std::max(size, std::abs(static_cast<double>(expected[i])));
  }
  return error / size;
}

}  // namespace

std::string name_of(const AttentionCase& c) {
  std::string name;
  for (const int64_t length : c.lengths) name += "T" + std::to_string(length) + "_";
  return name + "HQ" + std::to_string(c.query_heads) + "_HK" + std::to_string(c.key_heads) + "_D" +
         std::to_string(c.head_dim) + "_W" + std::to_string(c.window);
}

const std::vector<AttentionCase>& attention_cases() {
  static const std::vector<AttentionCase> cases = {
      {{1}, 1, 1, 16},
      {{5}, 2, 1, 60},
      {{63}, 4, 4, 64},
      {{65}, 4, 1, 16},
      {{130}, 2, 1, 128},
      {{300}, 1, 1, 16},
      {{600}, 8, 1, 4},
      {{130}, 2, 2, 1},
      {{65, 1, 130, 5}, 4, 2, 60},
      {{5, 0, 63}, 6, 2, 64},
      {{130}, 4, 2, 64, 1},
      {{130}, 4, 1, 60, 7},
      {{200, 3, 129}, 2, 2, 16, 64},
      {{300}, 2, 1, 32, 100},
      {{65}, 1, 1, 16, 1000},
      // Windows that end at, just before and just behind the last query of a block.
      {{200}, 2, 1, 16, 63},
      {{200}, 2, 1, 16, 65},
      {{260}, 1, 1, 16, 127},
      {{260}, 2, 1, 20, 128},
      {{260, 70}, 1, 1, 16, 191},
      {{260}, 1, 1, 16, 193},
      // More queries than share one copy of the keys, in the last of several such groups.
      {{700}, 2, 1, 8, 300},
  };
  return cases;
}

AttentionSample::AttentionSample(const AttentionCase& c, unsigned seed, float q_scale) : shape(c) {
  for (const int64_t length : c.lengths) offsets.push_back(offsets.back() + length);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  matrix.assign(static_cast<std::size_t>(rows() * ld()), kNan);
  for (int64_t row = 0; row < rows(); ++row) {
    for (int64_t i = 0; i < ld() - kGap; ++i) at(row, i) = normal(random) * (i < v_column() ? 1.0f : 0.5f);
    for (int64_t i = 0; i < c.query_heads * c.head_dim; ++i) at(row, i) *= q_scale;
  }
  d_o.resize(static_cast<std::size_t>(rows() * o_columns()));
  for (float& x : d_o) x = normal(random);
}

Attention AttentionSample::call(const std::vector<int64_t>& ends, int64_t begin) const {
  const float* first = matrix.data() + begin * ld();
  return {.query_heads = shape.query_heads,
          .key_heads = shape.key_heads,
          .head_dim = shape.head_dim,
          .window = shape.window,
          .offsets = ends,
          .q = first,
          .ldq = ld(),
          .k = first + o_columns(),
          .ldk = ld(),
          .v = first + v_column(),
          .ldv = ld()};
}

AttentionResult run(const AttentionSample& s, const Attention& in, int threads) {
  const auto rows = static_cast<std::size_t>(in.offsets.back());
  AttentionResult out{std::vector<float>(rows * static_cast<std::size_t>(s.o_columns()), kNan),
                      std::vector<float>(rows * static_cast<std::size_t>(s.shape.query_heads), kNan)};
  nn::attention_forward(in, out.o.data(), s.o_columns(), out.lse.data(), threads);
  return out;
}

std::vector<float> run_backward(const AttentionSample& s, const AttentionResult& forward, int threads) {
  std::vector<float> grads(s.matrix.size(), kNan);
  nn::attention_backward(s.call(),
                         {.o = forward.o.data(),
                          .ldo = s.o_columns(),
                          .lse = forward.lse.data(),
                          .d_o = s.d_o.data(),
                          .lddo = s.o_columns(),
                          .dq = grads.data(),
                          .lddq = s.ld(),
                          .dk = grads.data() + s.o_columns(),
                          .lddk = s.ld(),
                          .dv = grads.data() + s.v_column(),
                          .lddv = s.ld()},
                         threads);
  return grads;
}

// One query after the other, one key after the other.
AttentionReference reference(const AttentionSample& s) {
  const int64_t D = s.shape.head_dim, group = s.shape.query_heads / s.shape.key_heads, ld = s.ld();
  const double scale = 1.0 / std::sqrt(static_cast<double>(D));
  AttentionReference out{std::vector<double>(s.d_o.size()),
                         std::vector<double>(static_cast<std::size_t>(s.rows() * s.shape.query_heads)),
                         std::vector<double>(s.matrix.size())};
  double *o = out.o.data(), *grads = out.grads.data();
  for (std::size_t n = 0; n + 1 < s.offsets.size(); ++n) {
    for (int64_t i = s.offsets[n]; i < s.offsets[n + 1]; ++i) {
      for (int64_t h = 0; h < s.shape.query_heads; ++h) {
        const int64_t g = h / group;
        const int64_t first = s.shape.window > 0 ? std::max(s.offsets[n], i - s.shape.window + 1) : s.offsets[n];
        std::vector<double> p;
        for (int64_t j = first; j <= i; ++j) {
          double dot = 0;
          for (int64_t d = 0; d < D; ++d) dot += s.q(i, h, d) * s.k(j, g, d);
          p.push_back(dot * scale);
        }
        const double top = *std::max_element(p.begin(), p.end());
        double sum = 0;
        for (double& x : p) sum += x = std::exp(x - top);
        out.lse[static_cast<std::size_t>(i * s.shape.query_heads + h)] = top + std::log(sum);
        double* o_row = o + i * s.o_columns() + h * D;
        const float* d_o = s.d_o.data() + i * s.o_columns() + h * D;
        for (int64_t j = first; j <= i; ++j) {
          p[static_cast<std::size_t>(j - first)] /= sum;
          for (int64_t d = 0; d < D; ++d) o_row[d] += p[static_cast<std::size_t>(j - first)] * s.v(j, g, d);
        }
        for (int64_t j = first; j <= i; ++j) {
          const double weight = p[static_cast<std::size_t>(j - first)];
          double ds = 0;
          for (int64_t d = 0; d < D; ++d) ds += weight * d_o[d] * (s.v(j, g, d) - o_row[d]);
          for (int64_t d = 0; d < D; ++d) {
            grads[i * ld + h * D + d] += scale * ds * s.k(j, g, d);
            grads[j * ld + s.o_columns() + g * D + d] += scale * ds * s.q(i, h, d);
            grads[j * ld + s.v_column() + g * D + d] += weight * d_o[d];
          }
        }
      }
    }
  }
  return out;
}

double difference(const std::vector<float>& actual, const std::vector<double>& expected) {
  return difference_of(actual, expected);
}
double difference(const std::vector<float>& actual, const std::vector<float>& expected) {
  return difference_of(actual, expected);
}

bool same_bits(const float* x, const float* y, int64_t count) {
  return count == 0 || std::memcmp(x, y, static_cast<std::size_t>(count) * sizeof(float)) == 0;
}
bool same_bits(const std::vector<float>& x, const std::vector<float>& y) {
  return x.size() == y.size() && same_bits(x.data(), y.data(), static_cast<int64_t>(x.size()));
}

}  // namespace deltanet::test
