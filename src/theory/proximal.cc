// App. G: every update is the minimizer of a proximal objective. For each row one token is applied to a random state;
// the objective is written down from Table 8 and tested at the new state: its gradient vanishes (central differences,
// exact for a quadratic up to rounding) and every random displacement increases it.

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

constexpr std::size_t kK = 6, kV = 5;
using Values = std::vector<double>;

struct Token {
  Values k, v, alpha, state;  // alpha [K]; state S_{t-1}, [K,V]
  double beta = 0;
  Values preconditioner;  // diagonal of P
};

// The data terms of Table 8.
enum class DataTerm { kValue, kResidual, kSquaredLoss };

// ||S - alpha S_{t-1}||^2 in the norm of 1/P, plus the data term.
double objective(DataTerm term, const Token& token, const Values& S) {
  double proximal = 0;
  Values read(kV), read_before(kV);
  for (std::size_t i = 0; i < kK; ++i) {
    for (std::size_t j = 0; j < kV; ++j) {
      const double decayed = token.alpha[i] * token.state[i * kV + j];
      proximal += std::pow(S[i * kV + j] - decayed, 2) / token.preconditioner[i];
      read[j] += token.k[i] * S[i * kV + j];
      read_before[j] += token.k[i] * decayed;
    }
  }
  double data = 0;
  for (std::size_t j = 0; j < kV; ++j) {
    switch (term) {
      case DataTerm::kValue:
        data -= 2 * read[j] * token.v[j];
        break;
      case DataTerm::kResidual:
        data -= 2 * read[j] * token.beta * (token.v[j] - read_before[j]);
        break;
      case DataTerm::kSquaredLoss:
        data += token.beta * std::pow(read[j] - token.v[j], 2);
        break;
    }
  }
  return proximal + data;
}

// B of Eq. 9, written out once more so that the reference is not judged by itself.
double stable_preconditioner(double moment, double center, double x) {
  const double r = std::log(moment + 1e-6) - center;
  return std::pow(x, -r / (1 + std::fabs(r)));
}

struct Case {
  Token token;
  Arrays inputs;
};

Case draw_case(const Spec& spec, std::mt19937_64& rng) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0.1, 0.9);
  const auto fill = [&](std::size_t size, auto& distribution) {
    Values values(size);
    for (double& x : values) x = distribution(rng);
    return values;
  };
  Case drawn;
  Token& token = drawn.token;
  token = {fill(kK, normal), fill(kV, normal), Values(kK, 1.0), fill(kK * kV, normal), uniform(rng), Values(kK, 1.0)};
  Arrays& in = drawn.inputs;
  if (spec.decay == Decay::kScalar) {
    token.alpha.assign(kK, uniform(rng));
    in["g"] = {{1, 1, 1}, {std::log(token.alpha[0])}};
  } else if (spec.decay == Decay::kDiag) {
    token.alpha = fill(kK, uniform);
    in["g"] = {{1, 1, 1, kK}, token.alpha};
    for (double& x : in["g"].data) x = std::log(x);
  }
  in["q"] = in["k"] = {{1, 1, 1, kK}, token.k};
  in["v"] = {{1, 1, 1, kV}, token.v};
  if (spec.gain != Gain::kOne) in["beta"] = {{1, 1, 1}, {token.beta}};
  in["S0"] = {{1, 1, kK, kV}, token.state};
  if (spec.key == Precond::kNone) return drawn;

  const double decay = uniform(rng), gain = uniform(rng), center = -uniform(rng);
  const Values moment = fill(kK, uniform), ridge = fill(kK, uniform);
  in["A0"] = {{1, 1, kK}, moment};
  in["g_atk"] = {{1, 1, 1}, {std::log(decay)}};
  in["beta_atk"] = {{1, 1, 1}, {gain}};
  if (spec.key == Precond::kPrevious) {
    in["ridge"] = {{1, kK}, ridge};
  } else {
    in["log_atk_scale"] = {{1}, {center}};
  }
  for (std::size_t i = 0; i < kK; ++i) {
    token.preconditioner[i] =
        spec.key == Precond::kPrevious
            ? 1 / (moment[i] + ridge[i])
            : stable_preconditioner(decay * moment[i] + gain * token.k[i] * token.k[i], center, spec.x);
  }
  return drawn;
}

struct Result {
  double gradient = 0;      // largest |dL/dS| at the update, relative to the largest at the decayed state
  double increase = 1e300;  // smallest increase over the squared size of a displacement
};

double largest_gradient(DataTerm term, const Token& token, Values S) {
  double largest = 0;
  for (double& entry : S) {
    const double at = entry, h = 1e-2;
    entry = at + h;
    const double above = objective(term, token, S);
    entry = at - h;
    const double below = objective(term, token, S);
    entry = at;
    largest = larger(largest, std::fabs(above - below) / (2 * h));
  }
  return largest;
}

Result examine(const Spec& spec, DataTerm term, int draws, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  Result result;
  for (int i = 0; i < draws; ++i) {
    const Case drawn = draw_case(spec, rng);
    const Values updated = reference_forward(spec, drawn.inputs).at("S_final").data;
    Values decayed = drawn.token.state;
    for (std::size_t j = 0; j < decayed.size(); ++j) decayed[j] *= drawn.token.alpha[j / kV];
    result.gradient = larger(
        result.gradient, largest_gradient(term, drawn.token, updated) / largest_gradient(term, drawn.token, decayed));
    const double minimum = objective(term, drawn.token, updated);
    for (int direction = 0; direction < 20; ++direction) {
      Values moved = updated;
      double size2 = 0;
      for (double& x : moved) {
        const double delta = 0.1 * normal(rng);
        x += delta;
        size2 += delta * delta;
      }
      result.increase = smaller(result.increase, (objective(term, drawn.token, moved) - minimum) / size2);
    }
  }
  return result;
}

struct Statement {
  const char* row;
  DataTerm term;
  const char* text;
  const char* paper;
};

constexpr Statement kStatements[] = {
    {"linear_attn", DataTerm::kValue, "|S - S'|^2 - 2<Sk, v>", "Table 8"},
    {"mamba2", DataTerm::kValue, "|S - a S'|^2 - 2<Sk, v>", "Table 8"},
    {"longhorn", DataTerm::kSquaredLoss, "|S - S'|^2 + b|Sk - v|^2", "Table 8"},
    {"delta_net", DataTerm::kResidual, "|S - S'|^2 - 2<Sk, b(v - S'k)>", "Table 8"},
    {"gdn", DataTerm::kResidual, "|S - a S'|^2 - 2<Sk, b(v - a S'k)>", "Table 8"},
    {"kda", DataTerm::kResidual, "|S - S'diag(a)|^2 - 2<Sk, b(v - S'diag(a)k)>", "Table 8"},
    {"kp_mamba2", DataTerm::kValue, "|S - a S'|^2_{1/P} - 2<Sk, v>", "App. G.3"},
    {"p_longhorn", DataTerm::kSquaredLoss, "|S - S'|^2_{1/P} + b|Sk - v|^2", "App. G.2"},
    {"p_longhorn_raw", DataTerm::kSquaredLoss, "the same with P = 1/(A + ridge)", "App. G.2"},
    {"pdn", DataTerm::kResidual, "|S - S'|^2_{1/P} - 2<Sk, b(v - S'k)>", "App. G.1"},
    {"pgdn", DataTerm::kResidual, "|S - a S'|^2_{1/P} - 2<Sk, b(v - a S'k)>", "App. G.1"},
    {"pkda", DataTerm::kResidual, "|S - S'diag(a)|^2_{1/P} - 2<Sk, b(v - S'diag(a)k)>", "App. G.1"},
};

}  // namespace

Section check_proximal(const CheckOptions& options) {
  Section section{
      "The update of a row minimizes its proximal objective",
      "gradient at the updated state, relative to the gradient before; S' previous state, a = alpha, b = beta",
      {}};
  double smallest_increase = 1e300;
  for (const Statement& statement : kStatements) {
    const Result result = examine(find_row(statement.row).spec, statement.term, options.quick ? 10 : 100, options.seed);
    section.checks.push_back(
        {std::string(statement.row) + ": " + statement.text, statement.paper, result.gradient, "<=", 1e-9});
    smallest_increase = smaller(smallest_increase, result.increase);
  }
  section.checks.push_back({"all of them: smallest increase by a random displacement, over its square", "App. G",
                            smallest_increase, ">", 0});
  return section;
}

}  // namespace deltanet::theory
