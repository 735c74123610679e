#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "deltanet/rows.h"
#include "recurrence/autodiff.h"
#include "recurrence/gains.h"
#include "recurrence/preconditioners.h"

// The definition of every row: one token loop for one head of one sequence, with T = double for values and T = Var for
// gradients. Private; the entry points are in deltanet/reference.h.
//
// Shapes as in deltanet/recurrence.h. The state S is [K,V]: S[i][j] pairs key dimension i with value dimension j. How
// it is kept is a parameter, too: as its entries, or as the writes that they are made of, as a chunkwise form does.
//
// An infinite second moment has the squash of its limit, 1.

namespace deltanet::reference {

struct Dims {
  int64_t B = 0, T = 0, H = 0, U = 0, K = 0, V = 0, N = 0;
  std::vector<int64_t> cu_seqlens;  // empty: N = B sequences of T tokens
};

// The inputs, dense; a null pointer means absent.
template <class T>
struct Operands {
  const T *q, *k, *v, *g, *beta, *beta_erase, *d, *g_atk, *beta_atk, *log_atk_scale, *ridge, *a, *b, *kk, *eta,
      *k_write, *k_erase, *S0, *A0, *P0, *G0;
};

template <class T>
struct HeadResult {
  std::vector<T> o;           // [tokens, V]
  std::vector<T> S, A, P, G;  // [K,V], [K], [K,K], [K,K]; A, P, G are empty where the row has none
};

template <class T>
T dot(const std::vector<T>& x, const std::vector<T>& y) {
  T sum = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * y[i];
  return sum;
}

// x M for a row vector x [rows] and a row-major matrix M [rows, columns].
template <class T>
std::vector<T> times(const std::vector<T>& x, const std::vector<T>& matrix) {
  const std::size_t columns = matrix.size() / x.size();
  std::vector<T> out(columns, T(0.0));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < columns; ++j) out[j] += x[i] * matrix[i * columns + j];
  }
  return out;
}

// M += x y^T
template <class T>
void add_outer(std::vector<T>& matrix, const std::vector<T>& x, const std::vector<T>& y) {
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < y.size(); ++j) matrix[i * y.size() + j] += x[i] * y[j];
  }
}

template <class T>
std::vector<T> scaled(const T& factor, std::vector<T> x) {
  for (T& entry : x) entry = factor * entry;
  return x;
}

template <class T>
std::vector<T> symmetric_part(const T* matrix, std::size_t n) {
  std::vector<T> out(n * n);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) out[i * n + j] = (matrix[i * n + j] + matrix[j * n + i]) * T(0.5);
  }
  return out;
}

// Solves M y = x for a symmetric positive definite M [n,n] by M = L D L^T; only the lower half of M is read.
template <class T>
std::vector<T> solve_spd(std::vector<T> m, std::vector<T> x) {
  const std::size_t n = x.size();
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t i = j + 1; i < n; ++i) {
      const T factor = m[i * n + j] / m[j * n + j];
      for (std::size_t c = j + 1; c <= i; ++c) m[i * n + c] = m[i * n + c] - factor * m[c * n + j];
      x[i] = x[i] - factor * x[j];
    }
  }
  for (std::size_t j = n; j-- > 0;) {  // here m[i][j] = L_ij D_j, so that y_j = (x_j - sum_i m_ij y_i) / D_j
    for (std::size_t i = j + 1; i < n; ++i) x[j] = x[j] - m[i * n + j] * x[i];
    x[j] = x[j] / m[j * n + j];
  }
  return x;
}

// (G + diag(ridge))^-1 x
template <class T>
std::vector<T> solve_ridge(std::vector<T> G, const T* ridge, const std::vector<T>& x) {
  for (std::size_t i = 0; i < x.size(); ++i) G[i * x.size() + i] += ridge[i];
  return solve_spd(G, x);
}

// Zeros outside of the blocks on the diagonal.
template <class T>
void keep_blocks(const Spec& spec, std::vector<T>& G) {
  const auto width = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(G.size()))));
  const auto block = static_cast<std::size_t>(spec.block);
  for (std::size_t i = 0; i < G.size(); ++i) {
    if (i / width / block != i % width / block) G[i] = 0.0;
  }
}

// The stable diagonal preconditioner B = x^(-s), s = squash(log(A + eps) - center), Eq. 9.
template <class T>
T stable_preconditioner(const Spec& spec, const T& moment, const T& center) {
  using std::abs, std::exp, std::log, std::tanh;
  const T r = log(moment + T(spec.eps)) - center;
  const bool limit = std::isinf(number_of(r));
  const T s = limit                          ? T(std::copysign(1.0, number_of(r)))
              : spec.squash == Squash::kTanh ? tanh(r)
                                             : r / (T(1.0) + abs(r));
  T exponent = -s;                                                      // B in [1/x, x]
  if (spec.range == Range::kAmplify) exponent = (T(1.0) - s) * T(0.5);  // B in [1, x]
  if (spec.range == Range::kDampen) exponent = (T(1.0) + s) * T(-0.5);  // B in [1/x, 1]
  return exp(T(std::log(spec.x)) * exponent);
}

// P <- P/alpha for the inverse Gram, but a channel whose diagonal would grow beyond kLargestInverse begins again with
// the row and column of the identity.
template <class T>
void forget(const T& alpha, std::vector<T>& P) {
  const auto width = static_cast<std::size_t>(std::lround(std::sqrt(static_cast<double>(P.size()))));
  std::vector<char> kept(width);
  for (std::size_t i = 0; i < width; ++i) {
    kept[i] = !(number_of(P[i * width + i]) / number_of(alpha) > kLargestInverse);
  }
  for (std::size_t i = 0; i < P.size(); ++i) {
    const std::size_t row = i / width, column = i % width;
    P[i] = kept[row] && kept[column] ? P[i] / alpha : T(row == column ? 1.0 : 0.0);
  }
}

// The diagonal preconditioner of one side: B, so that the key is B*k or the query B*q. `moments` are A_{t-1} and A_t.
template <class T>
std::vector<T> diagonal(const Spec& spec, const Preconditioner& side, const std::vector<T> (&moments)[2],
                        const T* center, const T* ridge) {
  std::vector<T> B = moments[side.previous ? 0 : 1];
  for (std::size_t i = 0; i < B.size(); ++i) {
    B[i] = side.squashed ? stable_preconditioner(spec, B[i], *center) : T(1.0) / (B[i] + ridge[i]);
  }
  return B;
}

// S as its K V entries.
template <class T>
class DenseState {
 public:
  explicit DenseState(std::vector<T> entries, std::size_t rows)
      : entries_(std::move(entries)), columns_(entries_.size() / rows) {}

  void decay(const std::vector<T>& alpha) {
    for (std::size_t i = 0; i < entries_.size(); ++i) entries_[i] = alpha[i / columns_] * entries_[i];
  }
  std::vector<T> read(const std::vector<T>& key) const { return times(key, entries_); }
  void write(const std::vector<T>& key, const std::vector<T>& value) { add_outer(entries_, key, value); }
  std::vector<T> entries() const { return entries_; }

 private:
  std::vector<T> entries_;
  std::size_t columns_;
};

// All tokens of value head u in sequence n.
template <template <class> class State, class T>
HeadResult<T> run_head(const Spec& spec, const Dims& dims, const Operands<T>& x, int64_t n, int64_t u) {
  using std::exp, std::sqrt;
  using Vector = std::vector<T>;
  const T one = 1.0, zero = 0.0;
  const int64_t K = dims.K, V = dims.V;
  const auto width = static_cast<std::size_t>(K);
  const int64_t h = u / (dims.U / dims.H);  // the key head that this value head reads
  const bool packed = !dims.cu_seqlens.empty();
  const int64_t first = packed ? dims.cu_seqlens[static_cast<std::size_t>(n)] : n * dims.T;
  const int64_t last = packed ? dims.cu_seqlens[static_cast<std::size_t>(n) + 1] : (n + 1) * dims.T;
  const auto vector_at = [](const T* data, int64_t index, int64_t size) {
    return Vector(data + index * size, data + (index + 1) * size);
  };
  const auto initial = [&](const T* data, int64_t index, int64_t size) {
    return data ? vector_at(data, index, size) : Vector(static_cast<std::size_t>(size), zero);
  };
  const auto normalized = [&](const Vector& y) { return scaled(one / sqrt(dot(y, y) + T(spec.l2norm_eps)), y); };
  const T scale = spec.scale ? *spec.scale : 1 / std::sqrt(static_cast<double>(K));

  HeadResult<T> out;
  State<T> S(initial(x.S0, n * dims.U + u, K * V), width);
  Vector& A = out.A;
  Vector& P = out.P;
  Vector& G = out.G;
  const int64_t nh = n * dims.H + h;
  const Preconditioner &on_key = definition(spec.key), &on_query = definition(spec.query);
  const bool has_moment = carries(spec, Carried::kMoment);
  if (has_moment) A = initial(x.A0, nh, K);
  const bool blocks = does(spec, Operation::kBlock);
  if (carries(spec, Carried::kGram)) G = symmetric_part(initial(x.G0, nh, K * K).data(), width);
  if (blocks) keep_blocks(spec, G);
  if (on_key.operation == Operation::kRls) {
    P = Vector(width * width, zero);
    if (x.P0) {
      P = symmetric_part(x.P0 + nh * K * K, width);
    } else {
      for (std::size_t i = 0; i < width; ++i) {
        P[i * width + i] = one / x.ridge[ridge_makes_P0(spec) ? static_cast<std::size_t>(h) : h * width + i];
      }
    }
  }

  for (int64_t t = first; t < last; ++t) {
    check_interrupt();
    const int64_t th = t * dims.H + h, tu = t * dims.U + u;
    Vector q = vector_at(x.q, th, K), k = vector_at(x.k, th, K);
    const Vector v = vector_at(x.v, tu, V);
    if (spec.l2norm) q = normalized(q), k = normalized(k);
    if (on_query.operation == Operation::kMinusKey) {
      for (std::size_t i = 0; i < width; ++i) q[i] = q[i] - x.d[h] * k[i];
    }
    q = scaled(scale, q);

    // ---- decay alpha [K] and gain input beta
    Vector alpha(width, one);
    if (spec.decay == Decay::kConst) alpha.assign(width, exp(x.g[u]));
    if (spec.decay == Decay::kScalar) alpha.assign(width, exp(x.g[tu]));
    if (spec.decay == Decay::kDiag) {
      for (std::size_t i = 0; i < width; ++i) alpha[i] = exp(x.g[tu * K + static_cast<int64_t>(i)]);
    }
    const T beta = x.beta ? x.beta[tu] : one;

    // ---- diagonal second moment of the keys, A_t = alpha_atk A_{t-1} + beta_atk k*k
    Vector moments[2] = {A, A};
    if (has_moment) {
      const T alpha_atk = x.g_atk ? exp(x.g_atk[th]) : one;
      const T beta_atk = spec.tie_gates ? beta : x.beta_atk ? x.beta_atk[th] : one;
      for (std::size_t i = 0; i < width; ++i) {
        A[i] = (spec.tie_gates ? alpha[i] : alpha_atk) * moments[0][i] + beta_atk * k[i] * k[i];
      }
      moments[1] = A;
    }
    const Vector G_previous = G;
    if (blocks) {
      const T alpha_atk = spec.tie_gates ? alpha[0] : x.g_atk ? exp(x.g_atk[th]) : one;
      const T beta_atk = spec.tie_gates ? beta : x.beta_atk ? x.beta_atk[th] : one;
      G = scaled(alpha_atk, G);
      add_outer(G, k, scaled(beta_atk, k));
      keep_blocks(spec, G);
    }
    const T* center = x.log_atk_scale ? x.log_atk_scale + h : nullptr;
    const T* ridge = x.ridge ? x.ridge + h * K : nullptr;

    // ---- write key w, and its product with the key
    Vector w = k;
    if (on_key.operation == Operation::kDiagonal) {
      const Vector B = diagonal(spec, on_key, moments, center, ridge);
      for (std::size_t i = 0; i < width; ++i) w[i] = B[i] * k[i];
    } else if (on_key.operation == Operation::kBlock) {
      w = solve_ridge(G_previous, ridge, k);
    } else if (on_key.operation == Operation::kGiven) {
      w = vector_at(x.k_write, th, K);
    } else if (on_key.operation == Operation::kRls) {  // P_t k, and P_t
      if (spec.decay != Decay::kNone && number_of(alpha[0]) != 1.0) forget(alpha[0], P);
      const Vector Pk = times(k, P);
      const T weight = spec.gain == Gain::kBeta ? beta : one;
      w = scaled(one / (one + weight * dot(k, Pk)), Pk);
      add_outer(P, w, scaled(-weight, Pk));
      // What is not symmetric is rounding, which under decay would grow in every token.
      if (spec.decay != Decay::kNone) P = symmetric_part(P.data(), width);
    }
    const T gain = gain_of(spec.gain, alpha[0], beta, dot(k, w));

    // ---- state
    const Vector e = spec.erase == Erase::kFree ? vector_at(x.k_erase, th, K) : k;
    Vector read_before_decay;  // what the low-rank erasures and those with a gain of their own read
    if (spec.solve == Solve::kDplr) {
      read_before_decay = S.read(vector_at(spec.tying == Tying::kRwkv7 ? x.kk : x.a, th, K));
    } else if (spec.erase == Erase::kOwnGain) {
      read_before_decay = S.read(e);
    }
    const bool forgets = on_key.operation == Operation::kRls;  // then alpha cancels in S
    if (spec.decay != Decay::kNone && !forgets) S.decay(alpha);
    if (spec.solve == Solve::kDplr) {  // S_t = diag(alpha) S - b (a^T S) + k v^T
      Vector b = k;
      if (spec.tying == Tying::kGeneral) b = vector_at(x.b, th, K);
      if (spec.tying == Tying::kAEqB) b = vector_at(x.a, th, K);
      if (spec.tying == Tying::kRwkv7) {
        b = vector_at(x.kk, th, K);
        for (std::size_t i = 0; i < width; ++i) b[i] = b[i] * x.eta[th * K + static_cast<int64_t>(i)];
      }
      S.write(b, scaled(T(-1.0), read_before_decay));
      S.write(k, v);
    } else {
      Vector update = scaled(gain, v);  // offline
      const Vector erased = spec.solve == Solve::kOffline   ? Vector()
                            : spec.erase == Erase::kOwnGain ? scaled(x.beta_erase[tu], read_before_decay)
                                                            : scaled(gain, S.read(e));
      for (std::size_t j = 0; j < erased.size(); ++j) update[j] = update[j] - erased[j];
      S.write(w, update);
    }

    // ---- read
    if (on_query.operation == Operation::kDiagonal) {
      const Vector B = diagonal(spec, on_query, moments, center, ridge);
      for (std::size_t i = 0; i < width; ++i) q[i] = B[i] * q[i];
    } else if (on_query.operation == Operation::kBlock) {
      q = solve_ridge(G, ridge, q);
    } else if (on_query.operation == Operation::kMesa) {
      G = scaled(alpha[0], G);
      add_outer(G, k, scaled(beta, k));
      q = solve_ridge(G, ridge, q);
    }
    const Vector o = S.read(q);
    out.o.insert(out.o.end(), o.begin(), o.end());
  }
  out.S = S.entries();
  return out;
}

}  // namespace deltanet::reference
