#pragma once

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>

namespace deltanet::test {

// A number that is off as one of float32 is, with rounding errors that are drawn: the result of every operation by a
// relative error that is uniform in [-2^-24, 2^-24]. A computation that runs with several draws shows how far from the
// truth float32 may end up, entry by entry and with everything that carries errors on, damps them or makes results
// cancel (Monte Carlo arithmetic).
class Rounded {
 public:
  Rounded() = default;
  Rounded(double exact)  // NOLINT(google-explicit-constructor): a number is a constant
      : value_(static_cast<double>(static_cast<float>(exact)) == exact ? exact : rounded(exact)) {}

  // Other rounding errors in this thread from now on; the same ones for the same draw. In even draws equal results have
  // equal errors, as when one decay is computed once for all tokens: they add up. In odd draws all errors are
  // independent, as when equal keys meet unequal gains: what they cancel otherwise stays.
  static void set_draw(uint64_t draw) {
    salt_ = 0xD6E8FEB86659FD93u * (draw + 1);
    step_ = draw % 2 == 0 ? 0 : 0xA0761D6478BD642Fu;
  }

  friend double number_of(Rounded x) { return x.value_; }

  friend Rounded operator+(Rounded x, Rounded y) { return result(x.value_ + y.value_, x.value_, y.value_); }
  friend Rounded operator-(Rounded x, Rounded y) { return result(x.value_ - y.value_, x.value_, -y.value_); }
  friend Rounded operator*(Rounded x, Rounded y) { return result(x.value_ * y.value_, x.value_, y.value_); }
  friend Rounded operator/(Rounded x, Rounded y) { return result(x.value_ / y.value_, x.value_, x.value_); }
  friend Rounded operator-(Rounded x) { return of(-x.value_); }
  Rounded& operator+=(Rounded y) { return *this = *this + y; }

  friend Rounded exp(Rounded x) { return of(rounded(std::exp(x.value_))); }
  friend Rounded expm1(Rounded x) { return of(rounded(std::expm1(x.value_))); }
  friend Rounded log(Rounded x) { return of(rounded(std::log(x.value_))); }
  friend Rounded sqrt(Rounded x) { return of(rounded(std::sqrt(x.value_))); }
  friend Rounded tanh(Rounded x) { return of(rounded(std::tanh(x.value_))); }
  friend Rounded cosh(Rounded x) { return of(rounded(std::cosh(x.value_))); }
  friend Rounded abs(Rounded x) { return of(std::fabs(x.value_)); }

 private:
  static Rounded of(double value) {
    Rounded x;
    x.value_ = value;
    return x;
  }

  // Sums with 0 and products with 1 are exact, in float32 as here.
  static Rounded result(double exact, double x, double y) {
    return of(exact == x || exact == y ? exact : rounded(exact));
  }

  // The error is drawn by a hash of the result. Below the smallest normal float32 it is absolute.
  static double rounded(double exact) {
    salt_ += step_;
    const uint64_t hash = (std::bit_cast<uint64_t>(exact) ^ salt_) * 0x9E3779B97F4A7C15u;
    const double draw = static_cast<double>(static_cast<int64_t>(hash)) * 0x1p-63;
    if (std::fabs(exact) >= FLT_MIN) return exact + exact * draw * 0x1p-24;
    return exact == 0 ? exact : exact + draw * FLT_MIN;
  }

  double value_ = 0;
  inline static thread_local uint64_t salt_ = 0, step_ = 0;
};

}  // namespace deltanet::test
