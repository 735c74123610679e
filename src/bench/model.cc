#include "bench/model.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <random>

#include "base/text.h"
#include "bench/rows.h"
#include "deltanet/error.h"
#include "deltanet/model.h"
#include "model/language_model.h"
#include "nn/matmul/onednn.h"
#include "simd/bandwidth.h"

namespace deltanet::bench {
namespace {

namespace fs = std::filesystem;

// Multiplications and additions of one pass over `tokens` tokens with one row of logits.
double prefill_flops(const Layout& layout, int64_t tokens) {
  const Config& config = layout.config();
  double products = 0, recurrence = 0;
  for (const LayerLayout& layer : layout.layers()) {
    products += static_cast<double>(layer.matrices_end - layer.matrices_begin);
    if (!layer.attention_config) {
      recurrence += forward_flops(config.spec, recurrence_shape(config, layer.recurrence, tokens, 1)).value_or(0);
    } else {
      // Scores and values over half the square.
      recurrence += 2.0 * static_cast<double>(tokens) * static_cast<double>(tokens) *
                    static_cast<double>(layer.attention.heads * layer.attention.head_dim);
    }
  }
  const MatrixAt head = layout.head();
  return 2 * products * static_cast<double>(tokens) + recurrence + 2.0 * static_cast<double>(head.out * head.in);
}

// The largest matrix inside a layer.
MatrixAt largest_matrix(const Layout& layout) {
  MatrixAt largest;
  const auto consider = [&](const MatrixAt& at) {
    if (at.out * at.in > largest.out * largest.in) largest = at;
  };
  for (const LayerLayout& layer : layout.layers()) {
    for (const MatrixAt& at :
         {layer.gate_up, layer.down, layer.recurrence.in, layer.recurrence.out, layer.attention.in}) {
      consider(at);
    }
  }
  return largest;
}

std::vector<int32_t> random_ids(int64_t count, int64_t vocab) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(vocab - 1));
  std::vector<int32_t> ids(static_cast<std::size_t>(count));
  for (int32_t& one : ids) one = id(random);
  return ids;
}

std::shared_ptr<Weights> converted(const Weights& from, WeightType type, int threads) {
  auto weights = std::make_shared<Weights>(std::make_shared<Layout>(from.layout().config()), type, false);
  std::vector<float> values;
  for (const Parameter& parameter : weights->layout().parameters()) {
    values.resize(static_cast<std::size_t>(parameter.size));
    from.copy_values(parameter, values.data(), threads);
    weights->set_values(parameter, values.data(), threads);
  }
  return weights;
}

class ModelBench {
 public:
  ModelBench(const ModelBenchOptions& options, const Report& report)
      : options_(options), report_(report), threads_(options.threads > 0 ? options.threads : default_threads()) {
    const Config config = options.directory.empty()
                              ? preset_config(options.preset)
                              : load_config((fs::path(options.directory) / "config.json").string());
    layout_ = std::make_shared<Layout>(config);
    report_("random weights ...");
    weights_ = std::make_shared<Weights>(layout_, WeightType::kFloat32, false);
    weights_->initialize(1, threads_);
    weights_->refresh(threads_);
  }

  ModelBenchResult run() {
    const int64_t parameters = layout_->parameter_count();
    prefill();
    decode();
    if (options_.load) load();
    return {options_.directory.empty() ? options_.preset : options_.directory, parameters, threads_, figures_};
  }

 private:
  void add(const std::string& name, const std::string& what, double value, const std::string& unit,
           const std::string& relation = "", double bound = 0) {
    figures_.push_back({name, unit, {what, relation, bound, {value}}});
  }

  void prefill() {
    LanguageModel model(weights_, threads_);
    const Config& config = layout_->config();
    const std::vector<int32_t> ids = random_ids(options_.tokens, config.vocab_size);
    const int64_t offsets[] = {0, options_.tokens};
    std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));
    State state(*layout_, 1);

    const MatrixAt at = largest_matrix(*layout_);
    std::vector<float> x(static_cast<std::size_t>(options_.tokens * at.in), 0.5f);
    std::vector<float> y(static_cast<std::size_t>(options_.tokens * at.out));
    constexpr int kProducts = 8;
    const auto product = [&] {
      for (int i = 0; i < kProducts; ++i) {
        nn::onednn_matmul({.m = options_.tokens,
                           .n = at.out,
                           .depth = at.in,
                           .a = x.data(),
                           .lda = at.in,
                           .b = weights_->matrix(at).data,
                           .ldb = at.in,
                           .b_transposed = true,
                           .c = y.data(),
                           .ldc = at.out},
                          threads_);
      }
    };
    const auto pass = [&] {
      state.reset();
      model.next_logits(ids, offsets, &state, logits.data());
    };
    const auto seconds = interleave({product, pass}, options_.rounds, [&](int round) {
      report_(fmt::format("prefill, round {} of {} ...", round + 1, options_.rounds));
    });
    const double product_flops = 2.0 * kProducts * static_cast<double>(options_.tokens * at.out * at.in);
    const double rate = prefill_flops(*layout_, options_.tokens) / median(seconds[1]) * 1e-9;
    const double layer_rate = product_flops / median(seconds[0]) * 1e-9;
    std::vector<double> share = ratios(seconds[0], seconds[1]);
    for (double& value : share) value *= prefill_flops(*layout_, options_.tokens) / product_flops;
    add("layer_gflops",
        fmt::format("oneDNN on the largest product of a layer, {} x {} x {}", options_.tokens, at.out, at.in),
        layer_rate, "GFLOP/s");
    add("prefill_gflops", fmt::format("prefill of {} tokens", options_.tokens), rate, "GFLOP/s");
    add("prefill_tokens_per_second", "", static_cast<double>(options_.tokens) / median(seconds[1]), "tokens/s");
    add("prefill_share", "  share of that product", median(share), "", ">=", 0.70);
  }

  // One step for each type of weights, in turns with one pass over a large array: the bandwidth of memory may change
  // from one second to the next.
  void decode() {
    const WeightType types[] = {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8};
    std::vector<std::shared_ptr<Weights>> weights;
    std::vector<std::unique_ptr<LanguageModel>> models;
    std::vector<State> states;
    for (const WeightType type : types) {
      report_(fmt::format("weights in {} ...", weight_type_name(type)));
      weights.push_back(type == WeightType::kFloat32 ? weights_ : converted(*weights_, type, threads_));
      models.push_back(std::make_unique<LanguageModel>(weights.back(), threads_));
      states.emplace_back(*layout_, 1);
    }
    const simd::LargeArray array(threads_);
    const int64_t offsets[] = {0, 1};
    const std::vector<int32_t> ids = random_ids(options_.steps, layout_->config().vocab_size);
    std::vector<float> logits(static_cast<std::size_t>(layout_->config().vocab_size));
    int step = 0;
    bool right = true;
    std::vector<std::function<void()>> candidates = {[&] { right = array.read() && right; }};
    for (std::size_t i = 0; i < std::size(types); ++i) {
      candidates.push_back([&, i] {
        models[i]->next_logits({ids.data() + step, 1}, offsets, &states[i], logits.data());
      });
    }
    const auto seconds = interleave(candidates, options_.steps, [&](int round) {
      step = round;
      report_(fmt::format("decoding, token {} of {} ...", round + 1, options_.steps));
    });

    if (!right) throw Error("[bench model] memory: what was read is not what was written");

    const auto rates = [](const std::vector<double>& of, int64_t bytes) {
      std::vector<double> rate;
      rate.reserve(of.size());
      for (double one : of) rate.push_back(static_cast<double>(bytes) / one * 1e-9);
      return rate;
    };
    const std::vector<double> bandwidth = rates(seconds[0], simd::LargeArray::bytes());
    add("bandwidth", "memory, reading", median(bandwidth), "GB/s");
    for (std::size_t i = 0; i < std::size(types); ++i) {
      const std::string type = weight_type_name(types[i]);
      const std::vector<double> rate = rates(seconds[i + 1], weights[i]->product_bytes());
      add("decode_" + type + "_tokens_per_second", fmt::format("decoding, {}", type), 1 / median(seconds[i + 1]),
          "tokens/s");
      add("decode_" + type + "_gbps", "  weights", median(rate), "GB/s");
      const bool has_floor = types[i] != WeightType::kInt8;
      add("decode_" + type + "_share", "  share of the bandwidth", median(ratios(rate, bandwidth)), "",
          has_floor ? ">=" : "", 0.75);
    }
    add("int8_speedup", "int8 against f32", median(ratios(seconds[1], seconds[3])), "x", ">=", 2.5);
  }

  void load() {
    fs::path directory = options_.directory;
    fs::path made;
    if (directory.empty()) {
      report_("writing a checkpoint ...");
      made = fs::path(options_.scratch.empty() ? fs::temp_directory_path() : fs::path(options_.scratch)) /
             fmt::format("deltanet-bench-{}", std::random_device{}());
      const Model model = Model::from_config(config_text(layout_->config(), "float32"), 1, {.threads = threads_});
      weights_.reset();
      model.save(made.string());
      directory = made;
    }
    std::vector<double> seconds;
    for (int round = 0; round <= options_.rounds; ++round) {
      report_("loading ...");
      const double once = seconds_of([&] { Model::load(directory.string(), {.threads = threads_}); });
      if (round > 0) seconds.push_back(once);  // the first brings the file into the cache
    }
    if (!made.empty()) fs::remove_all(made);
    add("load_seconds",
        fmt::format("loading {} of float32, file in cache",
                    bytes_text(4.0 * static_cast<double>(layout_->parameter_count()))),
        median(seconds), "s", "<=", 1.0);
  }

  const ModelBenchOptions& options_;
  const Report& report_;
  int threads_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<Weights> weights_;
  std::vector<ModelFigure> figures_;
};

}  // namespace

ModelBenchResult measure_model(const ModelBenchOptions& options, const Report& report) {
  return ModelBench(options, report).run();
}

}  // namespace deltanet::bench
