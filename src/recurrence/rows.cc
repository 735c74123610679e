// The table of rows.

#include "deltanet/rows.h"

namespace deltanet {
namespace {

std::vector<Row> make_rows() {
  constexpr Solve kOffline = Solve::kOffline;
  constexpr Decay kConst = Decay::kConst, kScalar = Decay::kScalar, kDiag = Decay::kDiag;
  constexpr Gain kOne = Gain::kOne;
  constexpr Precond kStable = Precond::kStable, kPrevious = Precond::kPrevious, kInverse = Precond::kInverse;

  return {
      // Table 2 of the paper, in its order.
      {"delta_net", {}, "Table 2", "DeltaNet"},
      {"gdn", {.decay = kScalar}, "Table 2", "Gated DeltaNet"},
      {"kda", {.decay = kDiag}, "Table 2", "Kimi Delta Attention"},
      {"linear_attn", {.solve = kOffline, .gain = kOne}, "Table 2", "Linear attention"},
      {"retnet", {.solve = kOffline, .decay = kConst, .gain = kOne}, "Table 2", "RetNet"},
      {"mamba2", {.solve = kOffline, .decay = kScalar, .gain = kOne}, "Table 2", "Mamba-2"},
      {"gla", {.solve = kOffline, .decay = kDiag, .gain = kOne}, "Table 2", "Gated linear attention"},
      {"mesa",
       {.solve = kOffline, .decay = kScalar, .query = Precond::kMesa, .scale = 1.0},
       "Table 2, App. C.4",
       "MesaNet: the query is solved against the key Gram"},
      {"comba",
       {.decay = kScalar, .erase = Erase::kOwnGain, .query = Precond::kMinusDk},
       "Table 2",
       "Comba: separate write and erase gains, query q - d k"},
      {"longhorn", {.gain = Gain::kLonghorn}, "Table 2", "Longhorn: implicit step"},
      {"nlms", {.gain = Gain::kNlms}, "Table 2", "Normalized least mean squares"},
      {"efla", {.gain = Gain::kEfla}, "Table 2", "EFLA: exact solution of the delta rule's ODE"},
      {"pdn", {.key = kStable}, "Table 2, Eq. 9", "Preconditioned DeltaNet"},
      {"pgdn", {.decay = kScalar, .key = kStable}, "Table 2, Eq. 9", "Preconditioned Gated DeltaNet"},
      {"pkda", {.decay = kDiag, .key = kStable}, "Table 2, Eq. 9", "Preconditioned KDA"},
      {"pla",
       {.solve = kOffline, .gain = kOne, .query = kInverse},
       "Table 2, App. F.2",
       "Preconditioned linear attention"},
      {"p_mamba2",
       {.solve = kOffline, .decay = kScalar, .gain = kOne, .query = kInverse},
       "Table 2, App. F.2",
       "Preconditioned Mamba-2, on the query"},
      {"pgla",
       {.solve = kOffline, .decay = kDiag, .gain = kOne, .query = kInverse},
       "Table 2, App. F.2",
       "Preconditioned GLA"},

      // Exact least squares, and the rows of the proximal view.
      {"rls",
       {.gain = kOne, .key = Precond::kRls},
       "Theorem 3.1, Eq. 5",
       "Mesalayer: recursive least squares with the exact inverse Gram"},
      {"p_longhorn",
       {.gain = Gain::kLonghorn, .key = kStable},
       "App. G.2",
       "Preconditioned Longhorn, stable preconditioner"},
      {"p_longhorn_raw",
       {.gain = Gain::kLonghorn, .key = kPrevious},
       "App. G.2",
       "Preconditioned Longhorn, P = 1/(A + ridge)"},
      {"kp_mamba2",
       {.solve = kOffline, .decay = kScalar, .gain = kOne, .key = kStable},
       "App. G.3",
       "Preconditioned Mamba-2, on the key"},

      // Ablations.
      {"mamba2_gain", {.solve = kOffline, .decay = kScalar}, "App. E.3", "Mamba-2 with a gain"},
      {"p_mamba2_gain",
       {.solve = kOffline, .decay = kScalar, .query = kInverse},
       "App. E.3, Table 6",
       "Preconditioned Mamba-2 with a gain"},
      {"pdn_unstable",
       {.gain = Gain::kOnePlus, .key = kPrevious},
       "App. E.3, F.1",
       "PDN with the Sherman-Morrison write key"},
      {"pgdn_unstable",
       {.decay = kScalar, .gain = Gain::kOnePlus, .key = kPrevious},
       "App. E.3, Table 6",
       "PGDN with the Sherman-Morrison write key"},
      {"pkda_unstable",
       {.decay = kDiag, .gain = Gain::kOnePlus, .key = kPrevious},
       "App. E.3, F.1",
       "PKDA with the Sherman-Morrison write key"},
      {"pgdn_block",
       {.decay = kScalar, .gain = Gain::kOnePlus, .key = Precond::kBlock},
       "App. F.1, blocks",
       "PGDN with the Sherman-Morrison write key of a block-diagonal Gram"},
      {"pgdn_tied",
       {.decay = kScalar, .key = kStable, .tie_gates = true},
       "App. E.3, Table 6",
       "PGDN whose preconditioner shares alpha and beta"},
      {"pgdn_identity",
       {.decay = kScalar, .key = Precond::kIdentity},
       "Sec. 4.1",
       "PGDN with B = 1: GDN with distinct read and write keys"},
      {"pgdn_tanh", {.decay = kScalar, .key = kStable, .squash = Squash::kTanh}, "App. E.3", "PGDN with a tanh squash"},
      {"pgdn_amplify",
       {.decay = kScalar, .key = kStable, .range = Range::kAmplify},
       "App. E.3",
       "PGDN with B in [1, x]"},
      {"pgdn_dampen",
       {.decay = kScalar, .key = kStable, .range = Range::kDampen},
       "App. E.3",
       "PGDN with B in [1/x, 1]"},
      {"pgdn_x2",
       {.decay = kScalar, .key = kStable, .x = 2.0, .eps = 1e-4},
       "App. E.3",
       "PGDN at the edge of stability"},
      {"pgdn_norm_inv",
       {.decay = kScalar, .gain = Gain::kInv, .key = kStable},
       "App. E.3, Table 7",
       "PGDN with write key Bk / (k.Bk)"},
      {"pgdn_norm_one_plus",
       {.decay = kScalar, .gain = Gain::kOnePlus, .key = kStable},
       "App. E.3, Table 7",
       "PGDN with write key Bk / (1 + k.Bk)"},
      {"pgdn_norm_alpha_beta",
       {.decay = kScalar, .gain = Gain::kAlphaBeta, .key = kStable},
       "App. E.3, Table 7",
       "PGDN with gain beta / (alpha + beta k.Bk)"},
      {"pkda_tanh_one_plus",
       {.decay = kDiag, .gain = Gain::kOnePlus, .key = kStable, .squash = Squash::kTanh},
       "App. E.3",
       "PKDA with a tanh squash and write key Bk / (1 + k.Bk)"},

      // Keys that the caller gives: any preconditioner, and gates of the erase key as GDN-2 has them.
      {"delta_net_free", {.key = Precond::kFree}, "App. D.2", "DeltaNet with a write key of its own, k_write"},
      {"gdn_free",
       {.decay = kScalar, .key = Precond::kFree},
       "App. D.2",
       "Gated DeltaNet with a write key of its own, k_write"},
      {"kda_free", {.decay = kDiag, .key = Precond::kFree}, "App. D.2", "KDA with a write key of its own, k_write"},
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

}  // namespace

const std::vector<Row>& rows() {
  static const std::vector<Row> table = make_rows();
  return table;
}

}  // namespace deltanet
