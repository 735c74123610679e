// `deltanet bench model`: a language model against the machine. Prefill is compared with what oneDNN reaches on the
// largest product of a layer, decoding with the bandwidth of memory, both measured in the same run.

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "base/text.h"
#include "bench/measure.h"
#include "cli/bench.h"
#include "bench/rows.h"
#include "cli/json_file.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "deltanet/model.h"
#include "model/language_model.h"
#include "nn/onednn.h"
#include "simd/bandwidth.h"

namespace deltanet::cli {
using namespace bench;
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::string preset = "pgdn-340m", directory, json, scratch;
  int64_t tokens = 2048;
  int rounds = 3, steps = 60, threads = 0;
  bool no_load = false;
};

struct Line {
  std::string name, what;
  double value = 0;
  std::string unit;
  std::string relation = {};  // ">=" or "<=": a floor
  double bound = 0;
  bool holds() const { return relation.empty() || (relation == ">=" ? value >= bound : value <= bound); }
};

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
  explicit ModelBench(const Settings& settings)
      : settings_(settings), threads_(settings.threads > 0 ? settings.threads : default_threads()) {
    const Config config = settings.directory.empty()
                              ? preset_config(settings.preset)
                              : load_config((fs::path(settings.directory) / "config.json").string());
    layout_ = std::make_shared<Layout>(config);
    progress_.show("random weights ...");
    weights_ = std::make_shared<Weights>(layout_, WeightType::kFloat32, false);
    weights_->initialise(1, threads_);
    weights_->refresh(threads_);
  }

  int run() {
    prefill();
    decode();
    if (!settings_.no_load) load();
    progress_.clear();
    print();
    for (const Line& line : lines_) {
      if (!line.holds()) return 1;
    }
    return 0;
  }

 private:
  void add(Line line) { lines_.push_back(std::move(line)); }

  void prefill() {
    LanguageModel model(weights_, threads_);
    const Config& config = layout_->config();
    const std::vector<int32_t> ids = random_ids(settings_.tokens, config.vocab_size);
    const int64_t offsets[] = {0, settings_.tokens};
    std::vector<float> logits(static_cast<std::size_t>(config.vocab_size));
    State state(*layout_, 1);

    const MatrixAt at = largest_matrix(*layout_);
    std::vector<float> x(static_cast<std::size_t>(settings_.tokens * at.in), 0.5f);
    std::vector<float> y(static_cast<std::size_t>(settings_.tokens * at.out));
    constexpr int kProducts = 8;
    const auto product = [&] {
      for (int i = 0; i < kProducts; ++i) {
        nn::onednn_matmul({.m = settings_.tokens,
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
    const auto seconds = interleave({product, pass}, settings_.rounds, [&](int round) {
      progress_.show(fmt::format("prefill, round {} of {} ...", round + 1, settings_.rounds));
    });
    const double product_flops = 2.0 * kProducts * static_cast<double>(settings_.tokens * at.out * at.in);
    const double rate = prefill_flops(*layout_, settings_.tokens) / median(seconds[1]) * 1e-9;
    const double layer_rate = product_flops / median(seconds[0]) * 1e-9;
    std::vector<double> share = ratios(seconds[0], seconds[1]);
    for (double& value : share) value *= prefill_flops(*layout_, settings_.tokens) / product_flops;
    add({"layer_gflops",
         fmt::format("oneDNN on the largest product of a layer, {} x {} x {}", settings_.tokens, at.out, at.in),
         layer_rate, "GFLOP/s"});
    add({"prefill_gflops", fmt::format("prefill of {} tokens", settings_.tokens), rate, "GFLOP/s"});
    add({"prefill_tokens_per_second", "", static_cast<double>(settings_.tokens) / median(seconds[1]), "tokens/s"});
    add({"prefill_share", "  share of that product", median(share), "", ">=", 0.70});
  }

  // One step for each type of weights, in turns with one pass over a large array: the bandwidth of memory may change
  // from one second to the next.
  void decode() {
    const WeightType types[] = {WeightType::kFloat32, WeightType::kBfloat16, WeightType::kInt8};
    std::vector<std::shared_ptr<Weights>> weights;
    std::vector<std::unique_ptr<LanguageModel>> models;
    std::vector<State> states;
    for (const WeightType type : types) {
      progress_.show(fmt::format("weights in {} ...", weight_type_name(type)));
      weights.push_back(type == WeightType::kFloat32 ? weights_ : converted(*weights_, type, threads_));
      models.push_back(std::make_unique<LanguageModel>(weights.back(), threads_));
      states.emplace_back(*layout_, 1);
    }
    const simd::LargeArray array(threads_);
    const int64_t offsets[] = {0, 1};
    const std::vector<int32_t> ids = random_ids(settings_.steps, layout_->config().vocab_size);
    std::vector<float> logits(static_cast<std::size_t>(layout_->config().vocab_size));
    int step = 0;
    bool right = true;
    std::vector<std::function<void()>> candidates = {[&] { right = array.read() && right; }};
    for (std::size_t i = 0; i < std::size(types); ++i) {
      candidates.push_back([&, i] {
        models[i]->next_logits({ids.data() + step, 1}, offsets, &states[i], logits.data());
      });
    }
    const auto seconds = interleave(candidates, settings_.steps, [&](int round) {
      step = round;
      progress_.show(fmt::format("decoding, token {} of {} ...", round + 1, settings_.steps));
    });

    if (!right) throw Error("[bench model] memory: what was read is not what was written");

    const auto rates = [](const std::vector<double>& of, int64_t bytes) {
      std::vector<double> rate;
      for (double one : of) rate.push_back(static_cast<double>(bytes) / one * 1e-9);
      return rate;
    };
    const std::vector<double> bandwidth = rates(seconds[0], simd::LargeArray::bytes());
    add({"bandwidth", "memory, reading", median(bandwidth), "GB/s"});
    for (std::size_t i = 0; i < std::size(types); ++i) {
      const std::string type = weight_type_name(types[i]);
      const std::vector<double> rate = rates(seconds[i + 1], weights[i]->product_bytes());
      add({"decode_" + type + "_tokens_per_second", fmt::format("decoding, {}", type), 1 / median(seconds[i + 1]),
           "tokens/s"});
      add({"decode_" + type + "_gbps", "  weights", median(rate), "GB/s"});
      const bool has_floor = types[i] != WeightType::kInt8;
      add({"decode_" + type + "_share", "  share of the bandwidth", median(ratios(rate, bandwidth)), "",
           has_floor ? ">=" : "", 0.75});
    }
    add({"int8_speedup", "int8 against f32", median(ratios(seconds[1], seconds[3])), "x", ">=", 2.5});
  }

  void load() {
    fs::path directory = settings_.directory;
    fs::path made;
    if (directory.empty()) {
      progress_.show("writing a checkpoint ...");
      made = fs::path(settings_.scratch.empty() ? fs::temp_directory_path() : fs::path(settings_.scratch)) /
             fmt::format("deltanet-bench-{}", std::random_device{}());
      const Model model = Model::from_config(config_text(layout_->config(), "float32"), 1, {.threads = threads_});
      weights_.reset();
      model.save(made.string());
      directory = made;
    }
    std::vector<double> seconds;
    for (int round = 0; round <= settings_.rounds; ++round) {
      progress_.show("loading ...");
      const double once = seconds_of([&] { Model::load(directory.string(), {.threads = threads_}); });
      if (round > 0) seconds.push_back(once);  // the first brings the file into the cache
    }
    if (!made.empty()) fs::remove_all(made);
    add({"load_seconds",
         fmt::format("loading {} of float32, file in cache",
                     bytes_text(4.0 * static_cast<double>(layout_->parameter_count()))),
         median(seconds), "s", "<=", 1.0});
  }

  void print() const {
    const std::string name = settings_.directory.empty() ? settings_.preset : settings_.directory;
    fmt::print("{}, {} parameters, {} threads, {} on {}\n\n", bold(name), grouped_text(layout_->parameter_count()),
               threads_, simd_target(), cpu_model());
    std::vector<std::vector<std::string>> table;
    for (const Line& line : lines_) {
      table.push_back({line.what, digits_text(line.value), line.unit,
                       line.relation.empty() ? "" : fmt::format("{} {}", line.relation, line.bound),
                       line.relation.empty() ? "" : verdict(line.holds())});
    }
    print_table(table, {1});
    if (settings_.json.empty()) return;
    nlohmann::json json = {{"machine", machine_json(threads_)}, {"model", name}, {"tokens", settings_.tokens}};
    for (const Line& line : lines_) {
      json["results"][line.name] = line.value;
      if (!line.relation.empty()) {
        json["floors"][line.name] = {{"relation", line.relation}, {"bound", line.bound}, {"holds", line.holds()}};
      }
    }
    write_json(settings_.json, json);
  }

  const Settings& settings_;
  int threads_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<Weights> weights_;
  std::vector<Line> lines_;
  Progress progress_;
};

}  // namespace

std::function<int()> setup_bench_model(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("--preset", settings->preset, "Model, ROW-SIZE").show_default();
  args.option("--directory", settings->directory, "A checkpoint's configuration instead; it is also what is loaded");
  args.option("--tokens", settings->tokens, "Length of the prefill").show_default().positive();
  args.option("--rounds", settings->rounds, "Measurements of prefill and loading, of which the median counts")
      .show_default()
      .positive();
  args.option("--steps", settings->steps, "Tokens decoded, of which the median counts").show_default().positive();
  args.option("--threads", settings->threads, "Threads (default: one per core)").not_negative();
  args.flag("--no-load", settings->no_load, "Do not write and load a checkpoint");
  args.option("--scratch", settings->scratch, "Where the checkpoint is written for a moment (default: the system's)");
  args.option("--json", settings->json, "Write the results to this file (- for standard output)");
  return [settings] {
    if (!settings->json.empty()) check_writable(settings->json);
    return ModelBench(*settings).run();
  };
}

}  // namespace deltanet::cli
