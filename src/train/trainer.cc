#include "train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <new>

#include "base/parallel.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"
#include "nn/cross_entropy.h"

namespace deltanet {
namespace {

int64_t count_targets(const Batch& batch) {
  return std::count_if(batch.targets.begin(), batch.targets.end(), [](int32_t t) { return t != nn::kIgnoredLabel; });
}

std::string text_of(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

// The first parameter with a value that is not finite; empty: all are finite.
std::string first_not_finite(const Layout& layout, const float* matrices, const float* vectors) {
  for (const Parameter& parameter : layout.parameters()) {
    const float* values = (parameter.is_matrix ? matrices : vectors) + parameter.offset;
    if (!std::all_of(values, values + parameter.size, [](float x) { return std::isfinite(x); })) return parameter.name;
  }
  return "";
}

Keep keep_of(const TrainConfig& config) { return config.recompute ? Keep::kRecompute : Keep::kAll; }

}  // namespace

Trainer::Trainer(const TrainConfig& config, Communicator& processes)
    : config_(config),
      processes_(processes),
      threads_(config.threads > 0 ? static_cast<int>(config.threads) : default_threads()),
      schedule_(config.schedule_of_steps()),
      layout_(std::make_shared<Layout>(config.model_config())) {
  if (config.batch_size < processes.size()) {
    throw Error("[train] batch_size: given " + std::to_string(config.batch_size) +
                "; expected at least one sequence for each of the " + std::to_string(processes.size()) + " processes");
  }
  constexpr int64_t kFloat = sizeof(float);
  memory_.gradients = (layout_->matrices_size() + layout_->vectors_size()) * kFloat;
  for (const int64_t size : {layout_->matrices_size(), layout_->vectors_size()}) {
    const std::vector<int64_t> begins = share_begins(size, processes.size());
    memory_.moments += 2 * (begins[processes.rank() + 1] - begins[processes.rank()]) * kFloat;
  }
  const int64_t available = available_memory();
  try {
    // Nothing of this is written to yet, so the system has not given any memory.
    weights_ = std::make_shared<Weights>(layout_, parse_weight_type(config.precision), /*keep_masters=*/true);
    // Several processes reduce the gradients of a layer while those below it are at work: they need them whole.
    model_ = std::make_unique<BatchModel>(weights_, threads_, config.sequences_per_pass(), config.sequence_length,
                                          keep_of(config), /*whole=*/processes.size() > 1);
    memory_.weights = weights_->bytes();
    memory_.gradients += model_->gradient_bytes();
    memory_.activations = model_->planned_bytes();
    check_fits(memory_, available, of_other_processes());
    gradients_.resize(*layout_);
    adamw_ = std::make_unique<ModelAdamW>(*layout_, config.adamw(), processes.rank(), processes.size());
  } catch (const std::bad_alloc&) {
    try {
      complete_plan();
    } catch (const std::bad_alloc&) {
      // What is known of the plan must do.
    }
    check_fits(memory_, available);
    throw Error("[train] memory: the system refused to give " + gigabytes(memory_.total()) + ", although " +
                gigabytes(available) + " are available; is there a limit on this process (ulimit -v)?");
  }
}

int64_t Trainer::of_other_processes() {
  const auto own = static_cast<double>(memory_.total());
  return static_cast<int64_t>(processes_.sum_on_machine(own) - own);
}

// Where the system refused memory, the plan says all the same how much would have been needed.
void Trainer::complete_plan() {
  if (!weights_) {
    const int64_t copy = config_.precision == "bf16" ? sizeof(uint16_t) : 0;
    memory_.weights = memory_.gradients + layout_->matrices_size() * copy;
    return;
  }
  memory_.weights = weights_->bytes();
  if (model_) return;
  // Activations grow with the tokens in a line, of which two small plans give the slope, about.
  constexpr int64_t kTokens = 1024;
  int64_t bytes[2];
  for (int i = 0; i < 2; ++i) {
    bytes[i] = BatchModel(weights_, 1, 1, (i + 1) * kTokens, keep_of(config_), /*whole=*/true).planned_bytes();
  }
  const auto tokens = static_cast<double>(config_.sequences_per_pass() * config_.sequence_length);
  memory_.activations = static_cast<int64_t>(static_cast<double>(bytes[0]) +
                                             static_cast<double>(bytes[1] - bytes[0]) * (tokens / kTokens - 1));
}

void Trainer::initialize() {
  state_ = {};
  if (config_.init_from.empty()) {
    weights_->initialize(config_.seed, threads_);
    return;
  }
  const CheckpointReader reader(config_.init_from);
  check_tensors(*layout_, reader);
  weights_->load(reader, threads_);
  weights_->refresh(threads_);
}

double Trainer::accumulate_gradients(const BatchSource& data) {
  // The share of this process in the samples of the step, a pass at a time.
  const std::vector<int64_t> shares = share_begins(config_.batch_size, processes_.size());
  const int64_t end = shares[processes_.rank() + 1], first_sample = state_.step * config_.batch_size;
  const int64_t per_pass = config_.sequences_per_pass();
  batches_.clear();
  double totals[3] = {0, 0, 0};  // loss, targets, tokens
  for (int64_t begin = shares[processes_.rank()]; begin < end; begin += per_pass) {
    data.fill(first_sample + begin, std::min(per_pass, end - begin), batches_.emplace_back());
    totals[1] += static_cast<double>(count_targets(batches_.back()));
    totals[2] += static_cast<double>(batches_.back().ids.size());
  }
  processes_.sum(&totals[1], 2);
  if (totals[1] == 0) throw Error("[train] data: a whole step has no token to predict");

  const LossScale scale = mean_of(static_cast<int64_t>(totals[1]), static_cast<int64_t>(totals[2]));
  for (std::size_t i = 0; i < batches_.size(); ++i) {
    // Gradients travel as soon as the last pass has completed them, while the layers below are still at work.
    std::function<void(const GradientRange&)> send;
    if (i + 1 == batches_.size()) {
      send = [&](const GradientRange& done) {
        processes_.start_sum(gradients_.matrices.data() + done.matrices_begin, done.matrices_end - done.matrices_begin);
        processes_.start_sum(gradients_.vectors.data() + done.vectors_begin, done.vectors_end - done.vectors_begin);
      };
    }
    totals[0] += model_->loss_and_gradients(batches_[i].ids, batches_[i].targets, batches_[i].offsets, scale,
                                            i > 0 ? gradients_.added() : gradients_.replaced(), send);
  }
  processes_.sum(&totals[0], 1);
  processes_.wait();
  return totals[0] / totals[1];
}

void Trainer::update(const StepReport& report) {
  const double clip = config_.clip > 0 ? config_.clip : std::numeric_limits<double>::infinity();
  adamw_->step(*weights_, gradients_, report.grad_norm, clip, report.lr, threads_);
  processes_.all_gather(weights_->matrices(), adamw_->matrices_begins());
  processes_.all_gather(weights_->vectors(), adamw_->vectors_begins());
  weights_->refresh(threads_);
}

StepReport Trainer::step(const BatchSource& data) {
  StepReport report;
  report.lr = learning_rate(schedule_, state_.step);
  double result[2];  // loss and norm, the same bits in all processes
  result[0] = accumulate_gradients(data);
  result[1] = gradient_norm(gradients_, threads_);
  processes_.broadcast(result, sizeof result);
  report.loss = result[0];
  report.grad_norm = result[1];
  report.skipped = !std::isfinite(report.loss) || !std::isfinite(report.grad_norm);
  report.step = ++state_.step;
  if (report.skipped) {
    ++state_.bad_steps;
    if (++state_.bad_in_a_row >= config_.max_bad_steps) stop_with_diagnosis(report);
    return report;
  }
  update(report);
  ++state_.optimizer_steps;
  state_.bad_in_a_row = 0;
  state_.last_good_loss = report.loss;
  return report;
}

void Trainer::stop_with_diagnosis(const StepReport& last) {
  const std::string weight = first_not_finite(*layout_, weights_->matrices(), weights_->vectors());
  const std::string gradient = first_not_finite(*layout_, gradients_.matrices.data(), gradients_.vectors.data());
  std::string where = "all gradients are finite";
  if (!weight.empty()) {
    where = "the weight " + weight + " is not finite";
  } else if (!gradient.empty()) {
    where = "the first gradient that is not finite belongs to " + gradient;
  }
  for (const Batch& batch : batches_) {
    const std::string place = model_->first_not_finite(batch.ids, batch.targets, batch.offsets);
    if (place.empty()) continue;
    where += "; what first is not finite in a pass is that of " + place;
    break;
  }
  throw Error(
      "[train] step " + std::to_string(last.step) + ": " + std::to_string(state_.bad_in_a_row) +
      " steps in a row had a loss or gradients that are not finite (" + std::to_string(state_.bad_steps) +
      " in all): " + where + "; loss " + text_of(last.loss) + ", last good loss " + text_of(state_.last_good_loss) +
      ", learning rate " + text_of(last.lr) + ". A lower lr" +
      (config_.precision == "f32" ? "" : ", precision = \"f32\"") +
      " or a longer warmup may help, in a new run from the weights of a checkpoint (init_from). The checkpoints "
      "from before these steps are all there");
}

double Trainer::evaluate(const BatchSource& held_out) {
  const int64_t samples = std::min(held_out.samples_per_epoch(), config_.eval_batches * config_.batch_size);
  const std::vector<int64_t> shares = share_begins(samples, processes_.size());
  const int64_t end = shares[processes_.rank() + 1], per_pass = config_.sequences_per_pass();
  double totals[2] = {0, 0};
  Batch batch;
  for (int64_t begin = shares[processes_.rank()]; begin < end; begin += per_pass) {
    held_out.fill(begin, std::min(per_pass, end - begin), batch);
    totals[0] += model_->loss(batch.ids, batch.targets, batch.offsets);
    totals[1] += static_cast<double>(count_targets(batch));
  }
  processes_.sum(totals, 2);
  double loss = totals[0] / totals[1];
  processes_.broadcast(&loss, sizeof loss);  // the same bits in all: whether it is the best decides who saves
  if (loss < state_.best_loss) {
    state_.best_loss = loss;
    state_.best_step = state_.step;
  }
  return loss;
}

void Trainer::restore(const TrainState& state) {
  state_ = state;
  adamw_->set_steps(state.optimizer_steps);
  weights_->refresh(threads_);
}

}  // namespace deltanet
