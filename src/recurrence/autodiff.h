#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

// Reverse-mode automatic differentiation for the float64 reference: small, exact and slow.
//
// Arithmetic on Var records a node per operation on the tape that is active in this thread. A node knows at most two
// parents and the partial derivatives with respect to them; a Var without a node is a constant and costs nothing.
//
//   Tape tape;                         // becomes the active tape
//   Var x = tape.leaf(2.0), y = x * exp(x);
//   tape.add_adjoint(y, 1.0);
//   tape.sweep(0);
//   tape.adjoint(x)                    // dy/dx

namespace deltanet {

class Var;

class Tape {
 public:
  Tape() : outer_(active_) { active_ = this; }
  ~Tape() { active_ = outer_; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  static Tape& active() { return *active_; }

  Var leaf(double value);
  Var record(double value, int32_t a, double da, int32_t b = kConstant, double db = 0);

  void add_adjoint(const Var& x, double weight);
  double adjoint(const Var& x) const;

  std::size_t size() const { return nodes_.size(); }

  // Propagates the adjoints of the nodes from `first` on to their parents, then forgets those nodes. Adjoints of
  // earlier nodes stay and add up, so that independent parts of a computation can share leaves without sharing memory.
  void sweep(std::size_t first) {
    for (std::size_t i = nodes_.size(); i-- > first;) {
      const Node& node = nodes_[i];
      if (node.adjoint == 0) continue;
      if (node.a != kConstant) nodes_[index(node.a)].adjoint += node.adjoint * node.da;
      if (node.b != kConstant) nodes_[index(node.b)].adjoint += node.adjoint * node.db;
    }
    nodes_.resize(first);
  }

  static constexpr int32_t kConstant = -1;

 private:
  struct Node {
    int32_t a, b;
    double da, db;
    double adjoint = 0;
  };
  static std::size_t index(int32_t node) { return static_cast<std::size_t>(node); }

  std::vector<Node> nodes_;
  Tape* outer_;
  inline static thread_local Tape* active_ = nullptr;
};

class Var {
 public:
  Var() = default;
  Var(double value) : value_(value) {}  // NOLINT(google-explicit-constructor): a number is a constant

  double value() const { return value_; }

  friend Var operator+(const Var& x, const Var& y) { return binary(x.value_ + y.value_, x, 1, y, 1); }
  friend Var operator-(const Var& x, const Var& y) { return binary(x.value_ - y.value_, x, 1, y, -1); }
  friend Var operator*(const Var& x, const Var& y) { return binary(x.value_ * y.value_, x, y.value_, y, x.value_); }
  friend Var operator/(const Var& x, const Var& y) {
    const double quotient = x.value_ / y.value_;
    return binary(quotient, x, 1 / y.value_, y, -quotient / y.value_);
  }
  friend Var operator-(const Var& x) { return unary(-x.value_, x, -1); }
  Var& operator+=(const Var& y) { return *this = *this + y; }

  friend Var exp(const Var& x) { return unary(std::exp(x.value_), x, std::exp(x.value_)); }
  friend Var expm1(const Var& x) { return unary(std::expm1(x.value_), x, std::exp(x.value_)); }
  friend Var log(const Var& x) { return unary(std::log(x.value_), x, 1 / x.value_); }
  friend Var sqrt(const Var& x) { return unary(std::sqrt(x.value_), x, 0.5 / std::sqrt(x.value_)); }
  friend Var abs(const Var& x) { return unary(std::fabs(x.value_), x, x.value_ < 0 ? -1 : 1); }
  friend Var tanh(const Var& x) {
    const double c = std::cosh(x.value_);  // 1/cosh^2 keeps its digits where 1 - tanh^2 cancels
    return unary(std::tanh(x.value_), x, 1 / (c * c));
  }

 private:
  friend class Tape;
  Var(double value, int32_t node) : value_(value), node_(node) {}

  static Var unary(double value, const Var& x, double dx) {
    return x.node_ == Tape::kConstant ? Var(value) : Tape::active().record(value, x.node_, dx);
  }
  static Var binary(double value, const Var& x, double dx, const Var& y, double dy) {
    if (x.node_ == Tape::kConstant) return unary(value, y, dy);
    return Tape::active().record(value, x.node_, dx, y.node_, dy);
  }

  double value_ = 0;
  int32_t node_ = Tape::kConstant;
};

inline Var Tape::leaf(double value) { return record(value, kConstant, 0); }

inline Var Tape::record(double value, int32_t a, double da, int32_t b, double db) {
  nodes_.push_back({a, b, da, db});
  return {value, static_cast<int32_t>(nodes_.size() - 1)};
}

inline void Tape::add_adjoint(const Var& x, double weight) {
  if (x.node_ != kConstant) nodes_[index(x.node_)].adjoint += weight;
}

inline double Tape::adjoint(const Var& x) const { return x.node_ == kConstant ? 0 : nodes_[index(x.node_)].adjoint; }

// The number behind a value of either kind, for decisions that are not differentiated.
inline double number_of(double x) { return x; }
inline double number_of(const Var& x) { return x.value(); }

}  // namespace deltanet
