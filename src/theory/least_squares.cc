// Theorem 3.1: with the exact inverse Gram, DeltaNet (on the key) and linear attention (on the query) both compute the
// ridge least-squares map. App. C.2: with a diagonal Gram they differ.

#include <algorithm>
#include <cmath>
#include <random>

#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "theory/linalg.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

constexpr double kRidge = 0.1;

struct Data {
  int64_t T, K, V;
  Array q, k, v;
};

Data draw(const CheckOptions& options) {
  Data data{options.quick ? 48 : 128, 16, 8, {}, {}, {}};
  std::mt19937_64 rng(options.seed);
  std::normal_distribution<double> normal;
  const auto fill = [&](int64_t width) {
    Array array{{1, data.T, 1, width}, std::vector<double>(static_cast<std::size_t>(data.T * width))};
    for (double& x : array.data) x = normal(rng);
    return array;
  };
  data.q = fill(data.K);
  data.k = fill(data.K);
  data.v = fill(data.V);
  return data;
}

Spec exact_pdn() {
  Spec spec = find_row("rls").spec;
  spec.scale = 1.0;
  return spec;
}

// Linear attention read with the inverse Gram: mesa without decay and gain.
Spec exact_pla() {
  Spec spec = find_row("mesa").spec;
  spec.decay = Decay::kNone;
  spec.gain = Gain::kOne;
  return spec;
}

// o_t = S_t q_t with S_t the minimizer of sum_{i<=t} |S k_i - v_i|^2 + ridge |S|^2, solved anew for every t.
std::vector<double> least_squares_outputs(const Data& data) {
  const auto K = static_cast<std::size_t>(data.K), V = static_cast<std::size_t>(data.V);
  std::vector<double> o;
  for (std::size_t t = 0; t < static_cast<std::size_t>(data.T); ++t) {
    Matrix a(t + 1 + K, K), b(t + 1 + K, V);
    std::copy_n(data.k.data.begin(), (t + 1) * K, a.data.begin());
    std::copy_n(data.v.data.begin(), (t + 1) * V, b.data.begin());
    for (std::size_t i = 0; i < K; ++i) a(t + 1 + i, i) = std::sqrt(kRidge);
    const Matrix map = least_squares(a, b);  // [K,V], the paper's S transposed
    for (std::size_t j = 0; j < V; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < K; ++i) sum += data.q.data[t * K + i] * map(i, j);
      o.push_back(sum);
    }
  }
  return o;
}

// The same with forgetting alpha_i and weights beta_i: S_t minimizes sum_{i<=t} (prod_{i<j<=t} alpha_j) beta_i
// |S k_i - v_i|^2 + (prod_{j<=t} alpha_j) ridge |S|^2, so that the ridge decays, too.
std::vector<double> forgetting_outputs(const Data& data, const std::vector<double>& g, const std::vector<double>& beta,
                                       bool ridge_stays) {
  const auto K = static_cast<std::size_t>(data.K), V = static_cast<std::size_t>(data.V);
  std::vector<double> o;
  for (std::size_t t = 0; t < static_cast<std::size_t>(data.T); ++t) {
    Matrix a(t + 1 + K, K), b(t + 1 + K, V);
    double kept = 1;
    for (std::size_t i = t + 1; i-- > 0;) {
      const double root = std::sqrt(kept * beta[i]);
      for (std::size_t j = 0; j < K; ++j) a(i, j) = root * data.k.data[i * K + j];
      for (std::size_t j = 0; j < V; ++j) b(i, j) = root * data.v.data[i * V + j];
      kept *= std::exp(g[i]);
    }
    for (std::size_t i = 0; i < K; ++i) a(t + 1 + i, i) = std::sqrt(kRidge * (ridge_stays ? 1 : kept));
    const Matrix map = least_squares(a, b);
    for (std::size_t j = 0; j < V; ++j) {
      double sum = 0;
      for (std::size_t i = 0; i < K; ++i) sum += data.q.data[t * K + i] * map(i, j);
      o.push_back(sum);
    }
  }
  return o;
}

double largest_difference(const std::vector<double>& x, const std::vector<double>& y) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    difference = larger(difference, std::fabs(x[i] - y[i]));
    size = larger(size, std::fabs(y[i]));
  }
  return difference / size;
}

// |P_{t-1} k / (1 + k.P_{t-1} k) - P_t k| for the last token.
double write_key_difference(const Data& data) {
  Arrays inputs = {{"q", data.q}, {"k", data.k}, {"v", data.v}, {"ridge", {{1}, {kRidge}}}};
  const auto K = static_cast<std::size_t>(data.K);
  const Array before = reference_forward(exact_pdn(), inputs).at("P_final");
  const std::vector<double> key(data.k.data.end() - data.K, data.k.data.end());
  inputs = {
      {"q", {{1, 1, 1, data.K}, key}}, {"k", {{1, 1, 1, data.K}, key}}, {"v", {{1, 1, 1, 1}, {1}}}, {"P0", before}};
  const Arrays step = reference_forward(exact_pdn(), inputs);
  std::vector<double> product(K);
  for (std::size_t i = 0; i < K; ++i) {
    for (std::size_t j = 0; j < K; ++j) product[i] += step.at("P_final").data[i * K + j] * key[j];
  }
  return largest_difference(step.at("S_final").data, product);  // v = 1, S0 = 0: the state is the write key
}

// The 2x2 example: k = v = (1, 1), ridge 1; returns the entry of the map S, read by q = (1, 0).
double two_by_two(Spec spec) {
  spec.scale = 1.0;
  Arrays inputs = {{"q", {{1, 1, 1, 2}, {1, 0}}}, {"k", {{1, 1, 1, 2}, {1, 1}}}, {"v", {{1, 1, 1, 2}, {1, 1}}}};
  inputs["ridge"] = spec.key == Precond::kRls ? Array{{1}, {1}} : Array{{1, 2}, {1, 1}};
  if (spec.gain != Gain::kOne) inputs["beta"] = {{1, 1, 1}, {1}};
  return reference_forward(spec, inputs).at("o").data[0];
}

// With forgetting and weights: which least squares rls and mesa solve, and where the two meet.
void check_forgetting(const Data& data, const Arrays& tokens, uint64_t seed, Section& section) {
  std::mt19937_64 rng(seed + 1);
  std::uniform_real_distribution<double> alpha(0.9, 1.0), weight(0.1, 1.0);
  Arrays inputs = tokens;
  Array g{{1, data.T, 1}, {}}, beta = g;
  for (int64_t t = 0; t < data.T; ++t) g.data.push_back(std::log(alpha(rng))), beta.data.push_back(weight(rng));
  Spec rls = find_row("rls").spec;
  rls.decay = Decay::kScalar;
  rls.gain = Gain::kBeta;
  rls.scale = 1.0;
  const Spec& mesa = find_row("mesa").spec;
  const Array per_head{{1}, {kRidge}}, per_channel{{1, data.K}, std::vector<double>(data.K, kRidge)};
  const auto outputs = [&](const Spec& spec, const Array& ridge) {
    Arrays given = inputs;
    given["g"] = g;
    given["beta"] = beta;
    given["ridge"] = ridge;
    return reference_forward(spec, given).at("o").data;
  };
  const auto add = [&](const char* statement, double measured, const char* relation, double bound) {
    section.checks.push_back({statement, "App. C.4", measured, relation, bound});
  };
  const auto solved = [&](bool ridge_stays) { return forgetting_outputs(data, g.data, beta.data, ridge_stays); };
  add("rls with decay and gain = weighted least squares whose ridge decays with the data",
      largest_difference(outputs(rls, per_head), solved(false)), "<=", 1e-10);
  add("row mesa = weighted least squares whose ridge stays",
      largest_difference(outputs(mesa, per_channel), solved(true)), "<=", 1e-10);
  add("with decay the two differ", largest_difference(outputs(rls, per_head), outputs(mesa, per_channel)), ">", 1e-3);
  std::fill(g.data.begin(), g.data.end(), 0.0);
  add("without decay they meet: rls = mesa at alpha = 1",
      largest_difference(outputs(rls, per_head), outputs(mesa, per_channel)), "<=", 1e-10);
}

}  // namespace

Section check_least_squares(const CheckOptions& options) {
  const Data data = draw(options);
  const Arrays tokens = {{"q", data.q}, {"k", data.k}, {"v", data.v}};
  Arrays inputs = tokens;
  inputs["ridge"] = {{1}, {kRidge}};
  const std::vector<double> pdn = reference_forward(exact_pdn(), inputs).at("o").data;
  inputs["ridge"] = {{1, data.K}, std::vector<double>(static_cast<std::size_t>(data.K), kRidge)};
  const std::vector<double> pla = reference_forward(exact_pla(), inputs).at("o").data;
  const std::vector<double> exact = least_squares_outputs(data);

  Section section{"Exact preconditioning is least squares; diagonal preconditioning is not",
                  "largest difference of o over all tokens, relative to the largest o; then one entry of S",
                  {}};
  const auto differ = [&](const char* statement, double measured) {
    section.checks.push_back({statement, "Theorem 3.1", measured, "<=", 1e-10});
  };
  differ("exact PDN (row rls) = least squares solved anew by QR for every t", largest_difference(pdn, exact));
  differ("exact PLA (row mesa without gates) = the same least squares", largest_difference(pla, exact));
  differ("exact PDN = exact PLA", largest_difference(pdn, pla));
  check_forgetting(data, tokens, options.seed, section);
  differ("write key P k/(1 + k.Pk) with the previous P = P k with the current P", write_key_difference(data));

  const auto example = [&](const char* statement, double measured, double expected) {
    section.checks.push_back({statement, "Theorem C.2", measured, "=", expected});
  };
  example("2x2 example, diagonal PLA: S = 1/2", two_by_two(find_row("pla").spec), 1.0 / 2);
  example("2x2 example, diagonal PDN: S = 1/3, so they differ", two_by_two(find_row("pdn_unstable").spec), 1.0 / 3);
  example("2x2 example, exact PDN: S = 1/3", two_by_two(find_row("rls").spec), 1.0 / 3);
  example("2x2 example, exact PLA: S = 1/3, so they agree", two_by_two(exact_pla()), 1.0 / 3);
  return section;
}

}  // namespace deltanet::theory
