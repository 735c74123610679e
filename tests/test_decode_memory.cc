// Decoding takes memory once: a step allocates nothing, and a million of them leave the program as large as it was.

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "counted_new.h"
#include "deltanet/rows.h"
#include "model/generation/generate.h"
#include "model/language_model.h"
#include "sanitized.h"

namespace deltanet::test {
namespace {

#ifdef DELTANET_OPENMP
constexpr int kThreads = 2;
#else
constexpr int kThreads = 1;  // starting a std::thread allocates
#endif

std::string config_of(const std::string& row, const std::string& more = "") {
  return R"({"model_type": "dgps", "row": ")" + row + R"(", "hidden_size": 16, "num_hidden_layers": 2, "num_heads": 2,
         "head_dim": 8, "expand_v": 1.0, "vocab_size": 16, "intermediate_size": 16)" +
         more + "}";
}

std::string windowed_config() {
  return config_of("pgdn", R"(, "attn": {"layers": [1], "num_heads": 2, "num_kv_heads": 1, "window_size": 20})");
}

struct Case {
  std::string name, config;
};

std::vector<Case> cases() {
  std::vector<Case> list;
  for (const Row& row : rows()) list.push_back({std::string(row.name), config_of(std::string(row.name))});
  list.push_back({"windowed", windowed_config()});
  list.push_back({"gated_wide", config_of("gdn", R"(, "use_gate": true, "num_v_heads": 4)")});
  return list;
}

LanguageModel make_model(const std::string& config, int threads) {
  const auto layout = std::make_shared<const Layout>(parse_config(config, "config"));
  const auto weights = std::make_shared<Weights>(layout, nn::WeightType::kFloat32, false);
  weights->initialize(1, 1);
  return {weights, threads};
}

// Tokens one by one, for some sequences side by side.
class Decoder {
 public:
  Decoder(LanguageModel& model, int64_t sequences)
      : model_(model),
        state_(model.layout(), sequences),
        ids_(static_cast<std::size_t>(sequences)),
        logits_(static_cast<std::size_t>(sequences * model.config().vocab_size)) {
    for (int64_t n = 0; n <= sequences; ++n) offsets_.push_back(n);
  }

  void run(int64_t steps) {
    for (int64_t step = 0; step < steps; ++step) {
      for (std::size_t n = 0; n < ids_.size(); ++n)
        ids_[n] = static_cast<int32_t>((step + static_cast<int64_t>(n)) % 16);
      model_.next_logits(ids_, offsets_, &state_, logits_.data());
    }
  }

  int64_t state_bytes() const { return state_.bytes(); }

 private:
  LanguageModel& model_;
  State state_;
  std::vector<int32_t> ids_;
  std::vector<int64_t> offsets_;
  std::vector<float> logits_;
};

class DecodeMemory : public testing::TestWithParam<Case> {};

TEST_P(DecodeMemory, AStepAllocatesNothing) {
  for (int threads = 1; threads <= kThreads; ++threads) {
    LanguageModel model = make_model(GetParam().config, threads);
    for (const int64_t sequences : {1, 3}) {
      Decoder decoder(model, sequences);
      decoder.run(300);
      const int64_t state_before = decoder.state_bytes();
      EXPECT_EQ(least_allocated(allocations, 0, [&] { decoder.run(50); }), 0)
          << threads << " threads, " << sequences << " sequences";
      EXPECT_EQ(decoder.state_bytes(), state_before);
    }
  }
}

TEST_P(DecodeMemory, LongerTextsDoNotAllocateMore) {
  LanguageModel model = make_model(GetParam().config, 1);
  const auto count = [&](int64_t tokens) {
    State state(model.layout(), 1);
    const int64_t before = allocations;
    const std::vector<std::vector<int32_t>> prompts = {{1, 2, 3}};
    GenerateOptions options;
    options.max_tokens = tokens;
    options.sampling.temperature = 1.0;
    options.sampling.top_p = 0.9;
    generate(model, state, prompts, options, [](int64_t, int32_t) { return true; });
    return allocations - before;
  };
  count(400);
  EXPECT_EQ(count(400), count(200));
}

INSTANTIATE_TEST_SUITE_P(Rows, DecodeMemory, testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST(LongDecode, AMillionTokensStayInTheSameMemory) {
  constexpr int64_t kTokens = kSanitized ? 40'000 : 1'000'000;
  LanguageModel model = make_model(windowed_config(), 1);
  Decoder decoder(model, 1);
  decoder.run(36'000);  // tables of angles are full
  const int64_t resident_before = resident_bytes();
  const int64_t before = allocations, state_before = decoder.state_bytes();
  decoder.run(kTokens);
  EXPECT_EQ(allocations - before, 0);
  EXPECT_EQ(decoder.state_bytes(), state_before);
  ASSERT_GT(resident_before, 0);
  if (kSanitized) return;  // sanitizers keep memory of their own
  EXPECT_LE(resident_bytes() - resident_before, 1 << 20);
}

}  // namespace
}  // namespace deltanet::test
