#include "train/batch_model.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/parallel.h"

namespace deltanet {
namespace {

constexpr int64_t kFewestTokens = 512;                 // of a thread: with fewer, its products become slow
constexpr int64_t kMostForThreads = int64_t{1} << 28;  // floats that sharing out may take in addition: 1 GB

int64_t parameters(const Layout& layout) { return layout.matrices_size() + layout.vectors_size(); }

}  // namespace

// Depends on nothing that changes from run to run, such as free memory: a run must resume with the same sums.
bool BatchModel::shares_out(const Layout& layout, int threads, int64_t sequences, int64_t tokens) {
  const int64_t vocab = layout.head().out;
  const int64_t logits = nn::VocabularyLoss::block_tokens(vocab) * vocab;
  return threads > 1 && sequences % threads == 0 && tokens / threads >= kFewestTokens &&
         (threads - 1) * (parameters(layout) + logits) <= kMostForThreads;
}

BatchModel::BatchModel(const std::shared_ptr<const Weights>& weights, int threads, int64_t sequences, int64_t length,
                       Keep keep, bool whole)
    : threads_(threads > 0 ? threads : default_threads()), keep_(keep) {
  const bool apart = !whole && shares_out(weights->layout(), threads_, sequences, sequences * length);
  const int64_t models = apart ? threads_ : 1;
  for (int64_t i = 0; i < models; ++i) {
    models_.push_back(std::make_unique<LanguageModel>(weights, apart ? 1 : threads_));
    models_.back()->plan(sequences / models * length, keep);
  }
  parts_.resize(models_.size());
  own_.resize(models_.size() - 1);
}

std::vector<std::size_t> BatchModel::cuts(std::span<const int64_t> offsets, int64_t parts) {
  std::vector<std::size_t> cuts = {0};
  for (int64_t i = 1; i <= parts; ++i) {
    const int64_t even = offsets.back() * i / parts;
    const auto begin = offsets.begin() + static_cast<std::ptrdiff_t>(cuts.back());
    const auto earliest = i == 1 ? begin + 1 : begin;
    auto end = std::lower_bound(earliest, offsets.end(), even);
    if (end > earliest && even - *std::prev(end) < *end - even) --end;
    cuts.push_back(static_cast<std::size_t>(end - offsets.begin()));
  }
  return cuts;
}

void BatchModel::share_out(std::span<const int32_t> ids, std::span<const int32_t> targets,
                           std::span<const int64_t> offsets) {
  models_.front()->check_batch(ids, targets, offsets);  // of the whole batch: its errors name the places in it
  const std::vector<std::size_t> bounds = cuts(offsets, parts());
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    const int64_t begin = offsets[bounds[i]], end = offsets[bounds[i + 1]];
    const auto first = static_cast<std::size_t>(begin), count = static_cast<std::size_t>(end - begin);
    Part& part = parts_[i];
    part = {ids.subspan(first, count), targets.subspan(first, count), std::move(part.offsets)};
    part.offsets.clear();
    for (std::size_t at = bounds[i]; at <= bounds[i + 1]; ++at) part.offsets.push_back(offsets[at] - begin);
  }
}

template <class Run>
double BatchModel::sum_over_parts(const Run& run) {
  parallel_for(threads_, parts(), [&](int64_t i) {
    const auto at = static_cast<std::size_t>(i);
    if (!parts_[at].ids.empty()) parts_[at].loss = run(at);
  });
  double sum = 0;
  for (const Part& part : parts_) sum += part.loss;
  return sum;
}

double BatchModel::loss(std::span<const int32_t> ids, std::span<const int32_t> targets,
                        std::span<const int64_t> offsets) {
  if (parts() == 1) return models_.front()->loss(ids, targets, offsets);
  share_out(ids, targets, offsets);
  return sum_over_parts([&](std::size_t i) {
    const Part& part = parts_[i];
    return models_[i]->loss(part.ids, part.targets, part.offsets);
  });
}

std::string BatchModel::first_not_finite(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                         std::span<const int64_t> offsets) {
  if (parts() == 1) return models_.front()->first_not_finite(ids, offsets, nullptr);
  share_out(ids, targets, offsets);
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].ids.empty()) continue;
    const std::string place = models_[i]->first_not_finite(parts_[i].ids, parts_[i].offsets, nullptr);
    if (!place.empty()) return place;
  }
  return {};
}

double BatchModel::loss_and_gradients(std::span<const int32_t> ids, std::span<const int32_t> targets,
                                      std::span<const int64_t> offsets, LossScale scale, const Gradients& to,
                                      const std::function<void(const GradientRange&)>& done) {
  if (parts() == 1) {
    return models_.front()->loss_and_gradients(ids, targets, offsets, scale, keep_, to, done);
  }
  const Layout& layout = models_.front()->layout();
  share_out(ids, targets, offsets);
  const double sum = sum_over_parts([&](std::size_t i) {
    Gradients part_to = to;
    if (i > 0) {
      std::vector<float>& own = own_[i - 1];
      own.resize(static_cast<std::size_t>(parameters(layout)));
      part_to = {.matrices = own.data(), .vectors = own.data() + layout.matrices_size(), .add = false};
    }
    const Part& part = parts_[i];
    return models_[i]->loss_and_gradients(part.ids, part.targets, part.offsets, scale, keep_, part_to);
  });
  add_own_gradients(to);
  if (done) done({0, layout.matrices_size(), 0, layout.vectors_size()});
  return sum;
}

// In the order of the parts, so that the sums do not depend on which thread was first.
void BatchModel::add_own_gradients(const Gradients& to) const {
  const Layout& layout = models_.front()->layout();
  const auto add = [&](int64_t from, int64_t count, float* sums) {
    constexpr int64_t kBlock = int64_t{1} << 14;
    parallel_blocks(threads_, count, kBlock, [&](int64_t begin, int64_t end) {
      for (std::size_t i = 1; i < parts_.size(); ++i) {
        if (parts_[i].ids.empty()) continue;  // its gradients are those of a batch before
        const float* own = own_[i - 1].data() + from;
        for (int64_t j = begin; j < end; ++j) sums[j] += own[j];
      }
    });
  };
  add(0, layout.matrices_size(), to.matrices);
  add(layout.matrices_size(), layout.vectors_size(), to.vectors);
}

int64_t BatchModel::planned_bytes() const {
  int64_t bytes = 0;
  for (const auto& model : models_) bytes += model->planned_bytes();
  return bytes;
}

int64_t BatchModel::gradient_bytes() const {
  return (parts() - 1) * parameters(models_.front()->layout()) * static_cast<int64_t>(sizeof(float));
}

}  // namespace deltanet
