#pragma once

#include <string_view>

#include "model/config/config.h"

// Shared by the reader and the writer of config.json. Not for other files.

namespace deltanet {

inline constexpr std::string_view kTransformer = "transformer";

// Upstream's model types, the row each of them runs, and its class.
struct ModelType {
  std::string_view name, row, architecture;
};
inline constexpr ModelType kModelTypes[] = {
    {"delta_net", "delta_net", "DeltaNetForCausalLM"},
    {"gated_deltanet", "gdn", "GatedDeltaNetForCausalLM"},
    {"kda", "kda", "KDAForCausalLM"},
    {"precond_deltanet", "pdn", "PrecondDeltaNetForCausalLM"},
    {"precond_gated_deltanet", "pgdn", "PrecondGatedDeltaNetForCausalLM"},
    {"precond_kda", "pkda", "PrecondKDAForCausalLM"},
    {kTransformer, "", "TransformerForCausalLM"},
    {kRowModelType, "", "DgpsForCausalLM"},
};

// Where upstream's classes begin unless the file says something else.
inline double usual_a_init_lower(const Spec& spec) { return spec.decay == Decay::kDiag ? 1.0 : 0.0; }

}  // namespace deltanet
