// The table of rows, the vocabulary of their options and the rules that a combination must keep.

#include "deltanet/rows.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>

#include "base/edit_distance.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

std::vector<Row> make_rows() {
  constexpr Solve kOffline = Solve::kOffline;
  constexpr Decay kConst = Decay::kConst, kScalar = Decay::kScalar, kDiag = Decay::kDiag;
  constexpr Precond kStable = Precond::kAtkStable, kUnstable = Precond::kAtkUnstable;

  return {
      // Table 2 of the paper, in its order.
      {"delta_net", {}, "Table 2", "DeltaNet"},
      {"gdn", {.decay = kScalar}, "Table 2", "Gated DeltaNet"},
      {"kda", {.decay = kDiag}, "Table 2", "Kimi Delta Attention"},
      {"linear_attn", {.solve = kOffline, .gain = Gain::kOne}, "Table 2", "Linear attention"},
      {"retnet", {.solve = kOffline, .decay = kConst, .gain = Gain::kOne}, "Table 2", "RetNet"},
      {"mamba2", {.solve = kOffline, .decay = kScalar, .gain = Gain::kOne}, "Table 2", "Mamba-2"},
      {"gla", {.solve = kOffline, .decay = kDiag, .gain = Gain::kOne}, "Table 2", "Gated linear attention"},
      {"mesa",
       {.solve = kOffline, .decay = kScalar, .precond = Precond::kMesa, .scale = 1.0},
       "Table 2, App. C.4",
       "MesaNet: the query is solved against the key Gram"},
      {"comba",
       {.decay = kScalar, .gain = Gain::kComba},
       "Table 2",
       "Comba: separate write and erase gains, query q - d k"},
      {"longhorn", {.gain = Gain::kLonghorn}, "Table 2", "Longhorn: implicit step"},
      {"nlms", {.gain = Gain::kNlms}, "Table 2", "Normalized least mean squares"},
      {"efla", {.gain = Gain::kEfla}, "Table 2", "EFLA: exact solution of the delta rule's ODE"},
      {"pdn", {.precond = kStable}, "Table 2, Eq. 9", "Preconditioned DeltaNet"},
      {"pgdn", {.decay = kScalar, .precond = kStable}, "Table 2, Eq. 9", "Preconditioned Gated DeltaNet"},
      {"pkda", {.decay = kDiag, .precond = kStable}, "Table 2, Eq. 9", "Preconditioned KDA"},
      {"pla",
       {.solve = kOffline, .gain = Gain::kOne, .precond = Precond::kAtq},
       "Table 2, App. F.2",
       "Preconditioned linear attention"},
      {"p_mamba2",
       {.solve = kOffline, .decay = kScalar, .gain = Gain::kOne, .precond = Precond::kAtq},
       "Table 2, App. F.2",
       "Preconditioned Mamba-2, on the query"},
      {"pgla",
       {.solve = kOffline, .decay = kDiag, .gain = Gain::kOne, .precond = Precond::kAtq},
       "Table 2, App. F.2",
       "Preconditioned GLA"},

      // Exact least squares, and the rows of the proximal view.
      {"rls",
       {.gain = Gain::kOne, .precond = Precond::kRls},
       "Theorem 3.1, Eq. 5",
       "Mesalayer: recursive least squares with the exact inverse Gram"},
      {"p_longhorn",
       {.gain = Gain::kLonghorn, .precond = kStable},
       "App. G.2",
       "Preconditioned Longhorn, stable preconditioner"},
      {"p_longhorn_raw",
       {.gain = Gain::kLonghorn, .precond = Precond::kAtkRaw},
       "App. G.2",
       "Preconditioned Longhorn, P = 1/(A + ridge)"},
      {"kp_mamba2",
       {.solve = kOffline, .decay = kScalar, .gain = Gain::kOne, .precond = kStable},
       "App. G.3",
       "Preconditioned Mamba-2, on the key"},

      // Ablations.
      {"mamba2_gain", {.solve = kOffline, .decay = kScalar}, "App. E.3", "Mamba-2 with a gain"},
      {"p_mamba2_gain",
       {.solve = kOffline, .decay = kScalar, .precond = Precond::kAtq},
       "App. E.3, Table 6",
       "Preconditioned Mamba-2 with a gain"},
      {"pdn_unstable", {.precond = kUnstable}, "App. E.3, F.1", "PDN with the Sherman-Morrison write key"},
      {"pgdn_unstable",
       {.decay = kScalar, .precond = kUnstable},
       "App. E.3, Table 6",
       "PGDN with the Sherman-Morrison write key"},
      {"pkda_unstable",
       {.decay = kDiag, .precond = kUnstable},
       "App. E.3, F.1",
       "PKDA with the Sherman-Morrison write key"},
      {"pgdn_tied",
       {.decay = kScalar, .precond = kStable, .tie_gates = true},
       "App. E.3, Table 6",
       "PGDN whose preconditioner shares alpha and beta"},
      {"pgdn_identity",
       {.decay = kScalar, .precond = Precond::kIdentity},
       "Sec. 4.1",
       "PGDN with B = 1: GDN with distinct read and write keys"},
      {"pgdn_tanh",
       {.decay = kScalar, .precond = kStable, .squash = Squash::kTanh},
       "App. E.3",
       "PGDN with a tanh squash"},
      {"pgdn_amplify",
       {.decay = kScalar, .precond = kStable, .range = Range::kAmplify},
       "App. E.3",
       "PGDN with B in [1, x]"},
      {"pgdn_dampen",
       {.decay = kScalar, .precond = kStable, .range = Range::kDampen},
       "App. E.3",
       "PGDN with B in [1/x, 1]"},
      {"pgdn_x2",
       {.decay = kScalar, .precond = kStable, .x = 2.0, .eps = 1e-4},
       "App. E.3",
       "PGDN at the edge of stability"},
      {"pgdn_norm_inv",
       {.decay = kScalar, .precond = kStable, .norm = Norm::kInv},
       "App. E.3, Table 7",
       "PGDN with write key Bk / (k.Bk)"},
      {"pgdn_norm_one_plus",
       {.decay = kScalar, .precond = kStable, .norm = Norm::kOnePlus},
       "App. E.3, Table 7",
       "PGDN with write key Bk / (1 + k.Bk)"},
      {"pgdn_norm_alpha_beta",
       {.decay = kScalar, .precond = kStable, .norm = Norm::kAlphaBeta},
       "App. E.3, Table 7",
       "PGDN with gain beta / (alpha + beta k.Bk)"},
      {"pkda_tanh_one_plus",
       {.decay = kDiag, .precond = kStable, .squash = Squash::kTanh, .norm = Norm::kOnePlus},
       "App. E.3",
       "PKDA with a tanh squash and write key Bk / (1 + k.Bk)"},

      // Keys that the caller gives: any preconditioner, and gates of the erase key as GDN-2 has them.
      {"delta_net_free", {.precond = Precond::kFree}, "App. D.2", "DeltaNet with a write key of its own, k_write"},
      {"gdn_free",
       {.decay = kScalar, .precond = Precond::kFree},
       "App. D.2",
       "Gated DeltaNet with a write key of its own, k_write"},
      {"kda_free", {.decay = kDiag, .precond = Precond::kFree}, "App. D.2", "KDA with a write key of its own, k_write"},
      {"kda_erase",
       {.decay = kDiag, .erase = Erase::kFree},
       "App. D.2",
       "KDA with an erase key of its own, k_erase, behind the decay"},

      // Diagonal plus low rank.
      {"dplr", {.solve = Solve::kDplr, .decay = kDiag}, "App. D.2", "Diagonal plus low rank, a and b free"},
      {"dplr_a_eq_b",
       {.solve = Solve::kDplr, .decay = kDiag, .tying = Tying::kAEqB},
       "App. D.2, Table 3",
       "Diagonal plus low rank, b = a"},
      {"dplr_b_eq_k",
       {.solve = Solve::kDplr, .decay = kDiag, .tying = Tying::kBEqK},
       "App. D.2, Table 3",
       "Diagonal plus low rank, b = k: two interactions instead of four"},
      {"rwkv7",
       {.solve = Solve::kDplr, .decay = kDiag, .tying = Tying::kRwkv7, .scale = 1.0},
       "App. D.2, Table 3",
       "RWKV-7: a = kk, b = eta kk"},
  };
}

// ---- the vocabulary

template <class E>
struct Word {
  std::string_view name;
  E value;
};
constexpr Word<Solve> kSolves[] = {{"online", Solve::kOnline}, {"offline", Solve::kOffline}, {"dplr", Solve::kDplr}};
constexpr Word<Decay> kDecays[] = {
    {"none", Decay::kNone}, {"const", Decay::kConst}, {"scalar", Decay::kScalar}, {"diag", Decay::kDiag}};
constexpr Word<Gain> kGains[] = {{"one", Gain::kOne},   {"beta", Gain::kBeta}, {"longhorn", Gain::kLonghorn},
                                 {"nlms", Gain::kNlms}, {"efla", Gain::kEfla}, {"comba", Gain::kComba}};
constexpr Word<Precond> kPreconds[] = {{"none", Precond::kNone},
                                       {"identity", Precond::kIdentity},
                                       {"atk_stable", Precond::kAtkStable},
                                       {"atk_unstable", Precond::kAtkUnstable},
                                       {"atk_raw", Precond::kAtkRaw},
                                       {"rls", Precond::kRls},
                                       {"atq", Precond::kAtq},
                                       {"mesa", Precond::kMesa},
                                       {"free", Precond::kFree}};
constexpr Word<Erase> kErases[] = {{"key", Erase::kKey}, {"free", Erase::kFree}};
constexpr Word<Squash> kSquashes[] = {{"fast", Squash::kFast}, {"tanh", Squash::kTanh}};
constexpr Word<Range> kRanges[] = {{"sym", Range::kSym}, {"amplify", Range::kAmplify}, {"dampen", Range::kDampen}};
constexpr Word<Norm> kNorms[] = {
    {"none", Norm::kNone}, {"inv", Norm::kInv}, {"one_plus", Norm::kOnePlus}, {"alpha_beta", Norm::kAlphaBeta}};
constexpr Word<Tying> kTyings[] = {
    {"general", Tying::kGeneral}, {"rwkv7", Tying::kRwkv7}, {"a_eq_b", Tying::kAEqB}, {"b_eq_k", Tying::kBEqK}};

// "a, b or c"
template <class Names>
std::string alternatives(const Names& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text;
}

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return out;
}

std::string number_text(double value) {
  char buffer[32];
  return {buffer, std::to_chars(buffer, buffer + sizeof buffer, value).ptr};  // shortest text that reads back the same
}

bool read_number(std::string_view text, double& value) {
  const char* end = text.data() + text.size();
  double parsed = 0;
  const auto [rest, status] = std::from_chars(text.data(), end, parsed);
  if (status != std::errc() || rest != end || !std::isfinite(parsed)) return false;
  value = parsed;
  return true;
}

struct Option {
  std::string_view key;
  std::string (*get)(const Spec&);
  bool (*set)(Spec&, std::string_view);  // false when the value is not understood
  std::string expected;
};

template <auto kMember, const auto& kWords>
Option choice(std::string_view key) {
  std::vector<std::string_view> names;
  for (const auto& word : kWords) names.push_back(word.name);
  return {key,
          [](const Spec& spec) {
            const auto word = std::find_if(std::begin(kWords), std::end(kWords),
                                           [&](const auto& w) { return w.value == spec.*kMember; });
            return word == std::end(kWords) ? std::string("?") : std::string(word->name);
          },
          [](Spec& spec, std::string_view text) {
            for (const auto& word : kWords) {
              if (word.name == text) return spec.*kMember = word.value, true;
            }
            return false;
          },
          alternatives(names)};
}

template <auto kMember>
Option number(std::string_view key) {
  return {key, [](const Spec& spec) { return number_text(spec.*kMember); },
          [](Spec& spec, std::string_view text) { return read_number(text, spec.*kMember); }, "a number"};
}

template <auto kMember>
Option flag(std::string_view key) {
  return {key, [](const Spec& spec) { return std::string(spec.*kMember ? "true" : "false"); },
          [](Spec& spec, std::string_view text) {
            const std::string word = lower(text);  // Python writes True
            if (word != "true" && word != "false" && word != "1" && word != "0") return false;
            spec.*kMember = word == "true" || word == "1";
            return true;
          },
          "true or false"};
}

Option scale_option() {
  return {"scale", [](const Spec& spec) { return spec.scale ? number_text(*spec.scale) : std::string("none"); },
          [](Spec& spec, std::string_view text) {
            const std::string word = lower(text);
            if (word == "none" || word == "null") return spec.scale.reset(), true;
            double value = 0;
            if (!read_number(text, value)) return false;
            spec.scale = value;
            return true;
          },
          "a number, or none for K^-1/2"};
}

const std::vector<Option>& option_table() {
  static const std::vector<Option> table = {
      choice<&Spec::solve, kSolves>("solve"),
      choice<&Spec::decay, kDecays>("decay"),
      choice<&Spec::gain, kGains>("gain"),
      choice<&Spec::erase, kErases>("erase"),
      choice<&Spec::precond, kPreconds>("precond"),
      choice<&Spec::squash, kSquashes>("squash"),
      choice<&Spec::range, kRanges>("range"),
      choice<&Spec::norm, kNorms>("norm"),
      choice<&Spec::tying, kTyings>("tying"),
      flag<&Spec::tie_gates>("tie_gates"),
      number<&Spec::x>("x"),
      number<&Spec::eps>("eps"),
      flag<&Spec::l2norm>("l2norm"),
      number<&Spec::l2norm_eps>("l2norm_eps"),
      scale_option(),
  };
  return table;
}

const Option* find_option(std::string_view key) {
  const auto& table = option_table();
  const auto found = std::find_if(table.begin(), table.end(), [&](const Option& o) { return o.key == key; });
  return found == table.end() ? nullptr : &*found;
}

Error bad(std::string_view operation, std::string_view argument, std::string_view given, std::string_view expected) {
  std::string text = "[";
  text.append(operation).append("] ").append(argument).append(": given ").append(given);
  return Error(text.append("; expected ").append(expected));
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

std::vector<std::string_view> nearest_names(std::string_view name, std::size_t count) {
  std::vector<std::string_view> names;
  for (const Row& row : rows()) names.push_back(row.name);
  std::stable_sort(names.begin(), names.end(), [&](std::string_view a, std::string_view b) {
    return edit_distance(lower(name), a) < edit_distance(lower(name), b);
  });
  names.resize(std::min(count, names.size()));
  return names;
}

}  // namespace

const std::vector<Row>& rows() {
  static const std::vector<Row> table = make_rows();
  return table;
}

const Row& find_row(std::string_view name) {
  if (name == "dn") name = "delta_net";
  for (const Row& row : rows()) {
    if (row.name == name) return row;
  }
  throw bad("find_row", "row", quoted(name), "the name of a row, such as " + alternatives(nearest_names(name, 3)));
}

void set_option(Spec& spec, std::string_view key, std::string_view value) {
  const Option* option = find_option(key);
  if (option == nullptr) {
    std::vector<std::string_view> keys;
    for (const Option& known : option_table()) keys.push_back(known.key);
    throw bad("set_option", "key", quoted(key), alternatives(keys));
  }
  if (!option->set(spec, value)) throw bad("set_option", key, quoted(value), option->expected);
}

std::vector<std::pair<std::string, std::string>> options(const Spec& spec) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Option& option : option_table()) pairs.emplace_back(option.key, option.get(spec));
  return pairs;
}

void validate(const Spec& spec) {
  const auto require = [&](bool holds, std::string_view key, std::string_view expected) {
    if (!holds) throw bad("validate", key, find_option(key)->get(spec), expected);
  };

  require(spec.x >= 1 && spec.x <= 2, "x", "a number in [1, 2] (beyond 2 the recurrence is unstable)");
  for (const auto& [key, eps] : {std::pair("eps", spec.eps), std::pair("l2norm_eps", spec.l2norm_eps)}) {
    require(eps >= std::numeric_limits<float>::min() && eps <= std::numeric_limits<float>::max(), key,
            "a positive number that float32 holds, 1.2e-38 to 3.4e38");
  }
  require(!spec.scale || std::isfinite(*spec.scale), "scale", "a finite number, or none for K^-1/2");

  const bool stable = spec.precond == Precond::kAtkStable;
  const bool diagonal_moment = stable || spec.precond == Precond::kAtkUnstable || spec.precond == Precond::kAtkRaw ||
                               spec.precond == Precond::kAtq;
  if (!stable) {
    require(spec.squash == Squash::kFast, "squash", "fast, unless precond is atk_stable");
    require(spec.range == Range::kSym, "range", "sym, unless precond is atk_stable");
    require(spec.norm == Norm::kNone, "norm", "none, unless precond is atk_stable");
  }
  if (spec.norm == Norm::kAlphaBeta) {
    require(spec.decay != Decay::kDiag, "decay", "none, const or scalar with norm alpha_beta, which divides by alpha");
    require(spec.gain == Gain::kBeta, "gain", "beta with norm alpha_beta, which replaces the gain");
  }
  require(!spec.tie_gates || diagonal_moment, "tie_gates",
          "false, unless precond is atk_stable, atk_unstable, atk_raw or atq");

  switch (spec.precond) {
    case Precond::kRls:
      require(spec.solve == Solve::kOnline, "solve", "online with precond rls");
      require(spec.decay == Decay::kNone, "decay", "none with precond rls");
      require(spec.gain == Gain::kOne, "gain", "one with precond rls");
      break;
    case Precond::kMesa:
      require(spec.solve == Solve::kOffline, "solve", "offline with precond mesa");
      require(spec.decay != Decay::kDiag, "decay", "none, const or scalar with precond mesa");
      require(spec.gain == Gain::kOne || spec.gain == Gain::kBeta, "gain", "one or beta with precond mesa");
      break;
    default:
      break;
  }
  if (spec.erase == Erase::kFree) {
    require(spec.solve != Solve::kOffline, "erase", "key with solve offline, which erases nothing");
    require(spec.solve != Solve::kDplr, "erase", "key with solve dplr, whose erase key is a");
    require(spec.precond != Precond::kFree, "erase",
            "key with precond free: no other key would be read, so that the erase key can be k itself");
    require(spec.precond != Precond::kRls, "erase", "key with precond rls, which is exact for the key that it erases");
    require(
        spec.gain == Gain::kOne || spec.gain == Gain::kBeta, "gain",
        "one or beta with erase free: comba's erase key is dplr's a with tying b_eq_k, and the others divide by k.k "
        "or k.Pk, which is no size of a free key");
    require(spec.norm == Norm::kNone, "norm", "none with erase free: k.Pk is no size of a free key");
  }
  if (spec.gain == Gain::kComba) {
    require(spec.solve == Solve::kOnline, "solve", "online with gain comba");
    require(spec.decay != Decay::kDiag, "decay", "none, const or scalar with gain comba");
    require(spec.precond == Precond::kNone || spec.precond == Precond::kFree, "precond",
            "none or free with gain comba");
  }
  if (spec.solve == Solve::kDplr) {
    require(spec.precond == Precond::kNone, "precond", "none with solve dplr");
    require(spec.gain == Gain::kOne || spec.gain == Gain::kBeta, "gain",
            "one or beta with solve dplr, which has no gain of its own");
  } else {
    require(spec.tying == Tying::kGeneral, "tying", "general, unless solve is dplr");
  }
}

}  // namespace deltanet
