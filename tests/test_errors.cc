// Wrong input: every mistake gives deltanet::Error that names the operation and the argument, and writes nothing.

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "deltanet/error.h"
#include "deltanet/recurrence.h"
#include "deltanet/runtime.h"
#include "recurrence/arrays.h"

namespace deltanet::test {
namespace {

// A small correct call of pgdn that the tests then spoil.
struct Call {
  Spec spec = find_row("pgdn").spec;
  Shape shape;
  Options options{.mode = Mode::kChunk, .threads = 1, .check_values = false};
  std::vector<std::vector<float>> buffers, watched;  // watched: outputs and gradients
  Inputs inputs;
  InputGradients gradients;
  Outputs outputs;
  OutputGradients upstream;
  std::vector<int64_t> cu_seqlens;

  explicit Call(const Shape& sizes = {1, 6, 2, 4, 5, 3, 1}) : shape(sizes) {
    for (const auto& arg : input_args()) {
      const auto extents = input_shape(spec, arg.name, shape);
      if (extents.empty()) continue;
      inputs.*arg.member = tensor(extents, arg.name == "g" || arg.name == "g_atk" ? -0.5f : 0.5f);
    }
    for (const auto& arg : input_gradient_args()) {
      const auto extents = input_shape(spec, arg.name, shape);
      if (!extents.empty()) gradients.*arg.member = tensor(extents, kUntouched);
    }
    for (const auto& arg : output_args()) {
      const auto extents = output_shape(spec, arg.name, shape);
      if (!extents.empty()) outputs.*arg.member = tensor(extents, kUntouched);
    }
    for (const auto& arg : output_gradient_args()) {
      const auto extents = output_shape(spec, arg.name, shape);
      if (!extents.empty()) upstream.*arg.member = tensor(extents, 1.0f);
    }
  }

  Tensor tensor(const std::vector<int64_t>& extents, float value) {
    auto& list = value == kUntouched ? watched : buffers;
    list.emplace_back(static_cast<std::size_t>(Tensor(nullptr, extents).size()), value);
    return {list.back().data(), extents};
  }

  // Packs the six tokens as given and resizes the states to match.
  void pack(std::vector<int64_t> cuts) {
    cu_seqlens = std::move(cuts);
    inputs.cu_seqlens = cu_seqlens;
  }

  // An element of an input's memory.
  float& element(const ConstTensor& input, std::size_t at) {
    for (std::vector<float>& buffer : buffers) {
      if (buffer.data() == input.data) return buffer.at(at);
    }
    throw std::logic_error("not an input of this call");
  }

  bool wrote_nothing() const {
    for (const std::vector<float>& buffer : watched) {
      for (const float x : buffer) {
        if (x != kUntouched) return false;
      }
    }
    return true;
  }

  static constexpr float kUntouched = -12345.0f;
};

template <class Function>
std::string error_of(const Function& function) {
  try {
    function();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Errors, DoNotComeFromACorrectCall) {
  Call call;
  call.options.check_values = true;
  EXPECT_NO_THROW(forward(call.spec, call.inputs, call.outputs, call.options));
  EXPECT_NO_THROW(backward(call.spec, call.inputs, call.upstream, call.gradients, call.options));
}

struct Mistake {
  const char* name;
  const char* argument;               // that the error must name
  std::vector<const char*> mentions;  // what was given and what was expected
  std::function<void(Call&)> make;
};
void PrintTo(const Mistake& mistake, std::ostream* out) { *out << mistake.name; }

// Both passes check the inputs in the same way.
class InputMistake : public testing::TestWithParam<Mistake> {};

TEST_P(InputMistake, IsRejectedByForwardAndBackward) {
  const Mistake& mistake = GetParam();
  Call call;
  mistake.make(call);
  const std::string errors[] = {
      error_of([&] { forward(call.spec, call.inputs, call.outputs, call.options); }),
      error_of([&] { backward(call.spec, call.inputs, call.upstream, call.gradients, call.options); })};
  const std::string operations[] = {"forward", "backward"};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(errors[i].find("[" + operations[i] + "] " + mistake.argument), 0U) << errors[i];
    for (const char* text : mistake.mentions) EXPECT_NE(errors[i].find(text), std::string::npos) << errors[i];
  }
  EXPECT_TRUE(call.wrote_nothing());
}

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

INSTANTIATE_TEST_SUITE_P(
    Errors, InputMistake,
    testing::Values(
        Mistake{"missing_q", "q", {"missing", "[B,T,H,K]"}, [](Call& c) { c.inputs.q = {}; }},
        Mistake{"missing_k", "k", {"missing"}, [](Call& c) { c.inputs.k = {}; }},
        Mistake{"missing_v", "v", {"missing"}, [](Call& c) { c.inputs.v = {}; }},
        Mistake{"missing_beta", "beta", {"missing"}, [](Call& c) { c.inputs.beta = {}; }},
        Mistake{"missing_g", "g", {"missing"}, [](Call& c) { c.inputs.g = {}; }},
        Mistake{"missing_center", "log_atk_scale", {"missing"}, [](Call& c) { c.inputs.log_atk_scale = {}; }},
        Mistake{"q_of_rank_3", "q", {"[1,6,2]", "[B,T,H,K]"}, [](Call& c) { c.inputs.q.rank = 3; }},
        Mistake{"k_with_another_K", "k", {"[1,6,2,7]", "[1,6,2,5]"}, [](Call& c) { c.inputs.k.shape[3] = 7; }},
        Mistake{"k_with_another_T", "k", {"[1,5,2,5]", "[1,6,2,5]"}, [](Call& c) { c.inputs.k.shape[1] = 5; }},
        Mistake{"v_with_another_T", "v", {"5", "6"}, [](Call& c) { c.inputs.v.shape[1] = 5; }},
        Mistake{"v_with_another_B", "v", {"2", "1"}, [](Call& c) { c.inputs.v.shape[0] = 2; }},
        Mistake{"heads_not_a_multiple", "v", {"3 heads", "multiple", "2"}, [](Call& c) { c.inputs.v.shape[2] = 3; }},
        Mistake{"no_tokens_of_q_alone", "k", {"[1,6,2,5]", "[1,0,2,5]"}, [](Call& c) { c.inputs.q.shape[1] = 0; }},
        Mistake{"no_key_channels", "q", {"[1,6,2,0]"}, [](Call& c) { c.inputs.q.shape[3] = 0; }},
        Mistake{"negative_size", "q", {"-1"}, [](Call& c) { c.inputs.q.shape[3] = -1; }},
        Mistake{"g_of_the_diagonal_shape",
                "g",
                {"[B,T,HV]"},
                [](Call& c) {
                  c.inputs.g = c.tensor({1, 6, 4, 5}, -0.5f);
                }},
        Mistake{"beta_per_key_head",
                "beta",
                {"[1,6,2]", "[1,6,4]"},
                [](Call& c) {
                  c.inputs.beta = c.tensor({1, 6, 2}, 0.5f);
                }},
        Mistake{"state_transposed",
                "S0",
                {"[1,4,3,5]", "[1,4,5,3]"},
                [](Call& c) {
                  c.inputs.S0 = c.tensor({1, 4, 3, 5}, 0.0f);
                }},
        Mistake{"moment_of_another_count",
                "A0",
                {"[2,2,5]", "[1,2,5]"},
                [](Call& c) {
                  c.inputs.A0 = c.tensor({2, 2, 5}, 0.0f);
                }},
        Mistake{"unused_input",
                "ridge",
                {"does not use"},
                [](Call& c) {
                  c.inputs.ridge = c.tensor({2, 5}, 1.0f);
                }},
        Mistake{"cu_seqlens_of_a_batch",
                "cu_seqlens",
                {"B = 1"},
                [](Call& c) {
                  c.inputs.q.shape[0] = c.inputs.k.shape[0] = 2;
                  c.pack({0, 6});
                }},
        Mistake{"cu_seqlens_too_short", "cu_seqlens", {"1", "at least 2"}, [](Call& c) { c.pack({0}); }},
        Mistake{"cu_seqlens_from_1",
                "cu_seqlens",
                {"1", "0"},
                [](Call& c) {
                  c.pack({1, 6});
                }},
        Mistake{"cu_seqlens_past_the_end",
                "cu_seqlens",
                {"7", "T = 6"},
                [](Call& c) {
                  c.pack({0, 3, 7});
                }},
        Mistake{"cu_seqlens_before_the_end",
                "cu_seqlens",
                {"5", "T = 6"},
                [](Call& c) {
                  c.pack({0, 5});
                }},
        Mistake{"cu_seqlens_falling_by_one",
                "cu_seqlens",
                {"entry 2 is 2 after 3"},
                [](Call& c) {
                  c.pack({0, 3, 2, 6});
                }},
        Mistake{"cu_seqlens_falling",
                "cu_seqlens",
                {"2 after 4", "never fall"},
                [](Call& c) {
                  c.pack({0, 4, 2, 6});
                }},
        Mistake{"states_of_another_packing",
                "S0",
                {"[1,4,5,3]", "[2,4,5,3]"},
                [](Call& c) {
                  c.pack({0, 3, 6});
                }},
        Mistake{"nan",
                "q",
                {"nan", "finite"},
                [](Call& c) {
                  c.options.check_values = true;
                  c.element(c.inputs.q, 7) = kNan;
                }},
        Mistake{"infinity",
                "v",
                {"inf", "finite"},
                [](Call& c) {
                  c.options.check_values = true;
                  c.element(c.inputs.v, 1) = kInfinity;
                }},
        Mistake{"positive_log_decay",
                "g",
                {"0.25", "at most 0"},
                [](Call& c) {
                  c.options.check_values = true;
                  c.element(c.inputs.g, 23) = 0.25f;
                }},
        Mistake{"positive_moment_decay",
                "g_atk",
                {"1", "at most 0"},
                [](Call& c) {
                  c.options.check_values = true;
                  c.element(c.inputs.g_atk, 0) = 1.0f;
                }}),
    [](const auto& test) { return test.param.name; });

TEST(Errors, NameAWrongOutput) {
  Call call;
  call.outputs.o.shape[3] = 4;
  const std::string error = error_of([&] { forward(call.spec, call.inputs, call.outputs, call.options); });
  EXPECT_EQ(error.find("[forward] o: given shape [1,6,4,4]"), 0U) << error;
  EXPECT_NE(error.find("[1,6,4,3]"), std::string::npos) << error;
  EXPECT_TRUE(call.wrote_nothing());
}

TEST(Errors, NameAStateThatTheRowDoesNotHave) {
  Call call;
  call.outputs.P_final = call.tensor({1, 2, 5, 5}, Call::kUntouched);
  const std::string error = error_of([&] { forward(call.spec, call.inputs, call.outputs, call.options); });
  EXPECT_EQ(error.find("[forward] P_final"), 0U) << error;
  EXPECT_TRUE(call.wrote_nothing());
}

TEST(Errors, NameAWrongUpstreamGradient) {
  Call call;
  call.upstream.o.shape[1] = 5;
  const std::string error =
      error_of([&] { backward(call.spec, call.inputs, call.upstream, call.gradients, call.options); });
  EXPECT_EQ(error.find("[backward] do: given shape [1,5,4,3]"), 0U) << error;
  EXPECT_TRUE(call.wrote_nothing());
}

TEST(Errors, NameAWrongGradient) {
  Call call;
  call.gradients.beta.shape[2] = 2;
  const std::string error =
      error_of([&] { backward(call.spec, call.inputs, call.upstream, call.gradients, call.options); });
  EXPECT_EQ(error.find("[backward] gradient of beta"), 0U) << error;
  EXPECT_TRUE(call.wrote_nothing());
}

TEST(Errors, NameWritesThatCannotBeHandedOn) {
  Call call;
  std::vector<float> memory(1000, Call::kUntouched);
  const Shape shape = infer_shape(call.spec, call.inputs);
  const auto expect_refused = [&](const char* mention) {
    const std::string errors[] = {
        error_of([&] { forward(call.spec, call.inputs, call.outputs, call.options); }),
        error_of([&] { backward(call.spec, call.inputs, call.upstream, call.gradients, call.options); })};
    for (const std::string& error : errors) {
      EXPECT_NE(error.find("] writes: "), std::string::npos) << error;
      EXPECT_NE(error.find(mention), std::string::npos) << error;
    }
    EXPECT_TRUE(call.wrote_nothing());
  };
  call.options.writes = Tensor(memory.data(), {shape.B, shape.T + 1, shape.U, shape.V});
  expect_refused("expected [B,T,HV,V]");
  call.options.writes = Tensor(memory.data(), {shape.B, shape.T, shape.U, shape.V});
  call.options.mode = Mode::kRecurrent;
  expect_refused("expected chunk mode");
  call.options.mode = Mode::kChunk;
  call.options.check_values = true;
  memory[0] = kNan;
  const std::string unset =
      error_of([&] { backward(call.spec, call.inputs, call.upstream, call.gradients, call.options); });
  EXPECT_EQ(unset.find("[backward] writes: value at [0,0,0,0] is nan"), 0U) << unset;
  EXPECT_TRUE(call.wrote_nothing());
  const Spec offline = find_row("mamba2").spec;
  const Arrays arrays = random_inputs(offline, shape, 1);
  const std::string error = error_of([&] { forward_arrays(offline, arrays, call.options); });
  EXPECT_EQ(error, "[forward] writes: is given, but this row solves for nothing; remove it");
}

TEST(Errors, NameAContradictorySpec) {
  Call call;
  call.spec.x = 3;
  EXPECT_THROW(forward(call.spec, call.inputs, call.outputs, call.options), Error);
  EXPECT_THROW(backward(call.spec, call.inputs, call.upstream, call.gradients, call.options), Error);
  EXPECT_TRUE(call.wrote_nothing());
}

TEST(Errors, NameTheHeadsThatTiedGatesNeed) {
  Call call;
  call.spec.tie_gates = true;
  call.inputs.g_atk = call.inputs.beta_atk = {};
  const std::string error = error_of([&] { infer_shape(call.spec, call.inputs); });
  EXPECT_NE(error.find("as many value heads as key heads"), std::string::npos) << error;
}

TEST(Errors, NameBothWaysToStartRls) {
  Call call;
  call.spec = find_row("rls").spec;
  Inputs inputs;
  inputs.q = call.inputs.q;
  inputs.k = call.inputs.k;
  inputs.v = call.inputs.v;
  EXPECT_NE(error_of([&] { infer_shape(call.spec, inputs); }).find("ridge"), std::string::npos);
  inputs.ridge = call.tensor({2}, 1.0f);
  EXPECT_NO_THROW(infer_shape(call.spec, inputs));
  inputs.P0 = call.tensor({1, 2, 5, 5}, 1.0f);
  EXPECT_NE(error_of([&] { infer_shape(call.spec, inputs); }).find("ridge"), std::string::npos);
}

TEST(Errors, NameTheGradientOfARidgeThatP0Replaces) {
  Call call;
  call.spec = find_row("rls").spec;
  Inputs inputs;
  inputs.q = call.inputs.q;
  inputs.k = call.inputs.k;
  inputs.v = call.inputs.v;
  inputs.P0 = call.tensor({1, 2, 5, 5}, 1.0f);
  OutputGradients upstream;
  upstream.o = call.upstream.o;
  InputGradients gradients;
  gradients.ridge = call.tensor({2}, Call::kUntouched);
  EXPECT_EQ(error_of([&] { backward(call.spec, inputs, upstream, gradients, call.options); }),
            "[backward] gradient of ridge: is asked for, but P0 is given in its place");
  EXPECT_TRUE(call.wrote_nothing());
}

// In every argument, at every place: the error names it.
TEST(Errors, FindAWrongValueWhereverItIs) {
  Call call({2, 2, 2, 4, 2, 3, 2});
  call.options.check_values = true;
  for (const auto& arg : input_args()) {
    const ConstTensor& input = call.inputs.*arg.member;
    for (int64_t i = 0; input && i < input.size(); ++i) {
      std::string place;
      for (int64_t axis = input.rank - 1, rest = i; axis >= 0; rest /= input.shape[axis--]) {
        place = std::to_string(rest % input.shape[axis]) + (place.empty() ? "" : ",") + place;
      }
      float& element = call.element(input, static_cast<std::size_t>(i));
      const float good = element;
      for (const float bad : {kNan, -kInfinity, arg.name == "g" || arg.name == "g_atk" ? 1e-30f : kInfinity}) {
        element = bad;
        const std::string error = error_of([&] { forward(call.spec, call.inputs, call.outputs, call.options); });
        const std::string expected = "[forward] " + std::string(arg.name) + ": value at [" + place + "] is ";
        EXPECT_EQ(error.substr(0, expected.size()), expected) << error;
      }
      element = good;
    }
  }
  EXPECT_TRUE(call.wrote_nothing());
}

TEST(Errors, NameUnknownArgumentsAndTargets) {
  const Spec spec;
  EXPECT_NE(error_of([&] { input_shape(spec, "gamma", {}); }).find("gamma"), std::string::npos);
  EXPECT_NE(error_of([&] { output_shape(spec, "x", {}); }).find("\"x\""), std::string::npos);
  const std::string error = error_of([] { set_simd_target("MMX"); });
  EXPECT_NE(error.find("MMX"), std::string::npos);
  EXPECT_NE(error.find(simd_target()), std::string::npos);
}

}  // namespace
}  // namespace deltanet::test
