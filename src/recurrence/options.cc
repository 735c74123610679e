// The vocabulary of rows and options, that of earlier versions too, and the rules that a combination must keep.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "base/edit_distance.h"
#include "deltanet/error.h"
#include "deltanet/rows.h"
#include "recurrence/preconditioners.h"

namespace deltanet {
namespace {

template <class E>
struct Word {
  std::string_view name;
  E value;
};
constexpr Word<Solve> kSolves[] = {{"online", Solve::kOnline}, {"offline", Solve::kOffline}, {"dplr", Solve::kDplr}};
constexpr Word<Decay> kDecays[] = {
    {"none", Decay::kNone}, {"const", Decay::kConst}, {"scalar", Decay::kScalar}, {"diag", Decay::kDiag}};
constexpr Word<Gain> kGains[] = {
    {"one", Gain::kOne},   {"beta", Gain::kBeta}, {"longhorn", Gain::kLonghorn}, {"nlms", Gain::kNlms},
    {"efla", Gain::kEfla}, {"inv", Gain::kInv},   {"one_plus", Gain::kOnePlus},  {"alpha_beta", Gain::kAlphaBeta}};
constexpr Word<Erase> kErases[] = {{"key", Erase::kKey}, {"free", Erase::kFree}, {"own_gain", Erase::kOwnGain}};
constexpr Word<Squash> kSquashes[] = {{"fast", Squash::kFast}, {"tanh", Squash::kTanh}};
constexpr Word<Range> kRanges[] = {{"sym", Range::kSym}, {"amplify", Range::kAmplify}, {"dampen", Range::kDampen}};
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

Error bad(std::string_view operation, std::string_view argument, std::string_view given, std::string_view expected) {
  std::string text = "[";
  text.append(operation).append("] ").append(argument).append(": given ").append(given);
  return Error(text.append("; expected ").append(expected));
}

std::string quoted(std::string_view text) { return "\"" + std::string(text) + "\""; }

struct Option {
  std::string_view key;
  std::string (*get)(const Spec&);       // null: a word of earlier versions, which is only read
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
Option whole_number(std::string_view key) {
  return {key, [](const Spec& spec) { return std::to_string(spec.*kMember); },
          [](Spec& spec, std::string_view text) {
            double value = 0;  // Python may write 4.0
            if (!read_number(text, value) || value != std::floor(value) || std::fabs(value) > 1e6) return false;
            spec.*kMember = static_cast<int>(value);
            return true;
          },
          "a whole number"};
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

template <Side kSide>
Option preconditioner_option(std::string_view key) {
  std::vector<std::string_view> names;
  for (const Preconditioner& one : preconditioners()) {
    if (one.on(kSide)) names.push_back(one.name);
  }
  return {key, [](const Spec& spec) { return std::string(definition(spec, kSide).name); },
          [](Spec& spec, std::string_view text) {
            for (const Preconditioner& one : preconditioners()) {
              if (one.name == text && one.on(kSide))
                return (kSide == Side::kKey ? spec.key : spec.query) = one.id, true;
            }
            return false;
          },
          alternatives(names)};
}

// ---- the words of earlier versions

// A normalizer of the write key was a factor beside the gain.
void multiply_beta(Spec& spec, std::string_view key, std::string_view word, Gain gain) {
  if (spec.gain != Gain::kBeta && spec.gain != gain) {
    throw bad("set_option", key, quoted(word), "the gain beta beside it: it is a gain of its own, and there is one");
  }
  spec.gain = gain;
}

bool set_old_norm(Spec& spec, std::string_view text) {
  const bool sherman_morrison = spec.gain == Gain::kOnePlus && spec.key == Precond::kPrevious;
  const bool normalized = spec.gain == Gain::kInv || spec.gain == Gain::kOnePlus || spec.gain == Gain::kAlphaBeta;
  if (text == "none") {
    if (normalized && !sherman_morrison) spec.gain = Gain::kBeta;
    return true;
  }
  for (const Gain gain : {Gain::kInv, Gain::kOnePlus, Gain::kAlphaBeta}) {
    const auto word =
        std::find_if(std::begin(kGains), std::end(kGains), [&](const auto& w) { return w.value == gain; });
    if (word->name == text) return multiply_beta(spec, "norm", text, gain), true;
  }
  return false;
}

// One word said what is on which side; Comba's query, which its gain said, stays.
bool set_old_preconditioner(Spec& spec, std::string_view text) {
  struct OldWord {
    std::string_view name;
    Precond key, query;
  };
  constexpr OldWord kWords[] = {
      {"none", Precond::kNone, Precond::kNone},        {"identity", Precond::kIdentity, Precond::kNone},
      {"free", Precond::kFree, Precond::kNone},        {"atk_stable", Precond::kStable, Precond::kNone},
      {"atk_raw", Precond::kPrevious, Precond::kNone}, {"atk_unstable", Precond::kPrevious, Precond::kNone},
      {"rls", Precond::kRls, Precond::kNone},          {"atq", Precond::kNone, Precond::kInverse},
      {"mesa", Precond::kNone, Precond::kMesa},
  };
  const auto word =
      std::find_if(std::begin(kWords), std::end(kWords), [&](const OldWord& w) { return w.name == text; });
  if (word == std::end(kWords)) return false;
  // The row's own normalizer belongs to the preconditioner that is replaced.
  if (spec.key == Precond::kPrevious && spec.gain == Gain::kOnePlus) spec.gain = Gain::kBeta;
  if (text == "atk_unstable") multiply_beta(spec, "precond", text, Gain::kOnePlus);
  spec.key = word->key;
  if (word->query != Precond::kNone || spec.query != Precond::kMinusDk) spec.query = word->query;
  return true;
}

Option gain_option() {
  Option option = choice<&Spec::gain, kGains>("gain");
  option.set = [](Spec& spec, std::string_view text) {
    if (text == "comba") {  // beta to write, beta_erase to erase, and the query q - d k
      spec.gain = Gain::kBeta;
      spec.erase = Erase::kOwnGain;
      spec.query = Precond::kMinusDk;
      return true;
    }
    return choice<&Spec::gain, kGains>("gain").set(spec, text);
  };
  return option;
}

// In the order in which they are set: what words of earlier versions say depends on the gain.
const std::vector<Option>& option_table() {
  static const std::vector<Option> table = {
      choice<&Spec::solve, kSolves>("solve"),
      choice<&Spec::decay, kDecays>("decay"),
      choice<&Spec::erase, kErases>("erase"),  // before the gain: comba's of earlier versions has one of its own
      gain_option(),
      {"precond", nullptr, set_old_preconditioner,
       "none, identity, free, atk_stable, atk_unstable, atk_raw, rls, atq or mesa (key and query say it now)"},
      {"norm", nullptr, set_old_norm, "none, inv, one_plus or alpha_beta (they are gains now)"},
      preconditioner_option<Side::kKey>("key"),
      preconditioner_option<Side::kQuery>("query"),
      choice<&Spec::squash, kSquashes>("squash"),
      choice<&Spec::range, kRanges>("range"),
      choice<&Spec::tying, kTyings>("tying"),
      flag<&Spec::tie_gates>("tie_gates"),
      whole_number<&Spec::block>("block"),
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
    for (const Option& known : option_table()) {
      if (known.get) keys.push_back(known.key);
    }
    throw bad("set_option", "key", quoted(key), alternatives(keys));
  }
  if (!option->set(spec, value)) throw bad("set_option", key, quoted(value), option->expected);
}

void set_options(Spec& spec, std::vector<std::pair<std::string, std::string>> choices) {
  const auto place = [](const auto& choice) { return find_option(choice.first); };  // unknown ones first
  std::stable_sort(choices.begin(), choices.end(),
                   [&](const auto& a, const auto& b) { return std::less<>()(place(a), place(b)); });
  for (const auto& [key, value] : choices) set_option(spec, key, value);
}

std::vector<std::pair<std::string, std::string>> options(const Spec& spec) {
  std::vector<std::pair<std::string, std::string>> pairs;
  for (const Option& option : option_table()) {
    if (option.get) pairs.emplace_back(option.key, option.get(spec));
  }
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

  for (const Side side : kSides) {
    const std::string_view name = side == Side::kKey ? "key" : "query";
    require(definition(spec, side).on(side), name, find_option(name)->expected);
  }
  if (!squashes(spec)) {
    require(spec.squash == Squash::kFast, "squash", "fast, unless key or query is stable");
    require(spec.range == Range::kSym, "range", "sym, unless key or query is stable");
  }
  require(!spec.tie_gates || has_gates(spec), "tie_gates",
          "false, unless key or query is stable, inverse, previous or block");
  require(spec.block >= 1, "block", "the number of channels of a block, 1 or more");
  if (does(spec, Operation::kBlock)) {
    require(spec.key != Precond::kMesa && spec.query != Precond::kMesa, "query",
            "another than mesa with key block: G0 and G_final can hold one Gram");
    require(!spec.tie_gates || spec.decay != Decay::kDiag, "tie_gates",
            "false with decay diag and block, whose Gram has one decay for all channels");
  }

  const bool plain_gain = spec.gain == Gain::kOne || spec.gain == Gain::kBeta;
  if (spec.solve == Solve::kDplr) {
    require(plain_gain, "gain", "one or beta with solve dplr, which has no gain of its own");
    require(spec.erase == Erase::kKey, "erase", "key with solve dplr, whose erase key is a");
    require(spec.key == Precond::kNone, "key",
            "none with solve dplr, whose write keys are k and b; give them preconditioned");
  } else {
    require(spec.tying == Tying::kGeneral, "tying", "general, unless solve is dplr");
  }
  if (spec.gain == Gain::kAlphaBeta) {
    require(spec.decay != Decay::kDiag, "decay", "none, const or scalar with gain alpha_beta, which divides by alpha");
  }
  switch (spec.erase) {
    case Erase::kKey:
      break;
    case Erase::kFree:
      require(spec.solve != Solve::kOffline, "erase", "key with solve offline, which erases nothing");
      require(spec.key != Precond::kFree, "erase",
              "key with key free: no other key would be read, so that the erase key can be k itself");
      require(plain_gain, "gain",
              "one or beta with erase free: the others divide by k.w, which is no size of a free key");
      break;
    case Erase::kOwnGain:
      require(spec.solve == Solve::kOnline, "solve", "online with erase own_gain");
      require(plain_gain, "gain", "one or beta with erase own_gain, whose gain is beta_erase");
      break;
  }
  if (spec.key == Precond::kRls) {
    require(spec.solve == Solve::kOnline, "solve", "online with key rls");
    require(spec.decay != Decay::kDiag, "decay", "none, const or scalar with key rls, whose P forgets by one factor");
    require(plain_gain, "gain", "one or beta with key rls, which weights a token by it");
    require(spec.erase == Erase::kKey, "erase", "key with key rls, which is exact for the key that it erases");
  }
  if (spec.query == Precond::kMesa) {
    require(spec.decay != Decay::kDiag, "decay", "none, const or scalar with query mesa, whose Gram has one decay");
    require(plain_gain, "gain", "one or beta with query mesa, whose Gram is weighted by it");
  }
}

}  // namespace deltanet
