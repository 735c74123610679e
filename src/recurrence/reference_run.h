#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "recurrence/autodiff.h"
#include "recurrence/reference.h"
#include "recurrence/reference_args.h"

// Runs the token loop of reference.h over all heads in the arithmetic of any type of number, and collects values or
// gradients. deltanet/reference.h is this in float64; the tests also run it in numbers that are rounded as float32 is
// (tests/bounds.h).

namespace deltanet::reference {

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

template <class Number, template <class> class State = DenseState>
Arrays forward(const Spec& spec, const Arrays& inputs) {
  validate(spec);
  const Dims dims = read_dims(spec, inputs);
  check_inputs(spec, inputs, dims);
  std::map<std::string, std::vector<Number>> numbers;
  Operands<Number> operands{};
  for (const auto& field : kFields<Number>) {
    const auto found = inputs.find(std::string(field.name));
    if (found == inputs.end()) continue;
    std::vector<Number>& values = numbers[found->first];
    values.assign(found->second.data.begin(), found->second.data.end());
    operands.*field.member = values.data();
  }

  Arrays outputs;
  for (const Output& output : outputs_of(spec, dims)) {
    int64_t size = 1;
    for (int64_t extent : output.shape) size *= extent;
    outputs[output.name] = {output.shape, std::vector<double>(static_cast<std::size_t>(size))};
  }
  for (int64_t n = 0; n < dims.N; ++n) {
    for (int64_t u = 0; u < dims.U; ++u) {
      const HeadResult<Number> head = run_head<State>(spec, dims, operands, n, u);
      for_each_result(dims, head, n, u, [&](const char* name, int64_t index, const Number& value) {
        outputs.at(name).data[static_cast<std::size_t>(index)] = number_of(value);
      });
    }
  }
  return outputs;
}

template <class Number, template <class> class State = DenseState>
Arrays backward(const Spec& spec, const Arrays& inputs, const Arrays& upstream) {
  validate(spec);
  const Dims dims = read_dims(spec, inputs);
  check_inputs(spec, inputs, dims);
  check_upstream(upstream, outputs_of(spec, dims));

  Tape<Number> tape;
  std::map<std::string, std::vector<Var<Number>>> leaves;
  Operands<Var<Number>> operands{};
  for (const auto& field : kFields<Var<Number>>) {
    const auto found = inputs.find(std::string(field.name));
    if (found == inputs.end()) continue;
    std::vector<Var<Number>>& values = leaves[found->first];
    for (double value : found->second.data) values.push_back(tape.leaf(value));
    operands.*field.member = values.data();
  }

  // Heads meet only in the leaves, so that each is swept and forgotten before the next.
  const std::size_t first_node = tape.size();
  for (int64_t n = 0; n < dims.N; ++n) {
    for (int64_t u = 0; u < dims.U; ++u) {
      const HeadResult<Var<Number>> head = run_head<State>(spec, dims, operands, n, u);
      for_each_result(dims, head, n, u, [&](const std::string& name, int64_t index, const Var<Number>& value) {
        const auto weight = upstream.find("d" + name);
        if (weight != upstream.end()) tape.add_adjoint(value, weight->second.data[static_cast<std::size_t>(index)]);
      });
      tape.sweep(first_node);
    }
  }

  Arrays gradients;
  for (const auto& [name, values] : leaves) {
    Array& gradient = gradients[name] = {inputs.at(name).shape, {}};
    for (const Var<Number>& value : values) gradient.data.push_back(number_of(tape.adjoint(value)));
  }
  return gradients;
}

}  // namespace deltanet::reference
