#include "recurrence/args.h"

#include <cmath>
#include <functional>
#include <string>

#include "deltanet/error.h"
#include "recurrence/gains.h"
#include "recurrence/preconditioners.h"

namespace deltanet {
namespace {

template <class Group>
constexpr Arg<Group> kInputArgs[] = {
    {"q", &Group::q},
    {"k", &Group::k},
    {"v", &Group::v},
    {"g", &Group::g},
    {"beta", &Group::beta},
    {"beta_erase", &Group::beta_erase},
    {"d", &Group::d},
    {"g_atk", &Group::g_atk},
    {"beta_atk", &Group::beta_atk},
    {"log_atk_scale", &Group::log_atk_scale},
    {"ridge", &Group::ridge},
    {"a", &Group::a},
    {"b", &Group::b},
    {"kk", &Group::kk},
    {"eta", &Group::eta},
    {"k_write", &Group::k_write},
    {"k_erase", &Group::k_erase},
    {"S0", &Group::S0},
    {"A0", &Group::A0},
    {"P0", &Group::P0},
    {"G0", &Group::G0},
};

template <class Group>
constexpr Arg<Group> kOutputArgs[] = {
    {"o", &Group::o},
    {"S_final", &Group::S_final},
    {"A_final", &Group::A_final},
    {"P_final", &Group::P_final},
    {"G_final", &Group::G_final},
};

bool uses_beta(const Spec& s) {
  if (s.solve == Solve::kDplr) return false;
  return reads_beta(s.gain) || s.tie_gates || does(s, Operation::kMesa);
}

// The axes of an argument as one letter each (see recurrence.h); empty when the row does not use it.
std::string_view input_axes(const Spec& s, std::string_view name) {
  const bool dplr = s.solve == Solve::kDplr;
  const bool rwkv7 = dplr && s.tying == Tying::kRwkv7;
  if (name == "q" || name == "k") return "BTHK";
  if (name == "v") return "BTUV";
  if (name == "g") {
    switch (s.decay) {
      case Decay::kNone:
        return "";
      case Decay::kConst:
        return "U";
      case Decay::kScalar:
        return "BTU";
      case Decay::kDiag:
        return "BTUK";
    }
  }
  if (name == "beta") return uses_beta(s) ? "BTU" : "";
  if (name == "beta_erase") return s.erase == Erase::kOwnGain ? "BTU" : "";
  if (name == "g_atk" || name == "beta_atk") return has_gates(s) && !s.tie_gates ? "BTH" : "";
  if (name == "k_write" || name == "d" || name == "log_atk_scale" || name == "ridge") {
    return preconditioner_axes(s, name);
  }
  if (name == "a") return dplr && !rwkv7 ? "BTHK" : "";
  if (name == "b") return dplr && s.tying == Tying::kGeneral ? "BTHK" : "";
  if (name == "kk" || name == "eta") return rwkv7 ? "BTHK" : "";
  if (name == "k_erase") return s.erase == Erase::kFree ? "BTHK" : "";
  if (name == "S0") return "NUKV";
  if (name == "A0") return carries(s, Carried::kMoment) ? "NHK" : "";
  if (name == "P0") return carries(s, Carried::kInverseGram) ? "NHKK" : "";
  if (name == "G0") return carries(s, Carried::kGram) ? "NHKK" : "";
  throw Error("[input_shape] name: given \"" + std::string(name) + "\"; expected the name of an input");
}

std::string_view output_axes(const Spec& s, std::string_view name) {
  if (name == "o") return "BTUV";
  if (name == "S_final") return "NUKV";
  if (name == "A_final") return input_axes(s, "A0");
  if (name == "P_final") return input_axes(s, "P0");
  if (name == "G_final") return input_axes(s, "G0");
  throw Error("[output_shape] name: given \"" + std::string(name) + "\"; expected the name of an output");
}

bool is_optional(const Spec& s, std::string_view name) {
  if (name == "beta") return !reads_beta(s.gain);  // the preconditioner's, 1 when absent
  return name == "g_atk" || name == "beta_atk" || name == "S0" || name == "A0" || name == "P0" || name == "G0";
}

int64_t extent(const Shape& shape, char axis) {
  switch (axis) {
    case 'B':
      return shape.B;
    case 'T':
      return shape.T;
    case 'H':
      return shape.H;
    case 'U':
      return shape.U;
    case 'K':
      return shape.K;
    case 'V':
      return shape.V;
    default:
      return shape.N;
  }
}

std::string axes_text(std::string_view axes) {
  std::string text = "[";
  for (char axis : axes) {
    if (text.size() > 1) text += ",";
    text += axis == 'U' ? std::string("HV") : std::string(1, axis);
  }
  return text + "]";
}

template <class Extents>
std::string extents_text(const Extents& extents, int rank) {
  std::string text = "[";
  for (int i = 0; i < rank; ++i) text += (i ? "," : "") + std::to_string(extents[i]);
  return text + "]";
}

std::vector<int64_t> resolve(std::string_view axes, const Shape& shape) {
  std::vector<int64_t> extents;
  for (char axis : axes) extents.push_back(extent(shape, axis));
  return extents;
}

[[noreturn]] void fail(std::string_view operation, std::string_view name, const std::string& what) {
  throw Error("[" + std::string(operation) + "] " + std::string(name) + ": " + what);
}

void check_shape(std::string_view operation, std::string_view name, const ConstTensor& tensor, std::string_view axes,
                 const Shape& shape) {
  bool same = tensor.rank == static_cast<int>(axes.size());
  for (int i = 0; same && i < tensor.rank; ++i) same = tensor.shape[i] == extent(shape, axes[i]);
  if (!same) {
    const std::vector<int64_t> expected = resolve(axes, shape);
    fail(operation, name,
         "given shape " + extents_text(tensor.shape, tensor.rank) + "; expected " + axes_text(axes) + " = " +
             extents_text(expected, static_cast<int>(expected.size())));
  }
}

void check_rank(std::string_view operation, std::string_view name, const ConstTensor& tensor, std::string_view axes) {
  const bool given = tensor || (tensor.rank > 0 && tensor.size() == 0);  // what has no elements needs no memory
  if (!given) fail(operation, name, "is missing; expected " + axes_text(axes));
  if (tensor.rank != static_cast<int>(axes.size())) {
    fail(operation, name,
         "given shape " + extents_text(tensor.shape, tensor.rank) + " of rank " + std::to_string(tensor.rank) +
             "; expected " + axes_text(axes));
  }
  for (int i = 0; i < tensor.rank; ++i) {
    const bool may_be_empty = axes[i] == 'B' || axes[i] == 'T' || axes[i] == 'N';
    if (tensor.shape[i] < (may_be_empty ? 0 : 1)) {
      fail(operation, name,
           "given shape " + extents_text(tensor.shape, tensor.rank) + "; expected " + axes_text(axes) +
               ", where only the batch and the tokens may be none");
    }
  }
}

void check_cu_seqlens(std::string_view operation, std::span<const int64_t> cu, Shape& shape) {
  constexpr std::string_view kName = "cu_seqlens";
  if (shape.B != 1)
    fail(operation, kName, "given with a batch of " + std::to_string(shape.B) + "; packed sequences need B = 1");
  if (cu.size() < 2) fail(operation, kName, "given " + std::to_string(cu.size()) + " entries; expected at least 2");
  if (cu.front() != 0) fail(operation, kName, "starts with " + std::to_string(cu.front()) + "; expected 0");
  if (cu.back() != shape.T) {
    fail(operation, kName,
         "ends with " + std::to_string(cu.back()) + "; expected the number of tokens, T = " + std::to_string(shape.T));
  }
  for (size_t i = 1; i < cu.size(); ++i) {
    if (cu[i] < cu[i - 1]) {
      fail(operation, kName,
           "entry " + std::to_string(i) + " is " + std::to_string(cu[i]) + " after " + std::to_string(cu[i - 1]) +
               "; expected entries that never fall");
    }
  }
  shape.N = static_cast<int64_t>(cu.size()) - 1;
}

void for_each_value(const ConstTensor& t, const std::function<void(float, const std::array<int64_t, 4>&)>& visit) {
  std::array<int64_t, 4> at{}, count{1, 1, 1, 1}, stride{};
  for (int i = 0; i < t.rank; ++i) {
    count[i] = t.shape[i];
    stride[i] = t.stride[i];
  }
  for (at[0] = 0; at[0] < count[0]; ++at[0]) {
    for (at[1] = 0; at[1] < count[1]; ++at[1]) {
      for (at[2] = 0; at[2] < count[2]; ++at[2]) {
        for (at[3] = 0; at[3] < count[3]; ++at[3]) {
          visit(t.data[at[0] * stride[0] + at[1] * stride[1] + at[2] * stride[2] + at[3] * stride[3]], at);
        }
      }
    }
  }
}

}  // namespace

std::span<const Arg<Inputs>> input_args() { return kInputArgs<Inputs>; }
std::span<const Arg<InputGradients>> input_gradient_args() { return kInputArgs<InputGradients>; }
std::span<const Arg<Outputs>> output_args() { return kOutputArgs<Outputs>; }
std::span<const Arg<OutputGradients>> output_gradient_args() { return kOutputArgs<OutputGradients>; }

std::vector<int64_t> input_shape(const Spec& spec, std::string_view name, const Shape& shape) {
  return resolve(input_axes(spec, name), shape);
}

std::vector<int64_t> output_shape(const Spec& spec, std::string_view name, const Shape& shape) {
  return resolve(output_axes(spec, name), shape);
}

Shape infer_shape(const Spec& spec, const Inputs& inputs) { return check_inputs("infer_shape", spec, inputs); }

Shape check_inputs(std::string_view operation, const Spec& spec, const Inputs& in) {
  validate(spec);
  check_rank(operation, "q", in.q, "BTHK");
  check_rank(operation, "v", in.v, "BTUV");
  Shape shape{in.q.shape[0], in.q.shape[1], in.q.shape[2], in.v.shape[2], in.q.shape[3], in.v.shape[3], in.q.shape[0]};
  if (shape.U % shape.H != 0) {
    fail(operation, "v",
         "has " + std::to_string(shape.U) + " heads; expected a multiple of the " + std::to_string(shape.H) +
             " heads of q");
  }
  if (shares_gates(spec) && shape.U != shape.H) {
    fail(operation, "v",
         "has " + std::to_string(shape.U) + " heads; this row needs as many value heads as key heads, " +
             std::to_string(shape.H));
  }
  if (!in.cu_seqlens.empty()) check_cu_seqlens(operation, in.cu_seqlens, shape);

  for (const auto& arg : input_args()) {
    const ConstTensor& tensor = in.*arg.member;
    const std::string_view axes = input_axes(spec, arg.name);
    if (axes.empty() && tensor) fail(operation, arg.name, "is given, but this row does not use it; remove it");
    if (axes.empty()) continue;
    const bool replaced = arg.name == "ridge" && ridge_makes_P0(spec) && in.P0;
    if (replaced && tensor) fail(operation, "ridge", "is given together with P0; expected only one of them");
    if (replaced || (!tensor && is_optional(spec, arg.name))) continue;
    check_rank(operation, arg.name, tensor, axes);
    check_shape(operation, arg.name, tensor, axes, shape);
  }
  return shape;
}

void check_outputs(std::string_view operation, std::string_view prefix, const Spec& spec, const Shape& shape,
                   const OutputGradients& outputs) {
  for (const auto& arg : output_gradient_args()) {
    const ConstTensor& tensor = outputs.*arg.member;
    if (!tensor) continue;
    const std::string name = std::string(prefix) + std::string(arg.name);
    const std::string_view axes = output_axes(spec, arg.name);
    if (axes.empty()) fail(operation, name, "is given, but this row has no such state; remove it");
    check_shape(operation, name, tensor, axes, shape);
  }
}

void check_gradients(std::string_view operation, const Spec& spec, const Shape& shape, const Inputs& inputs,
                     const InputGradients& gradients) {
  for (const auto& arg : input_gradient_args()) {
    const ConstTensor& tensor = gradients.*arg.member;
    if (!tensor) continue;
    const std::string name = "gradient of " + std::string(arg.name);
    const std::string_view axes = input_axes(spec, arg.name);
    if (axes.empty()) fail(operation, name, "is asked for, but this row does not use that input");
    const bool replaced = arg.name == "ridge" && ridge_makes_P0(spec) && inputs.P0;
    if (replaced) fail(operation, name, "is asked for, but P0 is given in its place");
    check_shape(operation, name, tensor, axes, shape);
  }
}

void check_writes(std::string_view operation, const Spec& spec, const Shape& shape, const Options& options) {
  if (!options.writes) return;
  if (spec.solve == Solve::kOffline) fail(operation, "writes", "is given, but this row solves for nothing; remove it");
  if (options.mode != Mode::kChunk) fail(operation, "writes", "is given in recurrent mode; expected chunk mode");
  check_shape(operation, "writes", options.writes, "BTUV", shape);
}

void check_values(std::string_view operation, const Inputs& inputs, const ConstTensor& writes) {
  const auto check = [&](std::string_view name, const ConstTensor& tensor) {
    if (!tensor) return;
    const bool log_decay = name == "g" || name == "g_atk";
    for_each_value(tensor, [&](float value, const std::array<int64_t, 4>& at) {
      if (std::isfinite(value) && !(log_decay && value > 0.0f)) return;
      fail(operation, name,
           "value at " + extents_text(at, tensor.rank) + " is " + std::to_string(value) +
               (log_decay ? "; expected a finite log decay, at most 0" : "; expected a finite number"));
    });
  };
  for (const auto& arg : input_args()) check(arg.name, inputs.*arg.member);
  check("writes", writes);
}

}  // namespace deltanet
