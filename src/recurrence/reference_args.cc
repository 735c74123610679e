#include "recurrence/reference_args.h"

#include <algorithm>
#include <functional>
#include <string_view>

#include "deltanet/error.h"
#include "recurrence/gains.h"
#include "recurrence/preconditioners.h"

namespace deltanet::reference {
namespace {

using Extents = std::vector<int64_t>;

std::string text(const Extents& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) out += (i ? "," : "") + std::to_string(shape[i]);
  return out + "]";
}

Error bad(std::string_view argument, const std::string& given, const std::string& expected) {
  return Error("[reference] " + std::string(argument) + ": given " + given + "; expected " + expected);
}

void require_shape(std::string_view name, const Array& array, const Extents& expected) {
  if (array.shape != expected) throw bad(name, "shape " + text(array.shape), "shape " + text(expected));
  int64_t size = 1;
  for (int64_t extent : expected) size *= extent;
  if (static_cast<int64_t>(array.data.size()) != size) {
    throw bad(name, std::to_string(array.data.size()) + " values",
              std::to_string(size) + " for shape " + text(expected));
  }
}

const Array& require_rank4(const Arrays& inputs, const char* name, const char* expected) {
  const auto found = inputs.find(name);
  if (found == inputs.end()) throw bad(name, "nothing", expected);
  if (found->second.shape.size() != 4) throw bad(name, "shape " + text(found->second.shape), expected);
  return found->second;
}

std::vector<int64_t> read_cu_seqlens(const Array& array, const Dims& dims) {
  if (dims.B != 1) throw bad("cu_seqlens", "B = " + std::to_string(dims.B), "B = 1 for packed sequences");
  std::vector<int64_t> cu(array.data.size());
  std::transform(array.data.begin(), array.data.end(), cu.begin(), [](double x) { return static_cast<int64_t>(x); });
  if (cu.size() < 2 || cu.front() != 0 || cu.back() != dims.T ||
      std::adjacent_find(cu.begin(), cu.end(), std::greater<>()) != cu.end()) {
    throw bad("cu_seqlens", text(cu), "offsets that never fall, from 0 to T = " + std::to_string(dims.T));
  }
  return cu;
}

struct Need {
  std::string_view name;
  Extents shape;
  bool optional = false;
};

// What the row reads.
std::vector<Need> needs(const Spec& spec, const Dims& dims, bool has_P0) {
  const auto& [B, T, H, U, K, V, N, cu_seqlens] = dims;
  const Extents per_key{B, T, H, K}, per_key_head{B, T, H}, per_value_head{B, T, U};
  constexpr bool kOptional = true;
  std::vector<Need> list = {{"q", per_key}, {"k", per_key}, {"v", {B, T, U, V}}, {"S0", {N, U, K, V}, kOptional}};

  if (spec.decay == Decay::kConst) list.push_back({"g", {U}});
  if (spec.decay == Decay::kScalar) list.push_back({"g", per_value_head});
  if (spec.decay == Decay::kDiag) list.push_back({"g", {B, T, U, K}});
  const bool reads = reads_beta(spec.gain) || spec.tie_gates || does(spec, Operation::kMesa);
  if (spec.solve != Solve::kDplr && reads) list.push_back({"beta", per_value_head, !reads_beta(spec.gain)});
  if (spec.erase == Erase::kOwnGain) list.push_back({"beta_erase", per_value_head});
  if (carries(spec, Carried::kMoment)) list.push_back({"A0", {N, H, K}, kOptional});
  if (has_gates(spec) && !spec.tie_gates) {
    list.push_back({"g_atk", per_key_head, kOptional});
    list.push_back({"beta_atk", per_key_head, kOptional});
  }
  for (const std::string_view input : {"k_write", "d", "log_atk_scale", "ridge"}) {
    const std::string_view axes = preconditioner_axes(spec, input);
    const bool replaced = input == "ridge" && ridge_makes_P0(spec) && has_P0;
    if (axes.empty() || replaced) continue;
    Extents extents;
    for (const char axis : axes) extents.push_back(axis == 'B' ? B : axis == 'T' ? T : axis == 'H' ? H : K);
    list.push_back({input, extents});
  }
  if (carries(spec, Carried::kInverseGram)) list.push_back({"P0", {N, H, K, K}, kOptional});
  if (carries(spec, Carried::kGram)) list.push_back({"G0", {N, H, K, K}, kOptional});
  if (spec.erase == Erase::kFree) list.push_back({"k_erase", per_key});
  if (spec.solve == Solve::kDplr) {
    const bool rwkv7 = spec.tying == Tying::kRwkv7;
    list.push_back({rwkv7 ? "kk" : "a", per_key});
    if (rwkv7) list.push_back({"eta", per_key});
    if (spec.tying == Tying::kGeneral) list.push_back({"b", per_key});
  }
  return list;
}

}  // namespace

Dims read_dims(const Spec& spec, const Arrays& inputs) {
  const Array& q = require_rank4(inputs, "q", "shape [B,T,H,K]");
  const Array& v = require_rank4(inputs, "v", "shape [B,T,U,V]");
  Dims dims{q.shape[0], q.shape[1], q.shape[2], v.shape[2], q.shape[3], v.shape[3], q.shape[0], {}};
  if (dims.H < 1 || dims.U < dims.H || dims.U % dims.H != 0) {
    throw bad("v", std::to_string(dims.U) + " value heads",
              "a multiple of the " + std::to_string(dims.H) + " key heads");
  }
  if (shares_gates(spec) && dims.U != dims.H) {
    throw bad("v", std::to_string(dims.U) + " value heads",
              "as many as key heads (" + std::to_string(dims.H) + ") where the preconditioner shares the gates");
  }
  if (const auto cu = inputs.find("cu_seqlens"); cu != inputs.end()) {
    dims.cu_seqlens = read_cu_seqlens(cu->second, dims);
    dims.N = static_cast<int64_t>(dims.cu_seqlens.size()) - 1;
  }
  return dims;
}

void check_inputs(const Spec& spec, const Arrays& inputs, const Dims& dims) {
  const std::vector<Need> list = needs(spec, dims, inputs.count("P0") > 0);
  for (const Need& need : list) {
    const auto found = inputs.find(std::string(need.name));
    if (found != inputs.end()) {
      require_shape(need.name, found->second, need.shape);
    } else if (!need.optional) {
      throw bad(need.name, "nothing", "shape " + text(need.shape) + ", which this row needs");
    }
  }
  for (const auto& [name, array] : inputs) {
    const bool needed =
        name == "cu_seqlens" ||
        std::any_of(list.begin(), list.end(), [&, &wanted = name](const Need& need) { return need.name == wanted; });
    if (!needed) throw bad(name, "shape " + text(array.shape), "nothing, because this row does not read it");
  }
}

std::vector<Output> outputs_of(const Spec& spec, const Dims& dims) {
  std::vector<Output> list = {{"o", {dims.B, dims.T, dims.U, dims.V}}, {"S_final", {dims.N, dims.U, dims.K, dims.V}}};
  if (carries(spec, Carried::kMoment)) list.push_back({"A_final", {dims.N, dims.H, dims.K}});
  if (carries(spec, Carried::kInverseGram)) list.push_back({"P_final", {dims.N, dims.H, dims.K, dims.K}});
  if (carries(spec, Carried::kGram)) list.push_back({"G_final", {dims.N, dims.H, dims.K, dims.K}});
  return list;
}

void check_upstream(const Arrays& upstream, const std::vector<Output>& outputs) {
  for (const auto& [name, array] : upstream) {
    const auto output = std::find_if(outputs.begin(), outputs.end(),
                                     [&, &given = name](const Output& o) { return given == "d" + o.name; });
    if (output == outputs.end()) {
      throw bad(name, "an upstream gradient of that name", "the gradient of an output of this row, such as do");
    }
    require_shape(name, array, output->shape);
  }
}

}  // namespace deltanet::reference
