// `deltanet bench train`: training steps of language models, against what oneDNN reaches on their products.

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/bench.h"
#include "cli/bench_measure.h"
#include "cli/bench_rows.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "nn/linear.h"
#include "nn/onednn.h"
#include "train/adamw.h"
#include "train/batch_model.h"

namespace deltanet::cli {
namespace {

struct Settings {
  std::string size = "340m", json, precision = "f32";
  std::vector<std::string> rows = {"gdn", "pgdn"};
  int64_t batch = 1, length = 2048;
  int rounds = 3, steps = 1, threads = 0;
  bool small = false, recompute = false;
};

// The small model of the comparison with PyTorch: 5.5 million parameters.
Config small_config(const std::string& row) {
  Config config = row_config(row, "340m");
  config.hidden_size = 256;
  config.num_hidden_layers = 4;
  config.intermediate_size = 768;
  config.num_heads = config.num_v_heads = 2;
  config.vocab_size = 8192;
  return config;
}

// Operations of forward and backward on one batch: six for each parameter of a product and token, and the recurrence.
double step_flops(const Layout& layout, int64_t batch, int64_t length) {
  const Config& config = layout.config();
  double matrices = static_cast<double>(layout.head().out * layout.head().in), recurrence = 0;
  for (const LayerLayout& layer : layout.layers()) {
    matrices += static_cast<double>(layer.matrices_end - layer.matrices_begin);
    if (layer.attention_config) continue;
    recurrence += training_flops(config.spec, recurrence_shape(config, layer.recurrence, length, 1)).value_or(0);
  }
  return static_cast<double>(batch) * (6 * matrices * static_cast<double>(length) + recurrence);
}

// Seconds of y = x W^T, dx = dy W and dW = dy^T x by oneDNN, with factors that need no rounding, as most of a model's.
// Each with dense rows or with the model's row distances, whichever suits oneDNN better.
double onednn_seconds(WeightType given, int64_t rows, int64_t out, int64_t in, int threads) {
  const bool narrow = given == WeightType::kBfloat16 && nn::matmul_is_fast(given);
  const auto size = [](int64_t count, int64_t n) { return static_cast<std::size_t>(count * nn::wide_ld(n)); };
  constexpr float kHalves = std::bit_cast<float>(0x3f003f00u);  // near 0.5, as bfloat16 a pair of 0.5
  std::vector<float> x(size(rows, in), kHalves), dy(size(rows, out), kHalves), w(size(out, in), kHalves);
  std::vector<float> y(dy.size()), dx(x.size()), dw(w.size());
  nn::Matmul forward, input, weight;
  for (nn::Matmul* product : {&forward, &input, &weight}) {
    product->type = narrow ? WeightType::kBfloat16 : WeightType::kFloat32;
  }
  double best[3];
  std::fill_n(best, 3, std::numeric_limits<double>::infinity());
  for (const bool dense : {true, false}) {
    const auto ld = [&](int64_t n) { return dense ? n : nn::wide_ld(n); };
    const auto factor_ld = [&](int64_t n) { return dense ? n : narrow ? nn::narrow_ld(n) : nn::wide_ld(n); };
    forward.m = input.m = weight.depth = rows;
    forward.n = input.depth = weight.m = out;
    forward.depth = input.n = weight.n = in;
    forward.a = weight.b = x.data();
    forward.lda = weight.ldb = factor_ld(in);
    forward.b = input.b = w.data();
    forward.ldb = input.ldb = in;
    forward.b_transposed = weight.a_transposed = true;
    input.a = weight.a = dy.data();
    input.lda = weight.lda = factor_ld(out);
    forward.c = y.data(), forward.ldc = ld(out);
    input.c = dx.data(), input.ldc = ld(in);
    weight.c = dw.data(), weight.ldc = in;
    int i = 0;
    for (const nn::Matmul* product : {&forward, &input, &weight}) {
      const auto run = [&] { nn::onednn_matmul(*product, threads); };
      run();
      best[i] = std::min(best[i], median({seconds_of(run), seconds_of(run), seconds_of(run)}));
      ++i;
    }
  }
  return best[0] + best[1] + best[2];
}

// One model in training: everything a step touches.
class Subject {
 public:
  Subject(const Config& config, const Settings& settings, int threads)
      : threads_(threads),
        layout_(std::make_shared<Layout>(config)),
        weights_(std::make_shared<Weights>(layout_, parse_weight_type(settings.precision), /*keep_masters=*/true)),
        model_(weights_, threads, settings.batch, settings.length, settings.recompute ? Keep::kRecompute : Keep::kAll),
        matrices_(layout_->matrices_size(), {}),
        vectors_(layout_->vectors_size(), {}),
        dmatrices_(static_cast<std::size_t>(layout_->matrices_size())),
        dvectors_(static_cast<std::size_t>(layout_->vectors_size())) {
    weights_->initialise(1, threads);
    std::mt19937 random(1);
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(config.vocab_size - 1));
    for (int64_t i = 0; i < settings.batch * settings.length; ++i) ids_.push_back(id(random));
    targets_.assign(ids_.begin() + 1, ids_.end());
    targets_.push_back(ids_.front());
    for (int64_t n = 0; n <= settings.batch; ++n) offsets_.push_back(n * settings.length);
  }

  void step() {
    const double loss =
        model_.loss_and_gradients(ids_, targets_, offsets_, 1.0f / static_cast<float>(ids_.size()),
                                  {.matrices = dmatrices_.data(), .vectors = dvectors_.data(), .add = false});
    const double norm = std::sqrt(squared_norm(dmatrices_.data(), layout_->matrices_size(), threads_) +
                                  squared_norm(dvectors_.data(), layout_->vectors_size(), threads_));
    if (!std::isfinite(loss) || !std::isfinite(norm)) throw Error("[bench train] the loss is not finite");
    const auto clip = static_cast<float>(std::min(1.0, 1.0 / norm));
    constexpr double kRate = 1e-4;
    matrices_.step(weights_->matrices(), dmatrices_.data(), clip, kRate, threads_);
    vectors_.step(weights_->vectors(), dvectors_.data(), clip, kRate, threads_);
    weights_->refresh(threads_);
    loss_ = loss / static_cast<double>(ids_.size());
  }

  // What oneDNN takes for forward and both gradients of every product of a layer and of the head, on all tokens:
  // seconds and operations.
  std::pair<double, double> products() const {
    const int64_t rows = static_cast<int64_t>(ids_.size());
    const LayerLayout& layer = layout_->layers().front();
    double seconds = 0, flops = 0;
    for (const MatrixAt& at : {layer.recurrence.in, layer.recurrence.out, layer.gate_up, layer.down, layout_->head()}) {
      // The head runs once, a layer's products as often as there are layers; long rows in blocks as the loss does.
      const bool is_head = at.offset == layout_->head().offset;
      const int64_t block = is_head ? std::min(rows, nn::VocabularyLoss::block_rows(at.out)) : rows;
      const double times = is_head ? static_cast<double>(rows) / static_cast<double>(block)
                                   : static_cast<double>(layout_->layers().size());
      seconds += times * onednn_seconds(weights_->type(), block, at.out, at.in, threads_);
      flops += times * 6.0 * static_cast<double>(block * at.out * at.in);
    }
    return {seconds, flops};
  }

  std::vector<std::pair<std::string, int64_t>> memory() const {
    return {{"weights", weights_->bytes()},
            {"gradients", 4 * static_cast<int64_t>(dmatrices_.size() + dvectors_.size()) + model_.gradient_bytes()},
            {"moments", 8 * static_cast<int64_t>(matrices_.size() + vectors_.size())},
            {"activations", model_.planned_bytes()}};
  }

  const Layout& layout() const { return *layout_; }
  int64_t tokens() const { return static_cast<int64_t>(ids_.size()); }
  double loss() const { return loss_; }

 private:
  int threads_;
  std::shared_ptr<const Layout> layout_;
  std::shared_ptr<Weights> weights_;
  BatchModel model_;
  AdamW matrices_, vectors_;
  std::vector<float> dmatrices_, dvectors_;
  std::vector<int32_t> ids_, targets_;
  std::vector<int64_t> offsets_;
  double loss_ = 0;
};

int64_t peak_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    if (word == "VmHWM:") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * 1024;
    }
  }
  return 0;
}

int run(const Settings& given) {
  Settings settings = given;
  if (settings.small) settings.batch = 8, settings.length = 256;
  const int threads = settings.threads > 0 ? settings.threads : default_threads();
  Progress progress;
  std::vector<std::unique_ptr<Subject>> subjects;
  std::vector<std::function<void()>> steps;
  for (const std::string& row : settings.rows) {
    progress.show(fmt::format("weights of {} ...", row));
    subjects.push_back(std::make_unique<Subject>(settings.small ? small_config(row) : row_config(row, settings.size),
                                                 settings, threads));
    steps.emplace_back([subject = subjects.back().get(), count = settings.steps] {
      for (int i = 0; i < count; ++i) subject->step();
    });
  }
  // All subjects do their steps in turn, so that noise hits them alike; the products of the first are measured in
  // between.
  std::vector<double> product_rates;
  auto seconds = interleave(steps, settings.rounds, [&](int round) {
    const auto [time, flops] = subjects.front()->products();
    product_rates.push_back(flops / time * 1e-9);
    progress.show(fmt::format("round {} of {} ...", round + 1, settings.rounds));
  });
  progress.clear();
  for (auto& of_subject : seconds) {
    for (double& round : of_subject) round /= settings.steps;
  }

  nlohmann::json json = {{"machine", machine_json(threads)},
                         {"precision", settings.precision},
                         {"batch", settings.batch},
                         {"length", settings.length},
                         {"onednn_gflops", median(product_rates)}};
  fmt::print("{}, {} x {} tokens, {}, {} threads; oneDNN on the products of the layers: {} GFLOP/s\n\n",
             settings.small ? "5.5M" : settings.size, settings.batch, settings.length, settings.precision, threads,
             digits_text(median(product_rates)));
  std::vector<std::vector<std::string>> table = {{bold("row"), bold("parameters"), bold("tokens/s"), bold("s/step"),
                                                  bold("GFLOP/s"), bold("of oneDNN"), bold("time"), bold("loss")}};
  for (std::size_t i = 0; i < subjects.size(); ++i) {
    const Subject& subject = *subjects[i];
    const double flops = step_flops(subject.layout(), settings.batch, settings.length);
    const double rate = flops / median(seconds[i]) * 1e-9, share = rate / median(product_rates);
    const double against = median(ratios(seconds[i], seconds[0]));
    table.push_back({settings.rows[i], grouped_text(subject.layout().parameter_count()),
                     digits_text(static_cast<double>(subject.tokens()) / median(seconds[i])),
                     digits_text(median(seconds[i])), digits_text(rate), fmt::format("{:.1f} %", 100 * share),
                     fmt::format("{:.3f}x {}", against, settings.rows[0]), digits_text(subject.loss())});
    json["rows"][settings.rows[i]] = {{"tokens_per_second", static_cast<double>(subject.tokens()) / median(seconds[i])},
                                      {"seconds", seconds[i]},
                                      {"gflops", rate},
                                      {"share_of_onednn", share},
                                      {"time_against_first", against}};
  }
  print_table(table, {1, 2, 3, 4, 5});
  int64_t planned = 0;
  std::string parts;
  for (const auto& [name, bytes] : subjects.front()->memory()) {
    planned += bytes;
    parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, bytes_text(static_cast<double>(bytes)));
    json["memory"][name] = bytes;
  }
  fmt::print("\nmemory of {}: {}; together {}", settings.rows[0], parts, bytes_text(static_cast<double>(planned)));
  if (subjects.size() == 1) {
    const double peak = static_cast<double>(peak_bytes());
    fmt::print("; peak of the process {}, {:.2f}x", bytes_text(peak), peak / static_cast<double>(planned));
    json["memory"]["peak"] = peak;
  }
  fmt::print("\n");
  if (!settings.json.empty()) write_json(settings.json, json);
  return 0;
}

}  // namespace

std::function<int()> setup_bench_train(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("--rows", settings->rows, "Rows to train, compared with the first").comma_separated();
  args.option("--size", settings->size, "340m or 1b").show_default();
  args.flag("--small", settings->small, "5.5M parameters, 8 x 256 tokens, instead");
  args.option("--batch", settings->batch, "Sequences in a step").show_default().positive();
  args.option("--length", settings->length, "Tokens of a sequence").show_default().positive();
  args.option("--precision", settings->precision, "Products in f32 or bf16").show_default();
  args.flag("--recompute", settings->recompute, "Keep only the inputs of the layers");
  args.option("--rounds", settings->rounds, "Rounds measured, with oneDNN's products in between")
      .show_default()
      .positive();
  args.option("--steps", settings->steps, "Steps of a row in a round").show_default().positive();
  args.option("--threads", settings->threads, "Threads (default: one per core)").not_negative();
  args.option("--json", settings->json, "Write the results to this file (- for standard output)");
  return [settings] {
    if (!settings->json.empty()) check_writable(settings->json);
    if (settings->precision == "int8") throw Error("[bench train] precision: given int8; expected f32 or bf16");
    return run(*settings);
  };
}

}  // namespace deltanet::cli
