// The public Model: checkpoints, and the language model behind a small interface.

#include "deltanet/model.h"

#include <algorithm>

#include "base/interrupt.h"
#include "data/tokenizer/tokenizer_files.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"
#include "model/model_impl.h"
#include "model/save_weights.h"
#include "nn/cross_entropy.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;

int64_t count_targets(std::span<const int32_t> targets) {
  return static_cast<int64_t>(targets.size()) - std::count(targets.begin(), targets.end(), nn::kIgnoredLabel);
}

}  // namespace

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::Model(Model&&) noexcept = default;
Model& Model::operator=(Model&&) noexcept = default;
Model::~Model() = default;

Model Model::load(const std::string& directory, const ModelOptions& options) {
  const fs::path path(directory);
  if (!fs::is_directory(path)) {
    throw Error("[load] " + directory + ": not a directory; expected one with config.json and model.safetensors");
  }
  auto layout = std::make_shared<const Layout>(load_config((path / "config.json").string()));
  const CheckpointReader reader(path);
  check_tensors(*layout, reader);
  auto impl = std::make_unique<Impl>(std::move(layout), options);
  impl->weights->load(reader, options.threads);
  impl->source = path;
  return Model(std::move(impl));
}

Model Model::from_preset(std::string_view preset, uint64_t seed, const ModelOptions& options) {
  auto impl = std::make_unique<Impl>(std::make_shared<const Layout>(preset_config(preset)), options);
  impl->weights->initialize(seed, options.threads);
  return Model(std::move(impl));
}

Model Model::from_config(std::string_view config_json, uint64_t seed, const ModelOptions& options) {
  auto layout = std::make_shared<const Layout>(parse_config(config_json, "config_json"));
  auto impl = std::make_unique<Impl>(std::move(layout), options);
  impl->weights->initialize(seed, options.threads);
  return Model(std::move(impl));
}

std::string Model::config_json() const { return config_text(impl_->layout->config(), "float32"); }
std::string Model::model_type() const { return impl_->layout->config().model_type; }
int64_t Model::vocab_size() const { return impl_->layout->config().vocab_size; }
int64_t Model::parameter_count() const { return impl_->layout->parameter_count(); }
WeightType Model::weight_type() const { return impl_->weights->type(); }

std::vector<int32_t> Model::end_ids() const {
  const auto& eos = impl_->layout->config().eos_token_id;
  return eos ? std::vector<int32_t>{static_cast<int32_t>(*eos)} : std::vector<int32_t>{};
}

std::vector<ParameterInfo> Model::parameters() const {
  std::vector<ParameterInfo> list;
  for (const Parameter& parameter : impl_->layout->parameters()) list.push_back({parameter.name, parameter.shape});
  return list;
}

std::vector<float> Model::parameter(std::string_view name) const {
  const Parameter& parameter = impl_->find(name);
  std::vector<float> values(static_cast<std::size_t>(parameter.size));
  impl_->weights->copy_values(parameter, values.data(), impl_->threads);
  return values;
}

void Model::set_parameter(std::string_view name, std::span<const float> values) {
  const Parameter& parameter = impl_->find(name);
  if (static_cast<int64_t>(values.size()) != parameter.size) {
    throw Error("[model] " + parameter.name + ": given " + std::to_string(values.size()) + " values; expected " +
                std::to_string(parameter.size));
  }
  const InterruptScope whole(nullptr);
  impl_->weights->set_values(parameter, values.data(), impl_->threads);
}

void Model::logits(std::span<const int32_t> ids, std::span<const int64_t> offsets, float* out) {
  impl_->language_model.all_logits(ids, offsets, nullptr, out);
}

LossSum Model::loss(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets) {
  return {impl_->language_model.loss(ids, targets, offsets), count_targets(targets)};
}

void Model::log_probs(std::span<const int32_t> ids, std::span<const int32_t> targets, std::span<const int64_t> offsets,
                      double* log_prob, bool* greedy) {
  impl_->language_model.log_probs(ids, targets, offsets, nullptr, log_prob, greedy);
}

LossSum Model::loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                  std::span<const int64_t> offsets, bool recompute) {
  return impl_->loss_and_gradients(ids, targets, offsets, recompute);
}

int64_t Model::Impl::begin_gradients(std::span<const int32_t> targets) {
  if (weights->type() == WeightType::kInt8) {
    throw Error("[model] gradients: the weights are int8; load the model with f32 or bf16 weights");
  }
  const int64_t count = count_targets(targets);
  if (count == 0) throw Error("[model] targets: all are -100; expected at least one token to predict");
  gradients.resize(*layout);
  return count;
}

LossSum Model::Impl::loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                        std::span<const int64_t> offsets, bool recompute) {
  const int64_t count = begin_gradients(targets);
  const auto rows = static_cast<int64_t>(ids.size());
  const double sum = language_model.loss_and_gradients(ids, targets, offsets, mean_of(count, rows),
                                                       recompute ? Keep::kRecompute : Keep::kAll, gradients.replaced());
  return {sum, count};
}

std::span<const float> Model::gradient(std::string_view name) const {
  const Parameter& parameter = impl_->find(name);
  const std::vector<float>& from = parameter.is_matrix ? impl_->gradients.matrices : impl_->gradients.vectors;
  if (from.empty()) throw Error("[model] gradient: none yet; call loss_and_gradients first");
  return {from.data() + parameter.offset, static_cast<std::size_t>(parameter.size)};
}

void Model::save(const std::string& directory, const SaveOptions& options) const {
  save_weights(*impl_->weights, directory, options,
               impl_->source.empty() ? data::NamedFiles() : data::read_companions(impl_->source), impl_->threads);
}

std::vector<std::string> model_presets() { return preset_names(); }

}  // namespace deltanet
