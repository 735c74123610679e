#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "deltanet/rows.h"

// The table of preconditioners: what stands between k and the write key, or between q and the read query. Arguments,
// checks, states, the engine, the model and the printed formulas read it; adding one is an entry here, and, if it is
// neither diagonal nor one of the matrices, a stage in prepare.

namespace deltanet {

enum class Side { kKey, kQuery };
inline constexpr Side kSides[] = {Side::kKey, Side::kQuery};

// What is done to x, which is k or q.
enum class Operation {
  kNothing,
  kCopy,      // x, in memory of its own
  kGiven,     // the caller's
  kMinusKey,  // x - d k
  kDiagonal,  // B * x, with B from the second moment of the keys
  kBlock,     // (G + ridge)^-1 x with the blocks on the diagonal of the Gram: G_{t-1} for the key, G_t for the query
  kRls,       // P_t x, the inverse of the keys' Gram
  kMesa,      // (G_t + ridge)^-1 x, with the keys' Gram
};

// What it carries from token to token, and under which names: A0, A_final; P0, P_final; G0, G_final.
enum class Carried { kNothing, kMoment, kInverseGram, kGram };

struct Preconditioner {
  Precond id;
  std::string_view name;
  Operation operation;
  bool on_key = false, on_query = false;
  Carried carries = Carried::kNothing;
  bool squashed = false;        // B is the squash of log A, and reads squash, range, x and eps; otherwise 1/(A + ridge)
  bool previous = false;        // B is that of A_{t-1}
  std::string_view input = {};  // what it reads beside q, k and gates, and the axes of that (see recurrence.h)
  std::string_view axes = {};
  std::string_view meaning = {};  // one line for people

  bool on(Side side) const { return side == Side::kKey ? on_key : on_query; }
};

std::span<const Preconditioner> preconditioners();
const Preconditioner& definition(Precond id);
inline const Preconditioner& definition(const Spec& spec, Side side) {
  return definition(side == Side::kKey ? spec.key : spec.query);
}

bool carries(const Spec& spec, Carried what);  // on either side
bool squashes(const Spec& spec);               // on either side
bool does(const Spec& spec, Operation what);   // on either side

// The axes of an input of the preconditioners, empty if neither side reads it. An input is one tensor: two sides that
// both read the ridge share it.
std::string_view preconditioner_axes(const Spec& spec, std::string_view input);

// P0 stands in for the ridge, which only makes the first P.
bool ridge_makes_P0(const Spec& spec);

// Does it carry a statistic of the keys with gates of its own, g_atk and beta_atk unless they are tied?
bool has_gates(const Spec& spec);

// The preconditioner takes alpha and beta of the main recurrence, and there are as many value heads as key heads.
bool shares_gates(const Spec& spec);

// Under decay a channel of P whose diagonal would grow beyond this begins again, with a ridge of 1 (rls.cc): in float32
// the others would lose their digits beside it.
inline constexpr double kLargestInverse = 1e3;

}  // namespace deltanet
