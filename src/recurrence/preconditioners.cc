#include "recurrence/preconditioners.h"

#include <algorithm>

namespace deltanet {
namespace {

using enum Operation;
constexpr Carried kA = Carried::kMoment;

// In the order of Precond.
constexpr Preconditioner kTable[] = {
    {.id = Precond::kNone,
     .name = "none",
     .operation = kNothing,
     .on_key = true,
     .on_query = true,
     .meaning = "k or q itself"},
    {.id = Precond::kIdentity,
     .name = "identity",
     .operation = kCopy,
     .on_key = true,
     .meaning = "k itself, as a write key of its own"},
    {.id = Precond::kFree,
     .name = "free",
     .operation = kGiven,
     .on_key = true,
     .input = "k_write",
     .axes = "BTHK",
     .meaning = "given as k_write"},
    {.id = Precond::kMinusDk,
     .name = "minus_dk",
     .operation = kMinusKey,
     .on_query = true,
     .input = "d",
     .axes = "H",
     .meaning = "q - d k, as Comba"},
    {.id = Precond::kStable,
     .name = "stable",
     .operation = kDiagonal,
     .on_key = true,
     .on_query = true,
     .carries = kA,
     .squashed = true,
     .input = "log_atk_scale",
     .axes = "H",
     .meaning = "x^(-squash(log A_t)) in a range, Eq. 9"},
    {.id = Precond::kInverse,
     .name = "inverse",
     .operation = kDiagonal,
     .on_key = true,
     .on_query = true,
     .carries = kA,
     .input = "ridge",
     .axes = "HK",
     .meaning = "1/(A_t + ridge)"},
    {.id = Precond::kPrevious,
     .name = "previous",
     .operation = kDiagonal,
     .on_key = true,
     .on_query = true,
     .carries = kA,
     .previous = true,
     .input = "ridge",
     .axes = "HK",
     .meaning = "1/(A_{t-1} + ridge)"},
    {.id = Precond::kBlock,
     .name = "block",
     .operation = kBlock,
     .on_key = true,
     .on_query = true,
     .carries = Carried::kGram,
     .input = "ridge",
     .axes = "HK",
     .meaning = "(G + ridge)^-1 of the blocks of the Gram: of G_{t-1} on the key, of G_t on the query"},
    {.id = Precond::kRls,
     .name = "rls",
     .operation = kRls,
     .on_key = true,
     .carries = Carried::kInverseGram,
     .input = "ridge",
     .axes = "H",
     .meaning = "P_t, the inverse Gram of recursive least squares"},
    {.id = Precond::kMesa,
     .name = "mesa",
     .operation = kMesa,
     .on_query = true,
     .carries = Carried::kGram,
     .input = "ridge",
     .axes = "HK",
     .meaning = "(G_t + ridge)^-1, the Gram of MesaNet"},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kTable); ++i) {
    if (kTable[i].id != static_cast<Precond>(i)) return false;
  }
  return true;
}
static_assert(in_order());

}  // namespace

std::span<const Preconditioner> preconditioners() { return kTable; }

const Preconditioner& definition(Precond id) { return kTable[static_cast<std::size_t>(id)]; }

bool carries(const Spec& spec, Carried what) {
  return std::any_of(std::begin(kSides), std::end(kSides),
                     [&](Side side) { return definition(spec, side).carries == what; });
}

bool squashes(const Spec& spec) { return definition(spec.key).squashed || definition(spec.query).squashed; }

std::string_view preconditioner_axes(const Spec& spec, std::string_view input) {
  for (const Precond id : {spec.query, spec.key}) {  // of two axes of the ridge the wider, that of the query
    if (definition(id).input == input) return definition(id).axes;
  }
  return {};
}

bool ridge_makes_P0(const Spec& spec) {
  return definition(spec.key).carries == Carried::kInverseGram && definition(spec.query).input != "ridge";
}

bool does(const Spec& spec, Operation what) {
  return definition(spec.key).operation == what || definition(spec.query).operation == what;
}

bool has_gates(const Spec& spec) { return carries(spec, Carried::kMoment) || does(spec, kBlock); }

bool shares_gates(const Spec& spec) {
  const bool weighted = spec.decay != Decay::kNone || spec.gain != Gain::kOne;
  return spec.tie_gates || does(spec, kMesa) || (does(spec, kRls) && weighted);
}

}  // namespace deltanet
