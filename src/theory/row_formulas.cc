#include "theory/row_formulas.h"

#include <fmt/format.h>

namespace deltanet::theory {
namespace {

bool on_key(const Spec& spec) {
  return spec.precond == Precond::kAtkStable || spec.precond == Precond::kAtkUnstable ||
         spec.precond == Precond::kAtkRaw || spec.precond == Precond::kRls || spec.precond == Precond::kIdentity ||
         spec.precond == Precond::kFree;
}

bool on_query(const Spec& spec) {
  return spec.precond == Precond::kAtq || spec.precond == Precond::kMesa || spec.gain == Gain::kComba;
}

// S_{t-1} behind the decay
std::string decayed(const Spec& spec) {
  switch (spec.decay) {
    case Decay::kNone:
      return "S_{t-1}";
    case Decay::kConst:
      return "α S_{t-1}";
    case Decay::kScalar:
      return "α_t S_{t-1}";
    case Decay::kDiag:
      return "S_{t-1} Diag(α_t)";
  }
  return "";
}

// The gain where it is more than beta; empty otherwise.
std::string gain_formula(const Spec& spec) {
  if (spec.norm == Norm::kAlphaBeta) return "β_t / (α_t + β_t k_tᵀ (B_t ⊙ k_t))";
  switch (spec.gain) {
    case Gain::kOne:
    case Gain::kBeta:
    case Gain::kComba:
      return "";
    case Gain::kLonghorn:
      return on_key(spec) ? "β_t / (1 + β_t k_tᵀ k̃_t)" : "β_t / (1 + β_t k_tᵀ k_t)";
    case Gain::kNlms:
      return "1 / ‖k_t‖²";
    case Gain::kEfla:
      return "(1 - exp(-β_t λ_t)) / λ_t,  λ_t = ‖k_t‖²";
  }
  return "";
}

const char* where_gain(const Spec& spec) {
  if (spec.norm == Norm::kAlphaBeta) return "Table 7";
  if (spec.gain == Gain::kLonghorn && on_key(spec)) return "Table 8";
  if (spec.gain == Gain::kNlms) return "Table 2; 0 where k_t = 0";
  if (spec.gain == Gain::kEfla) return "Table 2; β_t where k_t = 0";
  return "Table 2";
}

const char* where_state(const Spec& spec) {
  if (spec.precond == Precond::kRls) return "Eq. 5";
  if (spec.gain == Gain::kComba) return "Table 2";
  if (spec.solve == Solve::kOffline) return on_key(spec) ? "App. G.3" : "Sec. 5, offline";
  if (spec.precond == Precond::kAtkStable && spec.gain == Gain::kBeta) return "Eq. 9";
  const bool delta_rule = spec.gain == Gain::kBeta && spec.decay == Decay::kNone && !on_key(spec);
  return delta_rule ? "Eq. 4" : "Sec. 5, online";
}

RowFormula state_formula(const Spec& spec) {
  const std::string before = decayed(spec), query = on_query(spec) ? "o_t = S_t q̃_t" : "o_t = S_t q_t";
  const char* key = on_key(spec) ? "k̃_tᵀ" : "k_tᵀ";
  const char* erase_key = spec.erase == Erase::kFree ? "ê_t" : "k_t";
  if (spec.solve == Solve::kDplr) {
    return {fmt::format("S_t = S_{{t-1}} (Diag(α_t) - a_t b_tᵀ) + v_t k_tᵀ,  {}", query), "Eq. D.2.1"};
  }
  if (spec.gain == Gain::kComba) {
    return {fmt::format("S_t = {0} - β̃_t S_{{t-1}} k_t {1} + β_t v_t {1},  {2}", before, key, query),
            where_state(spec)};
  }
  const std::string gain = !gain_formula(spec).empty() ? "ε_t " : spec.gain == Gain::kOne ? "" : "β_t ";
  if (spec.solve == Solve::kOffline) {
    return {fmt::format("S_t = {} + {}v_t {},  {}", before, gain, key, query), where_state(spec)};
  }
  return {fmt::format("S_t = {0} + {1}(v_t - {0} {4}) {2},  {3}", before, gain, key, query, erase_key),
          where_state(spec)};
}

void add_moment(const Spec& spec, std::vector<RowFormula>& lines) {
  const char* decay = !spec.tie_gates ? "α_tᴾ " : spec.decay == Decay::kNone ? "" : "α_t ";
  const char* gain = !spec.tie_gates ? "β_tᴾ " : spec.gain == Gain::kOne ? "" : "β_t ";
  const char* where = spec.precond == Precond::kAtkStable && !spec.tie_gates ? "Eq. 9" : "Eq. 7, App. E.3";
  lines.push_back({fmt::format("A_t = {}A_{{t-1}} + {}(k_t ⊙ k_t)", decay, gain), where});
}

void add_stable(const Spec& spec, std::vector<RowFormula>& lines) {
  const std::string x = row_option(spec, "x"), eps = row_option(spec, "eps");
  add_moment(spec, lines);
  const bool fast = spec.squash == Squash::kFast, symmetric = spec.range == Range::kSym;
  lines.push_back({fmt::format("r_t = log(A_t) - μ,  s_t = {}", fast ? "r_t / (1 + |r_t|)" : "tanh(r_t)"),
                   fmt::format("{}; log(A_t + {}) here", fast ? "Eq. 9" : "App. E.3", eps)});
  const char* exponent = symmetric ? "s_t" : spec.range == Range::kAmplify ? "(s_t - 1)/2" : "(s_t + 1)/2";
  const char* low = spec.range == Range::kAmplify ? "1" : "1/x";
  const char* high = spec.range == Range::kDampen ? "1" : "x";
  lines.push_back({fmt::format("B_t = exp(-log(x) {}),  x = {}", exponent, x),
                   fmt::format("{}; in [{}, {}]", symmetric ? "Eq. 9" : "App. E.3", low, high)});
  if (spec.norm == Norm::kInv) {
    lines.push_back({"k̃_t = B_t ⊙ k_t / (k_tᵀ (B_t ⊙ k_t))", "Table 7; 0 where k_t = 0"});
  } else if (spec.norm == Norm::kOnePlus) {
    lines.push_back({"k̃_t = B_t ⊙ k_t / (1 + k_tᵀ (B_t ⊙ k_t))", "Table 7"});
  } else {
    lines.push_back({"k̃_t = B_t ⊙ k_t", "Eq. 9"});
  }
}

void add_preconditioner(const Spec& spec, std::vector<RowFormula>& lines) {
  switch (spec.precond) {
    case Precond::kNone:
      if (spec.gain == Gain::kComba) lines.push_back({"q̃_t = q_t - d k_t", "Table 2"});
      break;
    case Precond::kFree:
      lines.push_back({"k̃_t free", "k_write"});
      break;
    case Precond::kIdentity:
      lines.push_back({"k̃_t = k_t", "Sec. 4.1: two keys, no preconditioner"});
      break;
    case Precond::kAtkStable:
      add_stable(spec, lines);
      break;
    case Precond::kAtkUnstable:
      add_moment(spec, lines);
      lines.push_back({"p_t = 1 / (A_{t-1} + Λ),  k̃_t = p_t ⊙ k_t / (1 + k_tᵀ (p_t ⊙ k_t))", "Eq. 8"});
      break;
    case Precond::kAtkRaw:
      add_moment(spec, lines);
      lines.push_back({"k̃_t = k_t ⊘ (A_{t-1} + Λ)", "App. G.2"});
      break;
    case Precond::kRls:
      lines.push_back({"k̃_t = P_{t-1} k_t / (1 + k_tᵀ P_{t-1} k_t)", "Sec. 3.1"});
      lines.push_back({"P_t = P_{t-1} - P_{t-1} k_t k_tᵀ P_{t-1} / (1 + k_tᵀ P_{t-1} k_t) = G_t⁻¹,  P_0 = I/λ",
                       "App. C.4, Sherman-Morrison"});
      break;
    case Precond::kAtq:
      add_moment(spec, lines);
      lines.push_back({"q̃_t = q_t ⊘ (A_t + Λ)", "Eq. 8"});
      break;
    case Precond::kMesa:
      lines.push_back({fmt::format("G_t = {}G_{{t-1}} + {}k_t k_tᵀ", spec.decay == Decay::kNone ? "" : "α_t ",
                                   spec.gain == Gain::kOne ? "" : "β_t "),
                       "Gram of the keys, Eq. 2"});
      lines.push_back({"q̃_t = (G_t + Λ)⁻¹ q_t", "Eq. 3"});
      break;
  }
}

void add_tying(const Spec& spec, std::vector<RowFormula>& lines) {
  switch (spec.tying) {
    case Tying::kGeneral:
      lines.push_back({"a_t, b_t free", "Table 3"});
      break;
    case Tying::kRwkv7:
      lines.push_back({"a_t = kk_t,  b_t = η_t ⊙ kk_t", "Table 3 has a_t = b_t; η_t is RWKV-7's own"});
      break;
    case Tying::kAEqB:
      lines.push_back({"b_t = a_t", "Table 3"});
      break;
    case Tying::kBEqK:
      lines.push_back({"b_t = k_t", "Eq. D.2.2"});
      break;
  }
}

// What the symbols are called as inputs.
std::string names(const Spec& spec) {
  std::string text;
  const auto add = [&](bool used, const char* symbol, const char* name) {
    if (used) text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", symbol, name);
  };
  const bool dplr = spec.solve == Solve::kDplr;
  const bool moment = spec.precond == Precond::kAtkStable || spec.precond == Precond::kAtkUnstable ||
                      spec.precond == Precond::kAtkRaw || spec.precond == Precond::kAtq;
  add(spec.decay == Decay::kConst, "α", "exp(g), one for each head");
  add(spec.decay == Decay::kScalar, "α_t", "exp(g), one for each token and head");
  add(spec.decay == Decay::kDiag, "α_t", "exp(g), one for each token and key dimension");
  add(!dplr && spec.gain != Gain::kOne && spec.gain != Gain::kNlms, "β_t", "beta");
  add(spec.gain == Gain::kComba, "β̃_t", "beta_erase");
  add(spec.erase == Erase::kFree, "ê_t", "k_erase");
  add(moment && !spec.tie_gates, "α_tᴾ", "exp(g_atk)");
  add(moment && !spec.tie_gates, "β_tᴾ", "beta_atk");
  add(spec.precond == Precond::kAtkStable, "μ", "log_atk_scale");
  add(spec.precond == Precond::kRls, "λ", "ridge");
  add(spec.precond == Precond::kMesa || (moment && spec.precond != Precond::kAtkStable), "Λ", "ridge");
  add(dplr && spec.tying == Tying::kRwkv7, "η_t", "eta");
  return text;
}

}  // namespace

std::string row_option(const Spec& spec, std::string_view key) {
  for (const auto& [name, value] : options(spec)) {
    if (name == key) return value;
  }
  return "";
}

std::vector<RowFormula> row_formulas(const Spec& spec) {
  std::vector<RowFormula> lines = {state_formula(spec)};
  if (spec.solve == Solve::kDplr) {
    add_tying(spec, lines);
  } else {
    if (const std::string gain = gain_formula(spec); !gain.empty())
      lines.push_back({"ε_t = " + gain, where_gain(spec)});
    add_preconditioner(spec, lines);
  }
  if (const std::string inputs = names(spec); !inputs.empty()) lines.push_back({inputs, ""});
  const std::string scale = !spec.scale ? "q_t is multiplied by K^-1/2" : "";
  const std::string scaled =
      spec.scale && *spec.scale != 1 ? "q_t is multiplied by " + row_option(spec, "scale") : scale;
  const std::string normed = spec.l2norm ? "q_t and k_t are normalized to length 1" : "";
  lines.push_back({fmt::format("S_t is [V,K], our array its transpose{}{}{}{}", scaled.empty() ? "" : "; ", scaled,
                               normed.empty() ? "" : "; ", normed),
                   ""});
  return lines;
}

}  // namespace deltanet::theory
