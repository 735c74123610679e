// Theorem 3.2: on noiseless regression v = S* k with keys and queries uniform on the unit sphere, DeltaNet comes closer
// to least squares than linear attention from t0 = d + 1 on. Monte Carlo on the rows themselves, against the closed
// forms of App. C.5:
//   linear attention   (1 - t/d + t(t-1)/d^2) |S*|^2/d
//   DeltaNet           (1 - beta(2-beta)/d)^t |S*|^2/d, the mean of the proof's recursion; at most |S*|^2/d

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

constexpr int64_t kDim = 16, kValues = 4, kTokens = 3 * kDim;

struct Experiment {
  int64_t trials;
  std::vector<double> map;  // S* transposed, [kDim, kValues]
  double map_norm2 = 0;
  Arrays inputs;              // q, k, v
  std::vector<double> exact;  // S* q
};

Experiment make_experiment(const CheckOptions& options) {
  Experiment experiment{options.quick ? 1000 : 6000, {}, 0, {}, {}};
  std::mt19937_64 rng(options.seed);
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < kDim * kValues; ++i) {
    experiment.map.push_back(normal(rng));
    experiment.map_norm2 += experiment.map.back() * experiment.map.back();
  }
  const auto on_sphere = [&] {
    Array array{{experiment.trials, kTokens, 1, kDim}, {}};
    std::vector<double> x(kDim);
    for (int64_t i = 0; i < experiment.trials * kTokens; ++i) {
      double norm2 = 0;
      for (double& entry : x) entry = normal(rng), norm2 += entry * entry;
      for (double entry : x) array.data.push_back(entry / std::sqrt(norm2));
    }
    return array;
  };
  const auto mapped = [&](const Array& x) {
    std::vector<double> y;
    for (std::size_t i = 0; i < x.data.size(); i += kDim) {
      for (std::size_t j = 0; j < kValues; ++j) {
        double sum = 0;
        for (std::size_t c = 0; c < kDim; ++c) sum += x.data[i + c] * experiment.map[c * kValues + j];
        y.push_back(sum);
      }
    }
    return y;
  };
  experiment.inputs["q"] = on_sphere();
  experiment.inputs["k"] = on_sphere();
  experiment.inputs["v"] = {{experiment.trials, kTokens, 1, kValues}, mapped(experiment.inputs["k"])};
  experiment.exact = mapped(experiment.inputs["q"]);
  return experiment;
}

// Mean and standard error of |o_t - S* q_t|^2 for every t = 1, 2, ...
struct Errors {
  std::vector<double> mean, standard_error;
};

Errors errors_of(const Experiment& experiment, const Array& o) {
  Errors errors;
  const auto trials = static_cast<double>(experiment.trials);
  for (int64_t t = 0; t < kTokens; ++t) {
    double sum = 0, sum2 = 0;
    for (int64_t trial = 0; trial < experiment.trials; ++trial) {
      double error = 0;
      for (int64_t j = 0; j < kValues; ++j) {
        const auto at = static_cast<std::size_t>((trial * kTokens + t) * kValues + j);
        error += std::pow(o.data[at] - experiment.exact[at], 2);
      }
      sum += error;
      sum2 += error * error;
    }
    const double mean = sum / trials;
    errors.mean.push_back(mean);
    errors.standard_error.push_back(std::sqrt((sum2 / trials - mean * mean) / trials));
  }
  return errors;
}

// The largest distance between measured means and a formula in t, counted in standard errors, over t >= first.
double deviation(const Errors& errors, int64_t first, const std::function<double(double)>& formula) {
  double worst = 0;
  for (int64_t t = first; t <= kTokens; ++t) {
    const auto i = static_cast<std::size_t>(t - 1);
    worst = larger(worst, std::fabs(errors.mean[i] - formula(static_cast<double>(t))) / errors.standard_error[i]);
  }
  return worst;
}

// The first t >= 1 from which the closed form of linear attention reaches DeltaNet's bound: d^2 - td + t(t-1) >= d^2.
int64_t crossover(int64_t d) {
  int64_t t = 1;
  while (t * (t - 1) < t * d) ++t;
  return t;
}

}  // namespace

Section check_regression(const CheckOptions& options) {
  const Experiment experiment = make_experiment(options);
  const double bound = experiment.map_norm2 / kDim;
  const double d = kDim;
  Section section{
      "DeltaNet approximates least squares better than linear attention from t0 = d + 1 on",
      "Monte Carlo, d = 16, DeltaNet with beta 0.25 and 1; distances from closed forms in standard errors (se)",
      {}};
  const auto add = [&](std::string statement, const char* paper, double measured, const char* relation, double limit) {
    section.checks.push_back({std::move(statement), paper, measured, relation, limit});
  };

  Spec linear = find_row("linear_attn").spec, delta = find_row("delta_net").spec;
  linear.scale = delta.scale = 1.0;
  const Errors la = errors_of(experiment, reference_forward(linear, experiment.inputs).at("o"));
  constexpr double kMaxDeviation = 5;  // reached by chance once in some 30,000 seeds
  add("linear attention errs by (1 - t/d + t(t-1)/d^2)|S*|^2/d, t = d..3d, in se", "App. C.5",
      deviation(la, kDim, [&](double t) { return (1 - t / d + t * (t - 1) / (d * d)) * bound; }), "<=", kMaxDeviation);

  Arrays inputs = experiment.inputs;
  double worst_ratio = 0, worst_growth = 0, worst_deviation = 0;
  for (const double beta : {0.25, 1.0}) {
    inputs["beta"] = {{experiment.trials, kTokens, 1},
                      std::vector<double>(static_cast<std::size_t>(experiment.trials * kTokens), beta)};
    const Arrays results = reference_forward(delta, inputs);
    const Errors dn = errors_of(experiment, results.at("o"));
    worst_deviation = larger(
        worst_deviation, deviation(dn, 1, [&](double t) { return std::pow(1 - beta * (2 - beta) / d, t) * bound; }));
    for (int64_t t = kDim + 1; t <= kTokens; ++t) {
      const auto i = static_cast<std::size_t>(t - 1);
      worst_ratio = larger(worst_ratio, dn.mean[i] / la.mean[i]);
    }
    const std::vector<double>& state = results.at("S_final").data;
    for (std::size_t start = 0; start < state.size(); start += experiment.map.size()) {
      double norm2 = 0;
      for (std::size_t i = 0; i < experiment.map.size(); ++i) {
        norm2 += std::pow(state[start + i] - experiment.map[i], 2);
      }
      worst_growth = larger(worst_growth, norm2 / experiment.map_norm2);
    }
  }
  add("DeltaNet errs by (1 - beta(2-beta)/d)^t |S*|^2/d, t = 1..3d, in se", "App. C.5", worst_deviation,
      "<=", kMaxDeviation);
  add("DeltaNet never exceeds |S*|^2/d: |S_t - S*|^2/|S*|^2, largest of all trials", "App. C.5", worst_growth, "<=", 1);

  int64_t wrong = 0;
  for (int64_t dim = 2; dim <= 1024; ++dim) wrong += crossover(dim) != dim + 1;
  add("dimensions d = 2..1024 in which the bounds do not cross at t0 = d + 1", "Theorem 3.2",
      static_cast<double>(wrong), "=", 0);
  add("mean error of DeltaNet over linear attention's, t = d+1..3d, largest", "Theorem 3.2", worst_ratio, "<=", 1);
  return section;
}

}  // namespace deltanet::theory
