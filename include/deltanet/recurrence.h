#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "deltanet/rows.h"
#include "deltanet/tensor.h"

// Forward, backward and reference of every row of the DGPS table. All tensors are float32.
//
// Shapes: B batch, T tokens, H key heads, U value heads (a multiple of H), K key and V value dimension, N sequences
// (B, or the number of packed sequences). The state S is [K,V] per value head. g, g_atk are log decays, <= 0. B and T
// may be 0: sequences without tokens leave their states as they are.

namespace deltanet {

// What a call reads, as Inputs, or the gradients of it that backward writes, as InputGradients.
template <class View>
struct InputsOf {
  using Member = View;
  View q, k;                            // [B,T,H,K]
  View v;                               // [B,T,U,V]
  View g;                               // log decay: scalar [B,T,U], diagonal [B,T,U,K], constant [U]
  View beta;                            // [B,T,U]
  View beta_erase, d;                   // Comba: [B,T,U], [H]
  View g_atk, beta_atk;                 // [B,T,H]; absent: no decay, gain 1
  View log_atk_scale;                   // [H]
  View ridge;                           // [H,K]; RLS without P0: [H]
  View a, b, kk, eta;                   // DPLR factors [B,T,H,K]
  View k_write, k_erase;                // free keys [B,T,H,K], used as they are: l2norm is that of q and k
  View S0, A0, P0, G0;                  // [N,U,K,V], [N,H,K], [N,H,K,K] x2; absent: zero (P0: I/ridge)
  std::span<const int64_t> cu_seqlens;  // [N+1] packs N sequences, some perhaps empty, into B = 1; empty: N = B
};
using Inputs = InputsOf<ConstTensor>;
using InputGradients = InputsOf<Tensor>;  // without cu_seqlens, which has no gradient

// What forward writes, as Outputs, or the gradients of it that backward reads, as OutputGradients.
template <class View>
struct OutputsOf {
  using Member = View;
  View o;                                   // [B,T,U,V]
  View S_final, A_final, P_final, G_final;  // like S0, A0, P0, G0

  operator OutputsOf<ConstTensor>() const requires(!std::is_same_v<View, ConstTensor>) {
    return {o, S_final, A_final, P_final, G_final};
  }
};
using Outputs = OutputsOf<Tensor>;
using OutputGradients = OutputsOf<ConstTensor>;

// A named member of one of these groups; the tables drive validation, the bindings and the tests.
template <class Group>
struct Arg {
  std::string_view name;
  typename Group::Member Group::*member;
};
std::span<const Arg<Inputs>> input_args();
std::span<const Arg<InputGradients>> input_gradient_args();  // as input_args(), in the same order
std::span<const Arg<Outputs>> output_args();
std::span<const Arg<OutputGradients>> output_gradient_args();  // as output_args()

struct Shape {
  int64_t B = 0, T = 0, H = 0, U = 0, K = 0, V = 0, N = 0;
};

enum class Mode { kChunk, kRecurrent };

struct Options {
  Mode mode = Mode::kChunk;
  int threads = 0;            // 0: the default of the machine
  bool check_values = false;  // also scan the inputs for NaN, infinities and positive log decays
  // [B,T,U,V], for online and DPLR rows in chunk form: forward leaves there the writes that it solves for, and backward
  // takes them from there instead of solving again. Both must have the same spec and inputs, initial states too; the
  // memory is no other argument's. Absent: nothing is handed on.
  Tensor writes{};
  // MesaNet's G0 is symmetric, and backward gives the symmetric gradient. True: the gradient that takes every entry of
  // G0 for a variable of its own, as differentiating a solve with any matrix does; its symmetric part is the other one.
  bool free_gram_gradient = false;
};

// Checks ranks and sizes of the inputs against the spec and each other; throws Error naming the argument.
Shape infer_shape(const Spec& spec, const Inputs& inputs);

// The shape that an input or output must have for this spec; empty when the spec does not use it. Used to allocate.
std::vector<int64_t> input_shape(const Spec& spec, std::string_view name, const Shape& shape);
std::vector<int64_t> output_shape(const Spec& spec, std::string_view name, const Shape& shape);

// o and the final states. Outputs without data are not written; final states may alias the initial ones.
void forward(const Spec& spec, const Inputs& inputs, const Outputs& outputs, const Options& options = {});

// Gradients of sum(o*do) + sum(S_final*dS_final) + ... with respect to the inputs. An absent upstream gradient is zero;
// a gradient without data is not computed. Gradients are overwritten, not accumulated.
void backward(const Spec& spec, const Inputs& inputs, const OutputGradients& upstream, const InputGradients& gradients,
              const Options& options = {});

}  // namespace deltanet
