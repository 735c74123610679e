#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

// The DGPS table of the paper: a recurrence is Decay x Gain x Preconditioner x Solve. Every choice combines with every
// other where it means something; validate() says where it does not, and what to use instead.

namespace deltanet {

enum class Solve { kOnline, kOffline, kDplr };
enum class Decay { kNone, kConst, kScalar, kDiag };
// With m = k.w, the product of erase and write key:
// 1, beta, beta/(1 + beta m), 1/m, (1 - exp(-beta m))/m, beta/m, beta/(1 + m), beta/(alpha + beta m)
enum class Gain { kOne, kBeta, kLonghorn, kNlms, kEfla, kInv, kOnePlus, kAlphaBeta };
// What is erased along: k with decay and gain, a key k_erase with decay and gain, or beta_erase k before the decay.
enum class Erase { kKey, kFree, kOwnGain };
// What stands between k and the write key, or between q and the read query; src/recurrence/preconditioners.cc defines
// each. kIdentity changes no number: it keeps a write key of its own that equals k.
enum class Precond { kNone, kIdentity, kFree, kMinusDk, kStable, kInverse, kPrevious, kBlock, kRls, kMesa };
enum class Squash { kFast, kTanh };                   // r/(1+|r|), tanh r
enum class Range { kSym, kAmplify, kDampen };         // B in [1/x,x], [1,x], [1/x,1]
enum class Tying { kGeneral, kRwkv7, kAEqB, kBEqK };  // of the low-rank factors of the DPLR rows

// Everything that defines a recurrence except its inputs.
struct Spec {
  Solve solve = Solve::kOnline;
  Decay decay = Decay::kNone;
  Gain gain = Gain::kBeta;
  Erase erase = Erase::kKey;
  Precond key = Precond::kNone, query = Precond::kNone;
  Squash squash = Squash::kFast;
  Range range = Range::kSym;
  Tying tying = Tying::kGeneral;
  bool tie_gates = false;  // the moment takes g and beta of the main recurrence instead of g_atk and beta_atk
  int block = 4;           // channels of a block of the block-diagonal Gram
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
// set_option throws Error for an unknown key or value and lists the valid ones. It also reads the words of earlier
// versions, "precond", "norm" and the gain "comba", which say in terms of what the spec holds already what is said with
// "key", "query", "gain" and "erase" now; set_options takes several choices at once, in any order.
void set_option(Spec& spec, std::string_view key, std::string_view value);
void set_options(Spec& spec, std::vector<std::pair<std::string, std::string>> choices);
std::vector<std::pair<std::string, std::string>> options(const Spec& spec);

// Throws Error when the choices contradict each other (for example a squash without the stable preconditioner).
void validate(const Spec& spec);

}  // namespace deltanet
