#include "deltanet/optimizer.h"

#include <charconv>
#include <cmath>
#include <string_view>

#include "base/interrupt.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "model/checkpoint/safetensors.h"
#include "model/model_impl.h"
#include "train/batch_model.h"
#include "train/model_adamw.h"

namespace deltanet {
namespace {

constexpr std::string_view kFormat = "deltanet optimizer 1";

void check(const TrainStepOptions& options) {
  const auto require = [](bool holds, const char* name, double given, const char* expected) {
    if (holds) return;
    throw Error("[train_step] " + std::string(name) + ": given " + std::to_string(given) + "; expected " + expected);
  };
  const AdamWOptions& adamw = options.adamw;
  require(std::isfinite(options.lr) && options.lr >= 0, "lr", options.lr, "0 or more");
  require(adamw.beta1 >= 0 && adamw.beta1 < 1, "beta1", adamw.beta1, "0 or more and less than 1");
  require(adamw.beta2 >= 0 && adamw.beta2 < 1, "beta2", adamw.beta2, "0 or more and less than 1");
  require(std::isfinite(adamw.eps) && adamw.eps > 0, "eps", adamw.eps, "more than 0");
  require(std::isfinite(adamw.weight_decay) && adamw.weight_decay >= 0, "weight_decay", adamw.weight_decay,
          "0 or more");
  require(options.clip > 0, "clip", options.clip, "more than 0");
}

}  // namespace

struct Optimizer::Impl {
  explicit Impl(Model::Impl& trained) : model(trained), adamw(*trained.layout, {}) {}

  // As Model::loss_and_gradients, with the sequences shared out over the threads where that pays.
  LossSum loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                             std::span<const int64_t> offsets, bool recompute);

  Model::Impl& model;
  ModelAdamW adamw;
  std::unique_ptr<BatchModel> shared;  // null until a batch is shared out
  Keep shared_keep = Keep::kAll;
};

LossSum Optimizer::Impl::loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                            std::span<const int64_t> offsets, bool recompute) {
  const int threads = model.threads > 0 ? model.threads : default_threads();
  const auto tokens = static_cast<int64_t>(ids.size()), sequences = static_cast<int64_t>(offsets.size()) - 1;
  if (sequences < 1 || !BatchModel::shares_out(*model.layout, threads, sequences, tokens)) {
    return model.loss_and_gradients(ids, targets, offsets, recompute);
  }
  model.language_model.check_batch(ids, targets, offsets);  // before memory is taken for it
  const int64_t count = model.begin_gradients(targets);
  const Keep keep = recompute ? Keep::kRecompute : Keep::kAll;
  if (!shared || shared_keep != keep) {
    shared =
        std::make_unique<BatchModel>(model.weights, threads, sequences, (tokens + sequences - 1) / sequences, keep);
    shared_keep = keep;
  }
  const double sum =
      shared->loss_and_gradients(ids, targets, offsets, mean_of(count, tokens), model.gradients.replaced());
  return {sum, count};
}

Optimizer::Optimizer(Model& model) {
  if (model.weight_type() == WeightType::kInt8) {
    throw Error("[train_step] weights: given int8; expected f32 or bf16, load the model with one of them");
  }
  const InterruptScope whole(nullptr);
  model.impl_->weights->keep_masters(model.impl_->threads);
  impl_ = std::make_unique<Impl>(*model.impl_);
}

Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;
Optimizer::~Optimizer() = default;

int64_t Optimizer::steps() const { return impl_->adamw.steps(); }

TrainStepResult Optimizer::step(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                std::span<const int64_t> offsets, const TrainStepOptions& options) {
  check(options);
  Model::Impl& model = impl_->model;
  const LossSum sum = impl_->loss_and_gradients(ids, targets, offsets, options.recompute);
  TrainStepResult result{.loss = sum.mean()};
  const int threads = model.threads;
  result.grad_norm = gradient_norm(model.gradients, threads);
  result.skipped = !std::isfinite(result.loss) || !std::isfinite(result.grad_norm);
  if (result.skipped) return result;
  check_interrupt();
  const InterruptScope whole(nullptr);  // from here on the model changes
  impl_->adamw.set_options(options.adamw);
  impl_->adamw.step(*model.weights, model.gradients, result.grad_norm, options.clip, options.lr, threads);
  model.weights->refresh(threads);
  return result;
}

void Optimizer::save(const std::string& path) const {
  std::vector<StoredTensor> tensors;
  for (const ModelAdamW::Moment& moment : impl_->adamw.moments()) {
    tensors.push_back({.name = std::string(moment.name),
                       .shape = {static_cast<int64_t>(moment.own->size())},
                       .data = reinterpret_cast<const std::byte*>(moment.own->data()),
                       .bytes = static_cast<int64_t>(moment.own->size() * sizeof(float))});
  }
  write_safetensors(path, tensors, {{"format", std::string(kFormat)}, {"steps", std::to_string(steps())}});
}

void Optimizer::load(const std::string& path) {
  const SafetensorsFile file(path);
  const auto fail = [&](const std::string& what) { throw Error("[optimizer] " + path + ": " + what); };
  const auto text = [&](const char* key) {
    const auto found = file.metadata().find(key);
    return found == file.metadata().end() ? std::string() : found->second;
  };
  int64_t steps = -1;
  const std::string count = text("steps");
  std::from_chars(count.data(), count.data() + count.size(), steps);
  if (text("format") != kFormat || steps < 0) fail("not the state of an optimizer");
  for (const ModelAdamW::Moment& moment : impl_->adamw.moments()) {  // all are checked before the first is changed
    const StoredTensor* stored = file.find(moment.name);
    if (!stored || stored->dtype != DType::kF32 || stored->count() != static_cast<int64_t>(moment.own->size())) {
      fail(std::string(moment.name) + ": missing or of another size; expected " + std::to_string(moment.own->size()) +
           " floats, as the model has");
    }
  }
  for (const ModelAdamW::Moment& moment : impl_->adamw.moments()) {
    const StoredTensor& stored = *file.find(moment.name);
    stored.read(0, stored.bytes, moment.own->data());
  }
  impl_->adamw.set_steps(steps);
}

}  // namespace deltanet
