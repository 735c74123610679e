// App. D.2: the rows with one write key, GDN, KDA, PGDN and PKDA, are DPLR with b = k. Its erase key reads the state
// before the decay and has no gain, so a = alpha * k, and its write key is beta times the preconditioned key. The
// same preconditioned key is a free write key of the row without preconditioner.

#include <cmath>
#include <string>

#include "deltanet/reference.h"
#include "deltanet/rows.h"
#include "recurrence/arrays.h"
#include "recurrence/preconditioners.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

constexpr double kExact = 1e-12;  // float64
constexpr double kSingle = 2e-5;  // float32, as in chunkwise.cc
constexpr int64_t kKey = 12, kValue = 8;

// The write keys [1,T,1,K]: linear attention with the same preconditioner and values e_1, e_2, ... keeps each of them
// in a column of its state.
Array write_keys(const Spec& row, const Arrays& inputs, int64_t T) {
  Spec spec = row;
  spec.solve = Solve::kOffline;
  spec.decay = Decay::kNone;
  spec.gain = Gain::kOne;
  Arrays in = inputs;
  for (const char* unused : {"g", "beta", "S0"}) in.erase(unused);
  Array& v = in["v"] = {{1, T, 1, T}, std::vector<double>(static_cast<std::size_t>(T * T))};
  for (int64_t t = 0; t < T; ++t) v.data[t * T + t] = 1;
  const Array S = reference_forward(spec, in).at("S_final");
  Array w{{1, T, 1, kKey}, std::vector<double>(static_cast<std::size_t>(T * kKey))};
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < kKey; ++i) w.data[t * kKey + i] = S.data[i * T + t];
  }
  return w;
}

Arrays without_preconditioner(Arrays inputs) {
  for (const char* name : {"g_atk", "beta_atk", "log_atk_scale", "A0"}) inputs.erase(name);
  return inputs;
}

Arrays as_dplr(const Spec& row, const Arrays& inputs, const Array& w, int64_t T) {
  Arrays in = without_preconditioner(inputs);
  const std::vector<double> beta = in.at("beta").data, g = in.at("g").data;
  in.erase("beta");
  Array& a = in["a"] = in.at("k");
  Array& k = in["k"] = w;
  for (int64_t t = 0; t < T; ++t) {
    for (int64_t i = 0; i < kKey; ++i) {
      const int64_t at = t * kKey + i;
      a.data[at] *= std::exp(g[row.decay == Decay::kDiag ? at : t]);
      k.data[at] *= beta[t];
    }
  }
  return in;
}

double difference(const Arrays& x, const Arrays& y) {
  return larger(relative_error(x.at("o"), y.at("o")), relative_error(x.at("S_final"), y.at("S_final")));
}

}  // namespace

Section check_dplr(const CheckOptions& options) {
  Section section{"Rows with one write key are DPLR with b = k, and preconditioners are free write keys",
                  "normwise relative errors of o and the final state",
                  {}};
  const int64_t T = options.quick ? 37 : 101;
  uint64_t seed = options.seed;
  for (const char* name : {"gdn", "kda", "pgdn", "pkda"}) {
    const Spec& row = find_row(name).spec;
    const Arrays inputs = random_inputs(row, {1, T, 1, 1, kKey, kValue, 1}, ++seed);
    const Array w = write_keys(row, inputs, T);
    const Arrays expected = reference_forward(row, inputs);

    Spec dplr = find_row("dplr_b_eq_k").spec;
    dplr.decay = row.decay;
    const Arrays given = as_dplr(row, inputs, w, T);
    const std::string text = std::string(name) + " = dplr_b_eq_k with a = α * k and k = β k̃";
    section.checks.push_back({text, "App. D.2", difference(reference_forward(dplr, given), expected), "<=", kExact});
    section.checks.push_back({text + ", chunk form in float32", "App. D.2, F",
                              difference(forward_arrays(dplr, given, {.threads = options.threads}), expected),
                              "<=", kSingle});

    if (row.key == Precond::kNone) continue;  // k itself
    Spec free = row;
    free.key = Precond::kFree;
    Arrays with_key = without_preconditioner(inputs);
    with_key["k_write"] = w;
    section.checks.push_back({std::string(name) + " = the row with k_write = k̃, in float32", "App. D.2",
                              difference(forward_arrays(free, with_key, {.threads = options.threads}), expected),
                              "<=", kSingle});
  }
  return section;
}

}  // namespace deltanet::theory
