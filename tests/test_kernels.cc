// The kernels of the recurrence one by one, on every SIMD target: against sums in double, for sizes that use every
// width of their blocks. What lies between the rows is NaN, which shows where it is read, and must stay.

#include "simd/kernels.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "base/arena.h"
#include "recurrence/squash.h"

namespace deltanet::simd {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
// Rounding of a product and its sum, of 6e-8 each for every term of the sizes below, in units of the sum of sizes.
constexpr double kSumBound = 1e-6;

// Rows on 64-byte boundaries with a gap of NaN behind each.
class Rows {
 public:
  Rows(int64_t rows, int64_t n, float value, int64_t gap = kPad)
      : rows_(rows), n_(n), ld_(padded(n) + gap), data_(arena_.take(rows * ld_)) {
    std::fill_n(data_, rows * ld_, kNan);
    for (int64_t i = 0; i < rows; ++i) std::fill_n(data_ + i * ld_, n, value);
  }
  Rows(int64_t rows, int64_t n, const std::function<float()>& draw, int64_t gap = kPad) : Rows(rows, n, 0.0f, gap) {
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t j = 0; j < n; ++j) at(i, j) = draw();
    }
  }
  Rows(const Rows& other) : Rows(other.rows_, other.n_, 0.0f, other.ld_ - padded(other.n_)) {
    std::copy_n(other.data_, rows_ * ld_, data_);
  }
  Rows& operator=(const Rows&) = delete;

  float& at(int64_t i, int64_t j) { return data_[i * ld_ + j]; }
  double at(int64_t i, int64_t j) const { return data_[i * ld_ + j]; }
  float* data() { return data_; }
  const float* data() const { return data_; }
  int64_t ld() const { return ld_; }
  bool gaps_are_untouched() const {
    for (int64_t i = 0; i < rows_; ++i) {
      for (int64_t j = n_; j < ld_; ++j) {
        if (!std::isnan(data_[i * ld_ + j])) return false;
      }
    }
    return true;
  }

 private:
  Arena arena_;
  int64_t rows_, n_, ld_;
  float* data_;
};

class KernelTargets : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(select_target(GetParam())); }
  void TearDown() override { select_target(""); }

  std::function<float()> draw() {
    return [this] { return normal_(rng_); };
  }
  float uniform(float low, float high) { return std::uniform_real_distribution<float>(low, high)(rng_); }

  std::mt19937 rng_{7};
  std::normal_distribution<float> normal_;
};

TEST_P(KernelTargets, Products) {
  for (const Into into :
       {Into::kSet, Into::kAdd, Into::kRowScale, Into::kColScale, Into::kSetScaled, Into::kSubScaled}) {
    for (const bool by_columns : {false, true}) {
      for (const int64_t m : {16, 48}) {
        for (const int64_t n : {16, 32, 48, 112}) {
          for (const int64_t depth : {1, 5, 33}) {
            SCOPED_TRACE("into " + std::to_string(static_cast<int>(into)) + (by_columns ? " columns " : " rows ") +
                         std::to_string(m) + " " + std::to_string(n) + " " + std::to_string(depth));
            const Rows a = by_columns ? Rows(depth, m, draw()) : Rows(m, depth, draw());
            const Rows b(depth, n, draw()), before(m, n, draw()), scale(1, into == Into::kColScale ? n : m, draw());
            for (const bool from_elsewhere : {false, true}) {
              Rows c = from_elsewhere ? Rows(m, n, 7.0f) : before;
              (by_columns ? kernels().gemm_cols : kernels().gemm_rows)(
                  into, {m, n, depth, a.data(), a.ld(), b.data(), b.ld(), c.data(), c.ld(), scale.data(),
                         from_elsewhere ? before.data() : nullptr});
              EXPECT_TRUE(c.gaps_are_untouched());
              for (int64_t i = 0; i < m; ++i) {
                for (int64_t j = 0; j < n; ++j) {
                  double sum = 0, size = 0;
                  for (int64_t d = 0; d < depth; ++d) {
                    const double term = (by_columns ? a.at(d, i) : a.at(i, d)) * b.at(d, j);
                    sum += term;
                    size += std::fabs(term);
                  }
                  const double old = before.at(i, j), s = scale.at(0, into == Into::kColScale ? j : i);
                  const double want = into == Into::kSet         ? sum
                                      : into == Into::kAdd       ? old + sum
                                      : into == Into::kSetScaled ? s * sum
                                      : into == Into::kSubScaled ? old - s * sum
                                                                 : s * old + sum;
                  const double bound = kSumBound * (1 + std::fabs(s)) * (size + std::fabs(old));
                  ASSERT_NEAR(static_cast<const Rows&>(c).at(i, j), want, bound) << i << " " << j;
                }
              }
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelTargets, GramsBelowTheDiagonal) {
  for (const int64_t m : {kChunk, 2 * kChunk}) {
    for (const int64_t depth : {1, 17}) {
      const Rows a(m, depth, draw()), b(depth, kChunk, draw());
      Rows c(m, kChunk, kNan);
      kernels().gram({m, kChunk, depth, a.data(), a.ld(), b.data(), b.ld(), c.data(), c.ld()});
      for (int64_t i = 0; i < m; ++i) {
        for (int64_t j = 0; j <= i % kChunk; ++j) {
          double sum = 0, size = 0;
          for (int64_t d = 0; d < depth; ++d)
            sum += a.at(i, d) * b.at(d, j), size += std::fabs(a.at(i, d) * b.at(d, j));
          ASSERT_NEAR(c.at(i, j), sum, kSumBound * size) << i << " " << j;
        }
      }
    }
  }
}

// Only the named triangle is read: the rest is NaN.
TEST_P(KernelTargets, Triangles) {
  using Product = void (*)(const float*, int64_t, int64_t, const float*, int64_t, float*, int64_t);
  struct Case {
    Product product;
    bool upper, strict;
    double sign;
  };
  const Kernels& k = kernels();
  for (const int64_t n : {16, 32, 48, 64, 112, 144}) {
    for (const Case& one : {Case{k.add_lower, false, false, 1},
                            {k.add_upper, true, false, 1},
                            {k.sub_strict_lower, false, true, -1},
                            {k.sub_strict_upper, true, true, -1}}) {
      Rows L(kChunk, kChunk, kNan);
      for (int64_t i = 0; i < kChunk; ++i) {
        for (int64_t j = 0; j < i + (one.strict ? 0 : 1); ++j) L.at(i, j) = draw()();
      }
      const Rows x(kChunk, n, draw()), before(kChunk, n, draw());
      Rows y = before;
      one.product(L.data(), L.ld(), n, x.data(), x.ld(), y.data(), y.ld());
      EXPECT_TRUE(y.gaps_are_untouched());
      for (int64_t i = 0; i < kChunk; ++i) {
        for (int64_t column = 0; column < n; ++column) {
          double want = before.at(i, column), size = std::fabs(want);
          for (int64_t j = 0; j < kChunk; ++j) {
            const int64_t row = one.upper ? j : i, col = one.upper ? i : j;  // of L
            if (col > row || (one.strict && col == row)) continue;
            const double term = static_cast<const Rows&>(L).at(row, col) * x.at(j, column);
            want += one.sign * term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(static_cast<const Rows&>(y).at(i, column), want, kSumBound * size) << n << " " << i;
        }
      }
    }
    for (const bool upper : {false, true}) {
      Rows L(kChunk, kChunk, kNan);
      for (int64_t i = 0; i < kChunk; ++i) {
        for (int64_t j = 0; j < i; ++j) L.at(i, j) = 0.3f * draw()();
      }
      const Rows before(kChunk, n, draw());
      Rows x = before;
      (upper ? k.solve_upper : k.solve_lower)(L.data(), L.ld(), n, x.data(), x.ld());
      EXPECT_TRUE(x.gaps_are_untouched());
      const Rows& solved = x;
      for (int64_t i = 0; i < kChunk; ++i) {
        for (int64_t column = 0; column < n; ++column) {
          double product = solved.at(i, column), size = std::fabs(product);
          for (int64_t j = 0; j < kChunk; ++j) {
            if (upper ? j <= i : j >= i) continue;
            const double entry = static_cast<const Rows&>(L).at(upper ? j : i, upper ? i : j);
            product += entry * solved.at(j, column);
            size += std::fabs(entry * solved.at(j, column));
          }
          ASSERT_NEAR(product, before.at(i, column), kSumBound * size) << n << " " << i;
        }
      }
    }
  }
}

TEST_P(KernelTargets, Transpositions) {
  for (const int64_t rows : {8, 16, 40}) {
    for (const int64_t n : {4, 12, 16, 36}) {
      Rows x(rows, n + 1, draw());
      Rows y(n, rows, kNan);
      kernels().transpose(rows, n, x.data() + 1, x.ld(), y.data(), y.ld());  // x need not be aligned
      EXPECT_TRUE(y.gaps_are_untouched());
      for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < n; ++j) ASSERT_EQ(y.at(j, i), x.at(i, j + 1));
      }
    }
  }
}

// From 88 down to where a float is 0; what would be subnormal is 0.
TEST_P(KernelTargets, Exponentials) {
  constexpr int64_t kCount = 1 << 16;
  constexpr double kTwoUnits = 0x1p-22;
  constexpr float kZeroBelow = -87.3f;
  Rows x(1, kCount, 0.0f), y(1, kCount, kNan);
  for (int64_t i = 0; i < kCount; ++i) x.at(0, i) = 88.0f - 192.0f * static_cast<float>(i) / kCount;
  kernels().exp_rows(kCount, x.data(), y.data());
  for (int64_t i = 0; i < kCount; ++i) {
    const double want = std::exp(static_cast<double>(x.at(0, i)));
    ASSERT_NEAR(y.at(0, i), x.at(0, i) < kZeroBelow ? 0 : want, kTwoUnits * want) << x.at(0, i);
  }
  const float special[] = {0.0f,   -0.0f, -std::numeric_limits<float>::infinity(),
                           -1e30f, 89.0f, std::numeric_limits<float>::infinity(),
                           kNan};
  const float expected[] = {
      1, 1, 0, 0, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::infinity(), kNan};
  for (std::size_t i = 0; i < std::size(special); ++i) {
    Rows one(1, 16, special[i]);
    kernels().exp_rows(16, one.data(), one.data());
    for (int64_t j = 0; j < 16; ++j) {
      EXPECT_TRUE(std::isnan(expected[i]) ? std::isnan(one.at(0, j)) : one.at(0, j) == expected[i]) << special[i];
    }
  }
}

// The decay over all rows keeps its digits however slow it is.
TEST_P(KernelTargets, Decays) {
  for (const int64_t rows : {1, 7, 16}) {
    for (const float strength : {1e-8f, 1e-4f, 0.05f, 1.0f, 30.0f}) {
      const Rows logs(
          rows, 48, [&] { return -strength * uniform(0, 1); }, 0);
      Rows decays = logs, total(1, 48, kNan);
      kernels().decay_rows(rows, 48, decays.data(), total.data());
      EXPECT_TRUE(total.gaps_are_untouched());
      for (int64_t j = 0; j < 48; ++j) {
        double sum = 0;
        for (int64_t i = 0; i < rows; ++i) {
          sum += logs.at(i, j);
          const double want = std::exp(logs.at(i, j));
          ASSERT_NEAR(decays.at(i, j), want, 0x1p-22 * want);
        }
        // A gentle one comes from the sum, a strong one from the product of all rows.
        const double want = std::exp(sum);
        ASSERT_NEAR(total.at(0, j), want, (sum > -1 ? 2.0 : static_cast<double>(rows)) * 0x1p-22 * want + 0x1p-126);
      }
    }
  }
}

TEST_P(KernelTargets, RowsAndColumns) {
  const Kernels& k = kernels();
  for (const int64_t n : {16, 48, 80, 208}) {
    constexpr int64_t kRows = 5;
    const Rows x(kRows, n, draw()), y(kRows, n, draw()), s(1, kRows, draw());
    Rows scaled(kRows, n, kNan), added = y, dots(1, kRows, kNan), columns(1, n, draw());
    const Rows columns_before = columns;
    k.scale_rows(kRows, n, s.data(), x.data(), x.ld(), scaled.data(), scaled.ld());
    k.add_scaled_rows(kRows, n, s.data(), x.data(), x.ld(), added.data(), added.ld());
    k.dot_rows(kRows, n, x.data(), x.ld(), y.data(), y.ld(), dots.data());
    k.dot_cols(kRows, n, x.data(), x.ld(), y.data(), y.ld(), true, columns.data());
    Rows columns_set(1, n, kNan);
    k.dot_cols(kRows, n, x.data(), x.ld(), y.data(), y.ld(), false, columns_set.data());
    EXPECT_TRUE(scaled.gaps_are_untouched() && added.gaps_are_untouched() && columns.gaps_are_untouched());
    for (int64_t i = 0; i < kRows; ++i) {
      double dot = 0, size = 0;
      for (int64_t j = 0; j < n; ++j) {
        const double product = s.at(0, i) * x.at(i, j);
        EXPECT_NEAR(scaled.at(i, j), product, 1e-7 * std::fabs(product));
        EXPECT_NEAR(added.at(i, j), y.at(i, j) + product, 1e-7 * (std::fabs(y.at(i, j)) + std::fabs(product)));
        dot += x.at(i, j) * y.at(i, j);
        size += std::fabs(x.at(i, j) * y.at(i, j));
      }
      EXPECT_NEAR(dots.at(0, i), dot, kSumBound * size) << n;
    }
    for (int64_t j = 0; j < n; ++j) {
      double dot = 0, size = 1;
      for (int64_t i = 0; i < kRows; ++i) dot += x.at(i, j) * y.at(i, j), size += std::fabs(x.at(i, j) * y.at(i, j));
      EXPECT_NEAR(columns_set.at(0, j), dot, kSumBound * size) << n;
      EXPECT_NEAR(columns.at(0, j), columns_before.at(0, j) + dot, 2 * kSumBound * size) << n;
    }

    // Dense rows.
    const Rows a(kRows, n, draw(), 0), b(kRows, n, draw(), 0);
    Rows product(kRows, n, kNan, 0), sum = b;
    k.mul_rows(kRows, n, a.data(), b.data(), product.data());
    k.add_mul_rows(kRows, n, a.data(), a.data(), sum.data());
    for (int64_t i = 0; i < kRows; ++i) {
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_NEAR(product.at(i, j), a.at(i, j) * b.at(i, j), 1e-7 * std::fabs(a.at(i, j) * b.at(i, j)));
        const double want = b.at(i, j) + a.at(i, j) * a.at(i, j);
        EXPECT_NEAR(sum.at(i, j), want, 1e-7 * (std::fabs(b.at(i, j)) + a.at(i, j) * a.at(i, j)));
      }
    }

    // y = scale x / |x|, and back: dx = r (dy - y (y.dy)) with scale 1.
    Rows unit(kRows, n, kNan, 0), inverse(1, kRows, kNan), dy(kRows, n, draw(), 0);
    const Rows upstream = dy;
    constexpr float kEps = 0.5f;
    k.l2norm_rows(kRows, n, kEps, 1.0f, x.data(), x.ld(), unit.data(), inverse.data());
    Rows scaled_unit(kRows, n, kNan, 0), ignored(1, kRows, kNan);
    k.l2norm_rows(kRows, n, kEps, 3.0f, x.data(), x.ld(), scaled_unit.data(), ignored.data());
    k.l2norm_rows_grad(kRows, n, unit.data(), inverse.data(), dy.data());
    for (int64_t i = 0; i < kRows; ++i) {
      double squares = kEps, along = 0;
      for (int64_t j = 0; j < n; ++j) squares += x.at(i, j) * x.at(i, j);
      const double r = 1 / std::sqrt(squares);
      for (int64_t j = 0; j < n; ++j) along += r * x.at(i, j) * upstream.at(i, j);
      EXPECT_NEAR(inverse.at(0, i), r, 1e-6 * r);
      for (int64_t j = 0; j < n; ++j) {
        EXPECT_NEAR(unit.at(i, j), r * x.at(i, j), 1e-6);
        EXPECT_NEAR(scaled_unit.at(i, j), 3 * r * x.at(i, j), 3e-6);
        const double want = r * (upstream.at(i, j) - r * x.at(i, j) * along);
        EXPECT_NEAR(dy.at(i, j), want, 1e-6 * r * (std::fabs(upstream.at(i, j)) + std::fabs(along)));
      }
    }
  }
}

// The scan and its squash with digits to spare for nobody: moments from 1e-12 to 1e12, every kind, with and without
// what the backward pass wants.
TEST_P(KernelTargets, Preconditioners) {
  struct Case {
    PrecondKind kind;
    Squash squash;
  };
  constexpr int64_t kTokens = 13;
  constexpr float kEps = 1e-6f;
  for (const auto& [kind, squash] : {Case{PrecondKind::kStableFast, Squash::kFast},
                                     {PrecondKind::kStableTanh, Squash::kTanh},
                                     {PrecondKind::kInverse, Squash::kFast},
                                     {PrecondKind::kInversePrevious, Squash::kFast}}) {
    const bool stable = kind == PrecondKind::kStableFast || kind == PrecondKind::kStableTanh;
    for (const double x : {1.5, 2.0}) {
      for (const bool alpha_is_row : {false, true}) {
        for (const int64_t n : {16, 80, 272}) {
          Spec spec;
          spec.key = Precond::kStable;
          spec.squash = squash;
          spec.x = x;
          const SquashCurve curve = squash_curve(spec);
          const auto spread = [&] { return std::pow(10.0f, uniform(-6, 6)); };
          const Rows k(
              kTokens, n, [&] { return draw()() * spread(); }, 0),
              in(kTokens, n, draw(), 0);
          const Rows alpha(
              alpha_is_row ? kTokens : 1, alpha_is_row ? n : kTokens, [&] { return uniform(0.01f, 1); }, 0);
          Rows total(1, n, 1.0f);  // the decay over all tokens
          for (int64_t j = 0; j < (alpha_is_row ? n : 1); ++j) {
            for (int64_t t = 0; t < kTokens; ++t) {
              total.at(0, j) *= static_cast<float>(alpha_is_row ? alpha.at(t, j) : alpha.at(0, t));
            }
          }
          const Rows beta(1, kTokens, [&] { return uniform(0, 1); }), ridge(1, n, [&] { return uniform(0.1f, 1); });
          const Rows before(1, n, [&] { return spread() * spread(); });
          for (const bool keeps : {false, true}) {
            Rows A = before, y(kTokens, n, kNan, 0), previous = y, B = y, slope = y;
            PrecondScan scan{};
            scan.kind = kind;
            scan.rows = kTokens;
            scan.n = n;
            scan.k = k.data();
            scan.x = in.data();
            scan.alpha = alpha.data();
            scan.alpha_is_row = alpha_is_row;
            scan.total = total.data();
            scan.beta = beta.data();
            scan.eps = kEps;
            scan.center = -1.3f;
            scan.curve = &curve;
            scan.ridge = ridge.data();
            scan.A = A.data();
            scan.y = y.data();
            if (keeps) scan.A_previous = previous.data(), scan.B = B.data(), scan.slope = slope.data();
            kernels().precond_scan(scan);
            EXPECT_TRUE(A.gaps_are_untouched());
            Rows moment = before;
            scan.A = moment.data();
            scan.y = nullptr;  // A alone
            kernels().precond_scan(scan);
            for (int64_t j = 0; j < n; ++j) {
              double a = before.at(0, j);
              for (int64_t t = 0; t < kTokens; ++t) {
                const double a_before = a;
                a = (alpha_is_row ? alpha.at(t, j) : alpha.at(0, t)) * a + beta.at(0, t) * k.at(t, j) * k.at(t, j);
                double want, dB;
                if (stable) {
                  const double r = std::log(a + kEps) - static_cast<double>(scan.center);
                  const double s = squash == Squash::kTanh ? std::tanh(r) : r / (1 + std::fabs(r));
                  const double ds =
                      squash == Squash::kTanh ? 1 / std::pow(std::cosh(r), 2) : 1 / std::pow(1 + std::fabs(r), 2);
                  want = std::pow(x, -s);
                  dB = -std::log(x) * want * ds / (a + kEps);
                } else {
                  const double m = kind == PrecondKind::kInverse ? a : a_before;
                  want = 1 / (m + ridge.at(0, j));
                  dB = -want * want;
                }
                // The curve is good to 5e-7; a logarithm of up to 4 to 2.4e-7 where the squash is steep. The slope of a
                // tanh at its end is e^-2|r|, with the rounding of r.
                const double r_size = stable ? std::fabs(std::log(a + kEps) - static_cast<double>(scan.center)) : 0;
                ASSERT_NEAR(y.at(t, j), want * in.at(t, j), 1.2e-6 * want * std::fabs(in.at(t, j)))
                    << "kind " << static_cast<int>(kind) << ", A " << a << ", token " << t;
                if (!keeps) continue;
                ASSERT_NEAR(B.at(t, j), want, 1.2e-6 * want);
                ASSERT_NEAR(slope.at(t, j), dB, (3e-6 + 5e-7 * r_size) * std::fabs(dB) + 1e-36) << "A " << a;
                ASSERT_NEAR(previous.at(t, j), a_before, 2e-6 * a_before);
              }
              ASSERT_NEAR(A.at(0, j), a, 2e-6 * a);
              ASSERT_NEAR(moment.at(0, j), a, 2e-6 * a);
            }
          }
        }
      }
    }
  }
}

TEST_P(KernelTargets, DiagonalChunks) {
  for (const int64_t n : {16, 48, 144}) {
    const Rows e(kChunk, n, draw(), 0), q(kChunk, n, draw(), 0), w(kChunk, n, draw(), 0);
    const Rows alpha(
        kChunk, n, [&] { return uniform(0, 1); }, 0);
    for (const bool erases : {false, true}) {
      for (const bool reads : {false, true}) {
        Rows M(kChunk, kChunk, kNan, 2 * kPad), P = M, w_end(kChunk, n, kNan, 0);
        kernels().diag_intra({n, erases ? e.data() : nullptr, reads ? q.data() : nullptr, w.data(), alpha.data(),
                              M.data(), P.data(), P.ld(), w_end.data()});
        for (int64_t j = 0; j < kChunk; ++j) {
          std::vector<double> now(static_cast<std::size_t>(n));
          for (int64_t c = 0; c < n; ++c) now[static_cast<std::size_t>(c)] = w.at(j, c);
          for (int64_t i = j; i < kChunk; ++i) {
            double erased = 0, read = 0, size = 0;
            for (int64_t c = 0; c < n; ++c) {
              double& value = now[static_cast<std::size_t>(c)];
              erased += e.at(i, c) * value;
              size += std::fabs(e.at(i, c) * value);
              if (i > j) value *= alpha.at(i, c);
              read += q.at(i, c) * value;
              size += std::fabs(q.at(i, c) * value);
            }
            if (reads) {
              ASSERT_NEAR(P.at(i, j), read, kSumBound * size);
            }
            if (erases && i > j) {
              ASSERT_NEAR(M.at(i, j), erased, kSumBound * size);
            }
          }
          for (int64_t c = 0; c < n; ++c) {
            ASSERT_NEAR(w_end.at(j, c), now[static_cast<std::size_t>(c)], 2e-6 * std::fabs(w.at(j, c)));
          }
        }
      }
    }
  }
}

// One token: every form, and columns that are no whole vectors.
TEST_P(KernelTargets, Steps) {
  for (const int64_t n : {1, 15, 16, 17, 33, 64, 127, 128, 150}) {
    for (const int64_t k_rows : {1, 5}) {
      for (const bool diagonal : {false, true}) {
        for (const int form : {0, 1, 2}) {  // offline, erasing, DPLR
          if (form == 2 && !diagonal) continue;
          const auto vector = [&](int64_t size) { return Rows(1, size, draw()); };
          const Rows e = vector(k_rows), q = vector(k_rows), w = vector(k_rows), k2 = vector(k_rows);
          const Rows alpha(1, k_rows, [&] { return uniform(0, 1); }), v = vector(n), v2 = vector(n),
                                                                      S(k_rows, n, draw());
          Rows state = S, o(1, n, kNan);
          Step step{};
          step.k_rows = k_rows;
          step.n = n;
          step.S = state.data();
          step.lds = state.ld();
          step.alpha = diagonal ? alpha.data() : nullptr;
          step.alpha_scalar = 0.75f;
          step.e = form > 0 ? e.data() : nullptr;
          step.q = q.data();
          step.w = w.data();
          step.w_dot_q = 0.3f;
          step.v = form == 2 ? nullptr : v.data();
          if (form == 2) step.k2 = k2.data(), step.k2_dot_q = -0.6f, step.v2 = v2.data();
          step.o = o.data();
          kernels().step(step);
          EXPECT_TRUE(state.gaps_are_untouched() && o.gaps_are_untouched()) << n;
          for (int64_t j = 0; j < n; ++j) {
            double delta = form == 2 ? 0 : v.at(0, j), read = 0, size = 1;
            for (int64_t i = 0; i < k_rows; ++i) {
              if (form > 0) delta -= e.at(0, i) * S.at(i, j);
              read += q.at(0, i) * S.at(i, j);
              size += std::fabs(S.at(i, j)) * (std::fabs(e.at(0, i)) + std::fabs(q.at(0, i)));
            }
            double want = read + static_cast<double>(step.w_dot_q) * delta;
            if (form == 2) want += static_cast<double>(step.k2_dot_q) * v2.at(0, j);
            ASSERT_NEAR(o.at(0, j), want, kSumBound * size) << n << " form " << form;
            for (int64_t i = 0; i < k_rows; ++i) {
              double next = (diagonal ? alpha.at(0, i) : 0.75) * S.at(i, j) + w.at(0, i) * delta;
              if (form == 2) next += k2.at(0, i) * v2.at(0, j);
              const double bound = kSumBound * size * (1 + std::fabs(w.at(0, i)) + std::fabs(k2.at(0, i)));
              ASSERT_NEAR(static_cast<const Rows&>(state).at(i, j), next, bound) << n << " form " << form;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, KernelTargets, testing::ValuesIn(target_names()),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace deltanet::simd
