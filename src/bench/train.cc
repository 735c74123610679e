#include "bench/train.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <random>

#include "bench/memory.h"
#include "bench/rows.h"
#include "deltanet/error.h"
#include "nn/linear.h"
#include "nn/matmul/onednn.h"
#include "train/batch_model.h"
#include "train/model_adamw.h"

namespace deltanet::bench {
namespace {

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
  Subject(const Config& config, const TrainBenchOptions& options, int threads)
      : threads_(threads),
        layout_(std::make_shared<Layout>(config)),
        weights_(std::make_shared<Weights>(layout_, parse_weight_type(options.precision), /*keep_masters=*/true)),
        model_(weights_, threads, options.batch, options.length, options.recompute ? Keep::kRecompute : Keep::kAll),
        adamw_(*layout_, {}),
        gradients_(*layout_) {
    weights_->initialize(1, threads);
    std::mt19937 random(1);
    std::uniform_int_distribution<int32_t> id(0, static_cast<int32_t>(config.vocab_size - 1));
    for (int64_t i = 0; i < options.batch * options.length; ++i) ids_.push_back(id(random));
    targets_.assign(ids_.begin() + 1, ids_.end());
    targets_.push_back(ids_.front());
    for (int64_t n = 0; n <= options.batch; ++n) offsets_.push_back(n * options.length);
  }

  void step() {
    const double loss = model_.loss_and_gradients(
        ids_, targets_, offsets_, {.target = 1.0f / static_cast<float>(ids_.size())}, gradients_.replaced());
    const double norm = gradient_norm(gradients_, threads_);
    if (!std::isfinite(loss) || !std::isfinite(norm)) throw Error("[bench train] the loss is not finite");
    constexpr double kRate = 1e-4, kClip = 1;
    adamw_.step(*weights_, gradients_, norm, kClip, kRate, threads_);
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
      const int64_t block = is_head ? std::min(rows, nn::VocabularyLoss::block_tokens(at.out)) : rows;
      const double times = is_head ? static_cast<double>(rows) / static_cast<double>(block)
                                   : static_cast<double>(layout_->layers().size());
      seconds += times * onednn_seconds(weights_->type(), block, at.out, at.in, threads_);
      flops += times * 6.0 * static_cast<double>(block * at.out * at.in);
    }
    return {seconds, flops};
  }

  std::vector<std::pair<std::string, int64_t>> memory() const {
    return {{"weights", weights_->bytes()},
            {"gradients", 4 * adamw_.size() + model_.gradient_bytes()},
            {"moments", 8 * adamw_.size()},
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
  ModelAdamW adamw_;
  GradientArrays gradients_;
  std::vector<int32_t> ids_, targets_;
  std::vector<int64_t> offsets_;
  double loss_ = 0;
};

class TrainBench {
 public:
  TrainBench(const TrainBenchOptions& options, const Report& report) : options_(options), report_(report) {
    if (options_.small) options_.batch = 8, options_.length = 256;
    result_.threads = options.threads > 0 ? options.threads : default_threads();
    result_.batch = options_.batch;
    result_.length = options_.length;
  }

  TrainBenchResult run() {
    measure();
    result_.memory = subjects_.front()->memory();
    for (std::size_t i = 0; i < subjects_.size(); ++i) summarize(i);
    if (!options_.small) promise();
    return result_;
  }

 private:
  void measure() {
    for (const std::string& row : options_.rows) {
      report_(fmt::format("weights of {} ...", row));
      const Config config = options_.small ? small_config(row) : row_config(row, options_.size);
      subjects_.push_back(std::make_unique<Subject>(config, options_, result_.threads));
      if (result_.peak > 0) continue;
      report_("memory ...");  // while there is only one model, and no product of oneDNN
      subjects_.front()->step();
      result_.peak = process_memory("VmHWM");
    }
    std::vector<std::function<void()>> steps;
    for (const auto& subject : subjects_) {
      steps.emplace_back([&subject = *subject, count = options_.steps] {
        for (int i = 0; i < count; ++i) subject.step();
      });
    }
    // All subjects do their steps in turn, so that noise hits them alike; the products of the first are measured in
    // between.
    std::vector<double> rates;
    seconds_ = interleave(steps, options_.rounds, [&](int round) {
      const auto [time, flops] = subjects_.front()->products();
      rates.push_back(flops / time * 1e-9);
      report_(fmt::format("round {} of {} ...", round + 1, options_.rounds));
    });
    result_.product_rate = median(rates);
    for (auto& of_subject : seconds_) {
      for (double& round : of_subject) round /= options_.steps;
    }
  }

  void summarize(std::size_t i) {
    const Subject& subject = *subjects_[i];
    TrainRowResult row;
    row.row = options_.rows[i];
    row.parameters = subject.layout().parameter_count();
    row.seconds = seconds_[i];
    const double middle = median(row.seconds);
    row.tokens_per_second = static_cast<double>(subject.tokens()) / middle;
    row.gflops = step_flops(subject.layout(), options_.batch, options_.length) / middle * 1e-9;
    row.share = row.gflops / result_.product_rate;
    row.against = median(ratios(seconds_[i], seconds_[0]));
    row.loss = subject.loss();
    result_.rows.push_back(row);
  }

  // A row in front of which a p stands is the preconditioned form of the first.
  void promise() {
    const std::string& first = options_.rows[0];
    for (const TrainRowResult& row : result_.rows) {
      result_.floors.push_back({row.row + ": share of the rate of oneDNN", ">=", 0.75, {row.share}});
      if (row.row == "p" + first) {
        result_.floors.push_back(
            {fmt::format("{} against {}: time of a step", row.row, first), "<=", 1.03, {row.against}});
      }
    }
    const double ratio = static_cast<double>(result_.peak) / static_cast<double>(result_.planned());
    result_.floors.push_back({"peak memory against the plan", "<=", 1.2, {ratio}});
  }

  TrainBenchOptions options_;
  const Report& report_;
  std::vector<std::unique_ptr<Subject>> subjects_;
  std::vector<std::vector<double>> seconds_;  // [subject][round], of a step
  TrainBenchResult result_;
};

}  // namespace

int64_t TrainBenchResult::planned() const {
  int64_t sum = 0;
  for (const auto& [name, bytes] : memory) sum += bytes;
  return sum;
}

TrainBenchResult measure_training(const TrainBenchOptions& options, const Report& report) {
  if (options.precision == "int8") throw Error("[bench train] precision: given int8; expected f32 or bf16");
  return TrainBench(options, report).run();
}

}  // namespace deltanet::bench
