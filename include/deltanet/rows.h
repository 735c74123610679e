#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The DGPS table of the paper: a recurrence is Decay x Gain x Preconditioner x Solve.

namespace deltanet {

enum class Solve { kOnline, kOffline, kDplr };
enum class Decay { kNone, kConst, kScalar, kDiag };
enum class Gain { kOne, kBeta, kLonghorn, kNlms, kEfla, kComba };
enum class Erase { kKey, kFree };  // what is erased along: k, or a key that the caller gives, k_erase
// kIdentity changes no number: it keeps a write key of its own that equals k, as all key-side preconditioners must.
// kFree is any other: the caller gives the write key, k_write.
enum class Precond { kNone, kIdentity, kAtkStable, kAtkUnstable, kAtkRaw, kRls, kAtq, kMesa, kFree };
enum class Squash { kFast, kTanh };                     // r/(1+|r|), tanh r
enum class Range { kSym, kAmplify, kDampen };           // B in [1/x,x], [1,x], [1/x,1]
enum class Norm { kNone, kInv, kOnePlus, kAlphaBeta };  // of the stable write key, m = k.(B*k)
enum class Tying { kGeneral, kRwkv7, kAEqB, kBEqK };    // of the low-rank factors of the DPLR rows

// Everything that defines a recurrence except its inputs.
struct Spec {
  Solve solve = Solve::kOnline;
  Decay decay = Decay::kNone;
  Gain gain = Gain::kBeta;
  Erase erase = Erase::kKey;
  Precond precond = Precond::kNone;
  Squash squash = Squash::kFast;
  Range range = Range::kSym;
  Norm norm = Norm::kNone;
  Tying tying = Tying::kGeneral;
  bool tie_gates = false;  // the preconditioner takes g and beta of the main recurrence instead of g_atk and beta_atk
  double x = 1.5;          // range parameter of the squash, in [1, 2]
  double eps = 1e-6;       // inside the logarithm of the squash
  bool l2norm = false;     // normalize q and k before everything else
  double l2norm_eps = 1e-6;
  std::optional<double> scale = std::nullopt;  // of q; K^-1/2 when absent
};

struct Row {
  std::string_view name;
  Spec spec;
  std::string_view paper;    // where the paper defines it
  std::string_view summary;  // one line for people
};

// All rows, in the order of the paper's table; names are unique.
const std::vector<Row>& rows();

// The row of that name; "dn" is short for delta_net, as in the paper. Throws Error with the nearest names when there is
// none.
const Row& find_row(std::string_view name);

// Spec <-> the vocabulary of option names and values ("decay" -> "scalar"), used by the CLI, Python and the tests.
// set_option throws Error for an unknown key or value and lists the valid ones.
void set_option(Spec& spec, std::string_view key, std::string_view value);
std::vector<std::pair<std::string, std::string>> options(const Spec& spec);

// Throws Error when the choices contradict each other (for example a norm without the stable preconditioner).
void validate(const Spec& spec);

}  // namespace deltanet
