// Entry points of the float64 reference: checks the inputs, runs the token loop of reference.h head by head and
// collects values or gradients.

#include "deltanet/reference.h"

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "deltanet/error.h"
#include "recurrence/reference.h"

namespace deltanet {
namespace {

using reference::Dims;
using reference::HeadResult;
using reference::Operands;
using Extents = std::vector<int64_t>;

template <class T>
struct Field {
  std::string_view name;
  const T* Operands<T>::*member;
};

template <class T>
constexpr Field<T> kFields[] = {
    {"q", &Operands<T>::q},
    {"k", &Operands<T>::k},
    {"v", &Operands<T>::v},
    {"g", &Operands<T>::g},
    {"beta", &Operands<T>::beta},
    {"beta_erase", &Operands<T>::beta_erase},
    {"d", &Operands<T>::d},
    {"g_atk", &Operands<T>::g_atk},
    {"beta_atk", &Operands<T>::beta_atk},
    {"log_atk_scale", &Operands<T>::log_atk_scale},
    {"ridge", &Operands<T>::ridge},
    {"a", &Operands<T>::a},
    {"b", &Operands<T>::b},
    {"kk", &Operands<T>::kk},
    {"eta", &Operands<T>::eta},
    {"k_write", &Operands<T>::k_write},
    {"k_erase", &Operands<T>::k_erase},
    {"S0", &Operands<T>::S0},
    {"A0", &Operands<T>::A0},
    {"P0", &Operands<T>::P0},
    {"G0", &Operands<T>::G0},
};

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

Dims read_dims(const Spec& spec, const Arrays& inputs) {
  const Array& q = require_rank4(inputs, "q", "shape [B,T,H,K]");
  const Array& v = require_rank4(inputs, "v", "shape [B,T,U,V]");
  Dims dims{q.shape[0], q.shape[1], q.shape[2], v.shape[2], q.shape[3], v.shape[3], q.shape[0], {}};
  if (dims.H < 1 || dims.U < dims.H || dims.U % dims.H != 0) {
    throw bad("v", std::to_string(dims.U) + " value heads",
              "a multiple of the " + std::to_string(dims.H) + " key heads");
  }
  if (reference::preconditioner_shares_gates(spec) && dims.U != dims.H) {
    throw bad("v", std::to_string(dims.U) + " value heads",
              "as many as key heads (" + std::to_string(dims.H) + ") where the preconditioner shares the gates");
  }
  if (const auto cu = inputs.find("cu_seqlens"); cu != inputs.end()) {
    dims.cu_seqlens = read_cu_seqlens(cu->second, dims);
    dims.N = static_cast<int64_t>(dims.cu_seqlens.size()) - 1;
  }
  return dims;
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
  if (reference::gain_needs_beta(spec))
    list.push_back({"beta", per_value_head});
  else if (reference::preconditioner_shares_gates(spec))
    list.push_back({"beta", per_value_head, kOptional});
  if (spec.gain == Gain::kComba) {
    list.push_back({"beta_erase", per_value_head});
    list.push_back({"d", {H}});
  }
  if (reference::uses_moment(spec)) {
    list.push_back({"A0", {N, H, K}, kOptional});
    if (!spec.tie_gates) {
      list.push_back({"g_atk", per_key_head, kOptional});
      list.push_back({"beta_atk", per_key_head, kOptional});
    }
  }
  switch (spec.precond) {
    case Precond::kNone:
    case Precond::kIdentity:
      break;
    case Precond::kFree:
      list.push_back({"k_write", per_key});
      break;
    case Precond::kAtkStable:
      list.push_back({"log_atk_scale", {H}});
      break;
    case Precond::kAtkUnstable:
    case Precond::kAtkRaw:
    case Precond::kAtq:
      list.push_back({"ridge", {H, K}});
      break;
    case Precond::kMesa:
      list.push_back({"ridge", {H, K}});
      list.push_back({"G0", {N, H, K, K}, kOptional});
      break;
    case Precond::kRls:
      if (has_P0)
        list.push_back({"P0", {N, H, K, K}});
      else
        list.push_back({"ridge", {H}});
      break;
  }
  if (spec.erase == Erase::kFree) list.push_back({"k_erase", per_key});
  if (spec.solve == Solve::kDplr) {
    const bool rwkv7 = spec.tying == Tying::kRwkv7;
    list.push_back({rwkv7 ? "kk" : "a", per_key});
    if (rwkv7) list.push_back({"eta", per_key});
    if (spec.tying == Tying::kGeneral) list.push_back({"b", per_key});
  }
  return list;
}

// Every input that the row needs is there, nothing else is, and the shapes fit.
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

struct Output {
  std::string name;
  Extents shape;
};

std::vector<Output> outputs_of(const Spec& spec, const Dims& dims) {
  std::vector<Output> list = {{"o", {dims.B, dims.T, dims.U, dims.V}}, {"S_final", {dims.N, dims.U, dims.K, dims.V}}};
  if (reference::uses_moment(spec)) list.push_back({"A_final", {dims.N, dims.H, dims.K}});
  if (spec.precond == Precond::kRls) list.push_back({"P_final", {dims.N, dims.H, dims.K, dims.K}});
  if (spec.precond == Precond::kMesa) list.push_back({"G_final", {dims.N, dims.H, dims.K, dims.K}});
  return list;
}

// Visits the results of one head as visit(output name, flat index into the output, value).
template <class T, class Visit>
void for_each_result(const Dims& dims, const HeadResult<T>& head, int64_t n, int64_t u, const Visit& visit) {
  const int64_t first = dims.cu_seqlens.empty() ? n * dims.T : dims.cu_seqlens[static_cast<std::size_t>(n)];
  for (std::size_t i = 0; i < head.o.size(); ++i) {
    const int64_t t = first + static_cast<int64_t>(i) / dims.V;
    visit("o", (t * dims.U + u) * dims.V + static_cast<int64_t>(i) % dims.V, head.o[i]);
  }
  const auto state = [&](const char* name, const std::vector<T>& values, int64_t index) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      visit(name, index * static_cast<int64_t>(values.size()) + static_cast<int64_t>(i), values[i]);
    }
  };
  state("S_final", head.S, n * dims.U + u);
  const int64_t group = dims.U / dims.H;
  if (u % group != 0) return;  // value heads of one key head share these states; the first one reports them
  const int64_t nh = n * dims.H + u / group;
  state("A_final", head.A, nh);
  state("P_final", head.P, nh);
  state("G_final", head.G, nh);
}

}  // namespace

Arrays reference_forward(const Spec& spec, const Arrays& inputs) {
  validate(spec);
  const Dims dims = read_dims(spec, inputs);
  check_inputs(spec, inputs, dims);
  Operands<double> operands{};
  for (const auto& field : kFields<double>) {
    const auto found = inputs.find(std::string(field.name));
    if (found != inputs.end()) operands.*field.member = found->second.data.data();
  }

  Arrays outputs;
  for (const Output& output : outputs_of(spec, dims)) {
    int64_t size = 1;
    for (int64_t extent : output.shape) size *= extent;
    outputs[output.name] = {output.shape, std::vector<double>(static_cast<std::size_t>(size))};
  }
  for (int64_t n = 0; n < dims.N; ++n) {
    for (int64_t u = 0; u < dims.U; ++u) {
      const HeadResult<double> head = run_head(spec, dims, operands, n, u);
      for_each_result(dims, head, n, u, [&](const char* name, int64_t index, double value) {
        outputs.at(name).data[static_cast<std::size_t>(index)] = value;
      });
    }
  }
  return outputs;
}

Arrays reference_backward(const Spec& spec, const Arrays& inputs, const Arrays& upstream) {
  validate(spec);
  const Dims dims = read_dims(spec, inputs);
  check_inputs(spec, inputs, dims);
  std::map<std::string, const Array*> weights;  // by the name of the output
  for (const Output& output : outputs_of(spec, dims)) {
    if (const auto found = upstream.find("d" + output.name); found != upstream.end()) {
      require_shape(found->first, found->second, output.shape);
      weights[output.name] = &found->second;
    }
  }
  for (const auto& [name, array] : upstream) {
    if (name.empty() || !weights.count(name.substr(1))) {
      throw bad(name, "an upstream gradient of that name", "the gradient of an output of this row, such as do");
    }
  }

  Tape tape;
  std::map<std::string, std::vector<Var>> leaves;
  Operands<Var> operands{};
  for (const auto& field : kFields<Var>) {
    const auto found = inputs.find(std::string(field.name));
    if (found == inputs.end()) continue;
    std::vector<Var>& values = leaves[found->first];
    for (double value : found->second.data) values.push_back(tape.leaf(value));
    operands.*field.member = values.data();
  }

  // Heads meet only in the leaves, so that each is swept and forgotten before the next.
  const std::size_t first_node = tape.size();
  for (int64_t n = 0; n < dims.N; ++n) {
    for (int64_t u = 0; u < dims.U; ++u) {
      const HeadResult<Var> head = run_head(spec, dims, operands, n, u);
      for_each_result(dims, head, n, u, [&](const char* name, int64_t index, const Var& value) {
        const auto weight = weights.find(name);
        if (weight != weights.end()) tape.add_adjoint(value, weight->second->data[static_cast<std::size_t>(index)]);
      });
      tape.sweep(first_node);
    }
  }

  Arrays gradients;
  for (const auto& [name, values] : leaves) {
    Array& gradient = gradients[name] = {inputs.at(name).shape, {}};
    for (const Var& value : values) gradient.data.push_back(tape.adjoint(value));
  }
  return gradients;
}

}  // namespace deltanet
