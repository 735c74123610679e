#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

// Reverse-mode automatic differentiation for the reference: small, exact and slow. Number is the type it computes with:
// double, or one that is rounded otherwise.
//
// Arithmetic on Var records a node per operation on the tape that is active in this thread. A node knows at most two
// parents and the partial derivatives with respect to them; a Var without a node is a constant and costs nothing.
//
//   Tape<double> tape;                 // becomes the active tape
//   Var<double> x = tape.leaf(2.0), y = x * exp(x);
//   tape.add_adjoint(y, 1.0);
//   tape.sweep(0);
//   tape.adjoint(x)                    // dy/dx

namespace deltanet {

// The number behind a value, for decisions that are not differentiated.
inline double number_of(double x) { return x; }

template <class Number>
class Var;

template <class Number>
class Tape {
 public:
  Tape() : outer_(active_) { active_ = this; }
  ~Tape() { active_ = outer_; }
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  static Tape& active() { return *active_; }

  Var<Number> leaf(double value) { return record(value, kConstant, 0.0); }

  Var<Number> record(Number value, int32_t a, Number da, int32_t b = kConstant, Number db = 0.0) {
    nodes_.push_back({a, b, da, db});
    return {value, static_cast<int32_t>(nodes_.size() - 1)};
  }

  void add_adjoint(const Var<Number>& x, double weight) {
    if (x.node_ != kConstant) nodes_[index(x.node_)].adjoint += weight;
  }
  Number adjoint(const Var<Number>& x) const {
    return x.node_ == kConstant ? Number(0.0) : nodes_[index(x.node_)].adjoint;
  }

  std::size_t size() const { return nodes_.size(); }

  // Propagates the adjoints of the nodes from `first` on to their parents, then forgets those nodes. Adjoints of
  // earlier nodes stay and add up, so that independent parts of a computation can share leaves without sharing memory.
  void sweep(std::size_t first) {
    for (std::size_t i = nodes_.size(); i-- > first;) {
      const Node& node = nodes_[i];
      if (number_of(node.adjoint) == 0) continue;
      if (node.a != kConstant) nodes_[index(node.a)].adjoint += node.adjoint * node.da;
      if (node.b != kConstant) nodes_[index(node.b)].adjoint += node.adjoint * node.db;
    }
    nodes_.resize(first);
  }

  static constexpr int32_t kConstant = -1;

 private:
  struct Node {
    int32_t a, b;
    Number da, db;
    Number adjoint = 0.0;
  };
  static std::size_t index(int32_t node) { return static_cast<std::size_t>(node); }

  std::vector<Node> nodes_;
  Tape* outer_;
  inline static thread_local Tape* active_ = nullptr;
};

template <class Number>
class Var {
 public:
  Var() = default;
  Var(double value) : value_(value) {}  // NOLINT(google-explicit-constructor): a number is a constant

  Number value() const { return value_; }

  friend Var operator+(const Var& x, const Var& y) { return binary(x.value_ + y.value_, x, 1.0, y, 1.0); }
  friend Var operator-(const Var& x, const Var& y) { return binary(x.value_ - y.value_, x, 1.0, y, -1.0); }
  friend Var operator*(const Var& x, const Var& y) { return binary(x.value_ * y.value_, x, y.value_, y, x.value_); }
  friend Var operator/(const Var& x, const Var& y) {
    const Number quotient = x.value_ / y.value_;
    return binary(quotient, x, Number(1.0) / y.value_, y, -quotient / y.value_);
  }
  friend Var operator-(const Var& x) { return unary(-x.value_, x, -1.0); }
  Var& operator+=(const Var& y) { return *this = *this + y; }

  friend Var exp(const Var& x) {
    using std::exp;
    return unary(exp(x.value_), x, exp(x.value_));
  }
  friend Var expm1(const Var& x) {
    using std::exp, std::expm1;
    return unary(expm1(x.value_), x, exp(x.value_));
  }
  friend Var log(const Var& x) {
    using std::log;
    return unary(log(x.value_), x, Number(1.0) / x.value_);
  }
  friend Var sqrt(const Var& x) {
    using std::sqrt;
    return unary(sqrt(x.value_), x, Number(0.5) / sqrt(x.value_));
  }
  friend Var abs(const Var& x) {
    using std::abs;
    return unary(abs(x.value_), x, number_of(x.value_) < 0 ? -1.0 : 1.0);
  }
  friend Var tanh(const Var& x) {
    using std::cosh, std::tanh;
    const Number c = cosh(x.value_);  // 1/cosh^2 keeps its digits where 1 - tanh^2 cancels
    return unary(tanh(x.value_), x, Number(1.0) / (c * c));
  }

 private:
  friend class Tape<Number>;
  Var(Number value, int32_t node) : value_(value), node_(node) {}

  static Var unary(Number value, const Var& x, Number dx) {
    if (x.node_ == Tape<Number>::kConstant) return {value, Tape<Number>::kConstant};
    return Tape<Number>::active().record(value, x.node_, dx);
  }
  static Var binary(Number value, const Var& x, Number dx, const Var& y, Number dy) {
    if (x.node_ == Tape<Number>::kConstant) return unary(value, y, dy);
    return Tape<Number>::active().record(value, x.node_, dx, y.node_, dy);
  }

  Number value_ = 0.0;
  int32_t node_ = Tape<Number>::kConstant;
};

template <class Number>
double number_of(const Var<Number>& x) {
  return number_of(x.value());
}

}  // namespace deltanet
