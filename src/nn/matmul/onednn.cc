#include "nn/matmul/onednn.h"

#include <array>
#include <cassert>
#include <cstddef>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/arena.h"
#include "base/parallel.h"
#include "base/signals.h"
#include "deltanet/error.h"

namespace deltanet::nn {
namespace {

using dnnl::memory;

// Everything a primitive is made for; the pointers are given with each execution.
struct Key {
  WeightType type;
  int threads;
  bool a_transposed, b_transposed, bias, add;
  int64_t m, n, depth, lda, ldb, ldc;
  bool operator==(const Key&) const = default;
};

struct KeyHash {
  std::size_t operator()(const Key& k) const {
    std::size_t hash = static_cast<std::size_t>(k.type) + 4 * static_cast<std::size_t>(k.threads);
    const auto mix = [&](int64_t value) { hash = (hash ^ static_cast<std::size_t>(value)) * 0x9E3779B97F4A7C15u; };
    mix(k.a_transposed + 2 * k.b_transposed + 4 * k.bias + 8 * k.add);
    for (const int64_t extent : {k.m, k.n, k.depth, k.lda, k.ldb, k.ldc}) mix(extent);
    return hash ^ hash >> 32;
  }
};

struct Context {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
};

Context& context() {
  thread_local Context one;
  return one;
}

memory::desc matrix(int64_t rows, int64_t columns, memory::data_type type, int64_t ld, bool transposed) {
  return {{rows, columns}, type, transposed ? memory::dims{1, ld} : memory::dims{ld, 1}};
}

dnnl::matmul::primitive_desc describe(const Key& k) {
  const memory::data_type factor = k.type == WeightType::kFloat32    ? memory::data_type::f32
                                   : k.type == WeightType::kBfloat16 ? memory::data_type::bf16
                                                                     : memory::data_type::s8;
  const memory::data_type sum = k.type == WeightType::kInt8 ? memory::data_type::s32 : memory::data_type::f32;
  const memory::desc a = matrix(k.m, k.depth, factor, k.lda, k.a_transposed);
  const memory::desc b = matrix(k.depth, k.n, factor, k.ldb, k.b_transposed);
  const memory::desc c = matrix(k.m, k.n, sum, k.ldc, false);
  const memory::desc bias =
      k.bias ? memory::desc({1, k.n}, memory::data_type::f32, memory::format_tag::ab) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (k.add) {
    dnnl::post_ops after;
    after.append_sum(1.0f);
    attributes.set_post_ops(after);
  }
#if DNNL_VERSION_MAJOR >= 3
  return {context().engine, a, b, bias, c, attributes};
#else
  return {dnnl::matmul::desc(a, b, bias, c), attributes, context().engine};
#endif
}

// A primitive with the memory objects of its arguments.
class Plan {
 public:
  explicit Plan(const Key& k) : Plan(describe(k), k.bias, k.threads) {}

  void execute(const Matmul& p) {
    thread_local Arena scratchpads;
    scratchpads.reset();
    // oneDNN's inputs are const to it, though its handles are not.
    set(0, DNNL_ARG_SRC, const_cast<void*>(p.a));
    set(1, DNNL_ARG_WEIGHTS, const_cast<void*>(p.b));
    set(2, DNNL_ARG_DST, p.c);
    set(3, DNNL_ARG_SCRATCHPAD, scratchpads.take(scratchpad_floats_));
    if (p.bias) set(4, DNNL_ARG_BIAS, const_cast<float*>(p.bias));
    std::optional<SignalsWait> wait;
    if (is_gemm_ || !kSignalsReachTeams) wait.emplace(threads_);
    dnnl_stream_t stream = context().stream.get();
    // Not by the C++ wrapper, which would build a list of the arguments on the heap.
    dnnl::error::wrap_c_api(dnnl_primitive_execute(primitive_.get(), stream, p.bias ? 5 : 4, arguments_.data()),
                            "execution failed");
    dnnl::error::wrap_c_api(dnnl_stream_wait(stream), "waiting failed");
  }

  uint64_t last_use = 0;

 private:
  Plan(const dnnl::matmul::primitive_desc& made, bool bias, int threads)
      : primitive_(made),
        threads_(threads),
        is_gemm_(std::string_view(made.impl_info_str()).starts_with("gemm")),
        memories_{empty(made.src_desc()), empty(made.weights_desc()), empty(made.dst_desc()),
                  empty(made.scratchpad_desc()), bias ? empty(made.bias_desc()) : memory()},
        scratchpad_floats_(static_cast<int64_t>(made.scratchpad_desc().get_size() / sizeof(float)) + 1) {}

  static memory empty(const memory::desc& described) { return {described, context().engine, DNNL_MEMORY_NONE}; }

  void set(std::size_t at, int argument, void* data) {
    memories_[at].set_data_handle(data);
    arguments_[at] = {argument, memories_[at].get()};
  }

  dnnl::matmul primitive_;
  int threads_;
  // oneDNN's older code for products, which it takes for matrices that are not dense. In version 2.6, for float32, it
  // points the stack register into the heap.
  bool is_gemm_;
  std::array<memory, 5> memories_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
  int64_t scratchpad_floats_;
};

constexpr std::size_t kKeptPlans = 512;

Plan& plan_of(const Key& key) {
  thread_local std::unordered_map<Key, Plan, KeyHash> plans;
  thread_local uint64_t uses = 0;
  auto found = plans.find(key);
  if (found == plans.end()) {
    if (plans.size() == kKeptPlans) {
      auto oldest = plans.begin();
      for (auto one = plans.begin(); one != plans.end(); ++one) {
        if (one->second.last_use < oldest->second.last_use) oldest = one;
      }
      plans.erase(oldest);
    }
    found = plans.try_emplace(key, key).first;
  }
  found->second.last_use = ++uses;
  return found->second;
}

void multiply(const Matmul& p, int threads) {
  plan_of({p.type, threads, p.a_transposed, p.b_transposed, p.bias != nullptr, p.add, p.m, p.n, p.depth, p.lda, p.ldb,
           p.ldc})
      .execute(p);
}

}  // namespace

void onednn_matmul(const Matmul& product, int threads) {
  assert(threads >= 1);
  const ThreadLimit limit(threads);
  try {
    multiply(product, limit.threads());
  } catch (const dnnl::error& error) {
    throw Error("[matmul] oneDNN: " + std::string(error.what()) + "; given m = " + std::to_string(product.m) +
                ", n = " + std::to_string(product.n) + ", depth = " + std::to_string(product.depth));
  }
}

namespace {

// The values are sets of bits: each contains those of the instruction sets it includes.
bool has(dnnl::cpu_isa needed) {
  static const auto effective = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  return (effective & static_cast<unsigned>(needed)) == static_cast<unsigned>(needed);
}

}  // namespace

bool onednn_multiplies(WeightType type) {
  return type == WeightType::kFloat32 ||
         has(type == WeightType::kBfloat16 ? dnnl::cpu_isa::avx512_core_bf16 : dnnl::cpu_isa::avx512_core_vnni);
}

bool onednn_has_matrix_units(WeightType type) {
  return type != WeightType::kFloat32 && has(dnnl::cpu_isa::avx512_core_amx);
}

}  // namespace deltanet::nn
