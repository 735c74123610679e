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

#include "base/text.h"
#include "bench/measure.h"
#include "cli/bench.h"
#include "bench/rows.h"
#include "cli/json_file.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "nn/linear.h"
#include "nn/onednn.h"
#include "train/adamw.h"
#include "train/batch_model.h"

namespace deltanet::cli {
using namespace bench;
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
        model_.loss_and_gradients(ids_, targets_, offsets_, {.target = 1.0f / static_cast<float>(ids_.size())},
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

// What is promised for the paper's sizes. A row in front of which a p stands is the preconditioned form of the first.
struct Promise {
  std::string what;
  double value = 0;
  std::string_view relation;  // ">=" or "<="
  double bound = 0;
  bool holds() const { return relation == ">=" ? value >= bound : value <= bound; }
};

class TrainBench {
 public:
  explicit TrainBench(const Settings& settings)
      : settings_(settings), threads_(settings.threads > 0 ? settings.threads : default_threads()) {
    if (settings_.small) settings_.batch = 8, settings_.length = 256;
  }

  int run() {
    measure();
    for (std::size_t i = 0; i < subjects_.size(); ++i) summarise(i);
    promises_.push_back(
        {"peak memory against the plan", static_cast<double>(peak_) / static_cast<double>(planned()), "<=", 1.2});
    if (settings_.small) promises_.clear();  // they are about the paper's sizes
    print();
    write_json(settings_.json, json());
    return std::all_of(promises_.begin(), promises_.end(), [](const Promise& p) { return p.holds(); }) ? 0 : 1;
  }

 private:
  struct Summary {
    double tokens_per_second = 0, seconds = 0, gflops = 0;
    double share = 0;    // of the rate that oneDNN reaches on the products
    double against = 0;  // time of a step against that of the first row
  };

  void measure() {
    for (const std::string& row : settings_.rows) {
      progress_.show(fmt::format("weights of {} ...", row));
      const Config config = settings_.small ? small_config(row) : row_config(row, settings_.size);
      subjects_.push_back(std::make_unique<Subject>(config, settings_, threads_));
      if (peak_ > 0) continue;
      progress_.show("memory ...");  // while there is only one model, and no product of oneDNN
      subjects_.front()->step();
      peak_ = peak_bytes();
    }
    std::vector<std::function<void()>> steps;
    for (const auto& subject : subjects_) {
      steps.emplace_back([&subject = *subject, count = settings_.steps] {
        for (int i = 0; i < count; ++i) subject.step();
      });
    }
    // All subjects do their steps in turn, so that noise hits them alike; the products of the first are measured in
    // between.
    std::vector<double> rates;
    seconds_ = interleave(steps, settings_.rounds, [&](int round) {
      const auto [time, flops] = subjects_.front()->products();
      rates.push_back(flops / time * 1e-9);
      progress_.show(fmt::format("round {} of {} ...", round + 1, settings_.rounds));
    });
    progress_.clear();
    product_rate_ = median(rates);
    for (auto& of_subject : seconds_) {
      for (double& round : of_subject) round /= settings_.steps;
    }
  }

  void summarise(std::size_t i) {
    const Subject& subject = *subjects_[i];
    Summary summary;
    summary.seconds = median(seconds_[i]);
    summary.tokens_per_second = static_cast<double>(subject.tokens()) / summary.seconds;
    summary.gflops = step_flops(subject.layout(), settings_.batch, settings_.length) / summary.seconds * 1e-9;
    summary.share = summary.gflops / product_rate_;
    summary.against = median(ratios(seconds_[i], seconds_[0]));
    const std::string &row = settings_.rows[i], &first = settings_.rows[0];
    promises_.push_back({row + ": share of the rate of oneDNN", summary.share, ">=", 0.75});
    if (row == "p" + first) {
      promises_.push_back({fmt::format("{} against {}: time of a step", row, first), summary.against, "<=", 1.03});
    }
    summaries_.push_back(summary);
  }

  int64_t planned() const {
    int64_t sum = 0;
    for (const auto& [name, bytes] : subjects_.front()->memory()) sum += bytes;
    return sum;
  }

  void print() const {
    if (settings_.json == "-") return;
    fmt::print("{}, {} x {} tokens, {}, {} threads; oneDNN on the products of the layers: {} GFLOP/s\n\n",
               settings_.small ? "5.5M" : settings_.size, settings_.batch, settings_.length, settings_.precision,
               threads_, digits_text(product_rate_));
    std::vector<std::vector<std::string>> table = {{bold("row"), bold("parameters"), bold("tokens/s"), bold("s/step"),
                                                    bold("GFLOP/s"), bold("of oneDNN"), bold("time"), bold("loss")}};
    for (std::size_t i = 0; i < summaries_.size(); ++i) {
      const Summary& summary = summaries_[i];
      table.push_back({settings_.rows[i], grouped_text(subjects_[i]->layout().parameter_count()),
                       digits_text(summary.tokens_per_second), digits_text(summary.seconds),
                       digits_text(summary.gflops), fmt::format("{:.1f} %", 100 * summary.share),
                       fmt::format("{:.3f}x {}", summary.against, settings_.rows[0]),
                       digits_text(subjects_[i]->loss())});
    }
    print_table(table, {1, 2, 3, 4, 5});
    std::string parts;
    for (const auto& [name, bytes] : subjects_.front()->memory()) {
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", name, bytes_text(static_cast<double>(bytes)));
    }
    fmt::print("\nmemory of {}: {}; together {}; peak of the process {}, {:.2f}x\n", settings_.rows[0], parts,
               bytes_text(static_cast<double>(planned())), bytes_text(static_cast<double>(peak_)),
               static_cast<double>(peak_) / static_cast<double>(planned()));
    if (promises_.empty()) return;
    fmt::print("\n");
    table.clear();
    for (const Promise& promise : promises_) {
      table.push_back({promise.what, fmt::format("{:.3f}x", promise.value),
                       fmt::format("{} {:.2f}x", promise.relation, promise.bound), verdict(promise.holds())});
    }
    print_table(table, {1});
  }

  nlohmann::json json() const {
    nlohmann::json json = {{"machine", machine_json(threads_)},
                           {"precision", settings_.precision},
                           {"batch", settings_.batch},
                           {"length", settings_.length},
                           {"onednn_gflops", product_rate_}};
    for (std::size_t i = 0; i < summaries_.size(); ++i) {
      const Summary& summary = summaries_[i];
      json["rows"][settings_.rows[i]] = {{"tokens_per_second", summary.tokens_per_second},
                                         {"seconds", seconds_[i]},
                                         {"gflops", summary.gflops},
                                         {"share_of_onednn", summary.share},
                                         {"time_against_first", summary.against}};
    }
    for (const auto& [name, bytes] : subjects_.front()->memory()) json["memory"][name] = bytes;
    json["memory"]["peak"] = peak_;
    json["floors"] = nlohmann::json::array();
    for (const Promise& promise : promises_) {
      json["floors"].push_back({{"what", promise.what},
                                {"measured", promise.value},
                                {"relation", promise.relation},
                                {"floor", promise.bound},
                                {"pass", promise.holds()}});
    }
    return json;
  }

  Settings settings_;
  int threads_;
  Progress progress_;
  std::vector<std::unique_ptr<Subject>> subjects_;
  std::vector<std::vector<double>> seconds_;  // [subject][round], of a step
  double product_rate_ = 0;                   // GFLOP/s
  int64_t peak_ = 0;
  std::vector<Summary> summaries_;
  std::vector<Promise> promises_;
};

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
  args.option("--json", settings->json, "Write the results to this file (-: to standard output, instead of the table)");
  return [settings] {
    check_writable(settings->json);
    if (settings->precision == "int8") throw Error("[bench train] precision: given int8; expected f32 or bf16");
    return TrainBench(*settings).run();
  };
}

}  // namespace deltanet::cli
