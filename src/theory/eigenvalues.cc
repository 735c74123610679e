// Lemmas E.1 to E.3: the eigenvalues of the transition alpha (I - beta k k~^T) of GDN and PGDN. The matrix is taken
// from the recurrence itself (one token with v = 0 applied to S0 = I) and its eigenvalues from a general QR iteration.

#include <algorithm>
#include <cmath>
#include <complex>
#include <random>

#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "theory/linalg.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

constexpr int64_t kDim = 12;

struct Token {
  double alpha = 1, beta = 1;
  std::vector<double> key;     // on the unit sphere
  std::vector<double> moment;  // A0
  double center = 0;
};

class Tokens {
 public:
  explicit Tokens(uint64_t seed) : rng_(seed) {}

  double uniform(double low, double high) { return low + (high - low) * uniform_(rng_); }

  Token draw(double max_beta) {
    Token token{uniform(0.05, 1), uniform(0, max_beta), {}, {}, uniform(-3, 3)};
    double norm2 = 0;
    for (int64_t i = 0; i < kDim; ++i) {
      token.key.push_back(normal_(rng_));
      norm2 += token.key.back() * token.key.back();
      token.moment.push_back(std::exp(uniform(-14, 14)));  // spreads B over its whole range
    }
    for (double& x : token.key) x /= std::sqrt(norm2);
    return token;
  }

 private:
  std::mt19937_64 rng_;
  std::uniform_real_distribution<double> uniform_;
  std::normal_distribution<double> normal_;
};

// One step of the row from S0 with value v, [kDim, V].
std::vector<double> step(const Spec& spec, const Token& token, const Array& S0, int64_t V, double v) {
  Arrays inputs;
  inputs["q"] = inputs["k"] = {{1, 1, 1, kDim}, token.key};
  inputs["v"] = {{1, 1, 1, V}, std::vector<double>(static_cast<std::size_t>(V), v)};
  inputs["g"] = {{1, 1, 1}, {std::log(token.alpha)}};
  inputs["beta"] = {{1, 1, 1}, {token.beta}};
  if (spec.key == Precond::kStable) {
    inputs["log_atk_scale"] = {{1}, {token.center}};
    inputs["A0"] = {{1, 1, kDim}, token.moment};
  }
  inputs["S0"] = S0;
  return reference_forward(spec, inputs).at("S_final").data;
}

Matrix transition(const Spec& spec, const Token& token) {
  Array identity{{1, 1, kDim, kDim}, std::vector<double>(kDim * kDim)};
  for (std::size_t i = 0; i < kDim; ++i) identity.data[i * kDim + i] = 1;
  return {kDim, kDim, step(spec, token, identity, kDim, 0.0)};
}

// k.k~, with the write key k~ read off a unit write with gain 1 into an empty state.
double key_product(const Spec& spec, Token token) {
  token.beta = 1;
  const std::vector<double> write_key = step(spec, token, {{1, 1, kDim, 1}, std::vector<double>(kDim)}, 1, 1.0);
  double sum = 0;
  for (std::size_t i = 0; i < kDim; ++i) sum += token.key[i] * write_key[i];
  return sum;
}

// The largest distance between the computed eigenvalues and alpha (d-1 times), alpha (1 - beta k.k~) (once).
double distance_to_lemma(const Spec& spec, const Token& token, double product) {
  std::vector<std::complex<double>> computed = eigenvalues(transition(spec, token));
  const std::complex<double> single = token.alpha * (1 - token.beta * product);
  const auto nearest = std::min_element(computed.begin(), computed.end(), [&](const auto& a, const auto& b) {
    return std::abs(a - single) < std::abs(b - single);
  });
  double worst = std::abs(*nearest - single);
  computed.erase(nearest);
  for (const auto& value : computed) worst = larger(worst, std::abs(value - token.alpha));
  return worst;
}

double spectral_radius(const Spec& spec, const Token& token) {
  double radius = 0;
  for (const auto& value : eigenvalues(transition(spec, token))) radius = larger(radius, std::abs(value));
  return radius;
}

double smallest_eigenvalue(const Spec& spec, const Token& token) {
  double smallest = 1;
  for (const auto& value : eigenvalues(transition(spec, token))) smallest = smaller(smallest, value.real());
  return smallest;
}

// A token whose preconditioner is B = x I to rounding: a vanishing moment, and a center far above its logarithm.
Token amplified(Token token) {
  std::fill(token.moment.begin(), token.moment.end(), 0.0);
  token.center = 1e15;
  return token;
}

}  // namespace

Section check_eigenvalues(const CheckOptions& options) {
  const int draws = options.quick ? 50 : 400;
  Tokens tokens(options.seed);
  const Spec gdn = find_row("gdn").spec;
  const Spec base = find_row("pgdn").spec;
  const auto with_x = [&](double x) {
    Spec spec = base;
    spec.x = x;
    return spec;
  };

  double gdn_distance = 0, pgdn_distance = 0, radius = 0, edge = 0, negative = -1, outside = 10;
  for (int i = 0; i < draws; ++i) {
    const Spec pgdn = with_x(tokens.uniform(1, 2));
    const Token token = tokens.draw(1);
    gdn_distance = larger(gdn_distance, distance_to_lemma(gdn, token, 1));
    pgdn_distance = larger(pgdn_distance, distance_to_lemma(pgdn, token, key_product(pgdn, token)));
    radius = larger(radius, spectral_radius(pgdn, tokens.draw(2 / pgdn.x)));

    Token extreme = amplified(token);
    extreme.alpha = 1;
    extreme.beta = 2 / pgdn.x;
    edge = larger(edge, std::fabs(smallest_eigenvalue(pgdn, extreme) + 1));
    extreme.alpha = token.alpha;
    extreme.beta = tokens.uniform(1.001, 2) / pgdn.x;
    negative = larger(negative, smallest_eigenvalue(pgdn, extreme));
    extreme.alpha = 1;
    extreme.beta = 2.2 / pgdn.x;
    outside = smaller(outside, spectral_radius(pgdn, extreme));
  }

  Section section{"Eigenvalues of the transition alpha (I - beta k k~^T), |k| = 1",
                  "computed from the recurrence by a general QR iteration, over random alpha, beta, k, A and x",
                  {}};
  section.checks = {
      {"GDN has alpha (d-1 times) and alpha(1 - beta), distance", "Lemma E.1", gdn_distance, "<=", 1e-12},
      {"PGDN has alpha (d-1 times) and alpha(1 - beta k.k~), distance", "Lemma E.1", pgdn_distance, "<=", 1e-12},
      {"PGDN stays in the unit disk while beta x <= 2, largest |eigenvalue|", "Lemma E.2", radius, "<=", 1},
      {"beta x = 2, B = xI, alpha = 1 is the edge: eigenvalue -1, distance", "Lemma E.2", edge, "<=", 1e-12},
      {"beta x = 2.2, B = xI, alpha = 1 leaves the disk, smallest radius", "Lemma E.2", outside, ">", 1},
      {"beta x > 1, B = xI gives a negative eigenvalue, largest of them", "Lemma E.3", negative, "<", 0},
  };
  return section;
}

}  // namespace deltanet::theory
