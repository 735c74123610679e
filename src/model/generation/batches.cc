// Model::score and Model::generate of many sequences: one tree of what they share, read in packed passes.

#include <algorithm>
#include <bit>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "deltanet/error.h"
#include "model/generation/generate.h"
#include "model/generation/prefix_walk.h"
#include "model/model_impl.h"
#include "nn/cross_entropy.h"

namespace deltanet {
namespace {

// A copied state costs about as much as one or two tokens, and short pieces are slower than long ones.
constexpr int64_t kLeastShared = 8;

using Sequences = std::vector<std::span<const int32_t>>;

// The sequences of one call, what they share, and how much of it is read.
class Plan {
 public:
  // `more`: tokens that will follow each sequence.
  Plan(LanguageModel& model, const Sequences& sequences, const BatchOptions& options, int64_t more)
      : model_(model),
        sequences_(sequences),
        options_(options),
        more_(more),
        tree_(prefix_tree(sequences, kLeastShared)) {
    wanted_before_.push_back(0);
    for (const int64_t sequence : tree_.order)
      wanted_before_.push_back(wanted_before_.back() + (wanted(sequence) ? 1 : 0));
    for (const PrefixNode& root : tree_.roots) total_ += tokens_to_read(root);
  }

  static void check(const BatchOptions& options, std::size_t sequences) {
    if (options.tokens < 1) {
      throw Error("[model] batch tokens: given " + std::to_string(options.tokens) + "; expected at least 1");
    }
    if (options.sequences < 1) {
      throw Error("[model] batch sequences: given " + std::to_string(options.sequences) + "; expected at least 1");
    }
    if (!options.skip.empty() && options.skip.size() != sequences) {
      throw Error("[model] batch skip: given " + std::to_string(options.skip.size()) + "; expected one for each of " +
                  std::to_string(sequences) + " sequences, or none");
    }
  }

  const PrefixTree& tree() const { return tree_; }
  int64_t wanted_count() const { return wanted_before_.back(); }
  bool wanted(int64_t sequence) const { return options_.skip.empty() || !options_.skip[sequence]; }
  // States that may be carried side by side. The caches of attention, empty in a new state, hold what the longest
  // sequence fills.
  int64_t most_states() const {
    int64_t longest = 1, bytes = State(model_.layout(), 1).bytes();
    for (const auto& sequence : sequences_) longest = std::max(longest, std::ssize(sequence) + more_);
    for (const LayerLayout& layer : model_.layout().layers()) {
      if (!layer.attention_config) continue;
      const int64_t window = layer.attention_config->window;
      const int64_t kept = window > 0 ? std::min(window, longest) : longest;
      const auto room = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(kept)));  // caches grow by doubling
      bytes += 2 * room * layer.attention.kv_heads * layer.attention.head_dim * static_cast<int64_t>(sizeof(float));
    }
    return std::max<int64_t>(1, options_.state_bytes / std::max<int64_t>(1, bytes));
  }

  // Calls `pass` for all that is wanted, and on_read.
  void walk(bool keep_leaves, const PrefixWalk::Pass& pass) {
    const auto reports = [&](std::span<const PrefixWalk::Part> parts, std::span<const int32_t> ids,
                             std::span<const int64_t> offsets, State* state) {
      pass(parts, ids, offsets, state);
      if (options_.on_read) options_.on_read(static_cast<int64_t>(ids.size()), total_);
    };
    PrefixWalk(
        model_.layout(), sequences_, tree_, {options_.tokens, most_states(), model_.threads()}, keep_leaves,
        [&](const PrefixNode& node) { return is_wanted(node); }, reports)
        .run();
  }

 private:
  bool is_wanted(const PrefixNode& node) const { return wanted_before_[node.last] > wanted_before_[node.first]; }
  int64_t tokens_to_read(const PrefixNode& node) const {
    if (!is_wanted(node)) return 0;
    return std::accumulate(node.children.begin(), node.children.end(), node.end - node.begin,
                           [&](int64_t sum, const PrefixNode& child) { return sum + tokens_to_read(child); });
  }

  LanguageModel& model_;
  const Sequences& sequences_;
  const BatchOptions& options_;
  int64_t more_;
  PrefixTree tree_;
  std::vector<int64_t> wanted_before_;  // sequences of PrefixTree::order before each place
  int64_t total_ = 0;
};

// ---- scoring

class Scorer {
 public:
  Scorer(LanguageModel& model, std::span<const ScoreRequest> requests, const Plan& plan,
         const std::function<void(const Scored&)>& on_scored)
      : model_(model), requests_(requests), plan_(plan), on_scored_(on_scored), progress_(requests.size()) {}

  void pass(std::span<const PrefixWalk::Part> parts, std::span<const int32_t> ids, std::span<const int64_t> offsets,
            State* state) {
    targets_.clear();
    owners_.clear();
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const auto& [node, begin, end] = parts[n];
      for (int64_t place = node->first; place < node->last; ++place) {
        const int64_t sequence = plan_.tree().order[place];
        if (!plan_.wanted(sequence)) continue;
        const std::vector<int32_t>& targets = requests_[sequence].targets;
        for (int64_t i = begin; i < end; ++i) {
          if (targets[i] == nn::kIgnoredLabel) continue;
          targets_.push_back({offsets[n] + i - begin, targets[i]});
          owners_.push_back(sequence);
        }
      }
    }
    log_probs_.resize(targets_.size());
    if (capacity_ < targets_.size()) {
      capacity_ = targets_.size();
      greedy_ = std::make_unique<bool[]>(capacity_);
    }
    model_.log_probs(ids, targets_, offsets, state, log_probs_.data(), greedy_.get());
    for (std::size_t i = 0; i < targets_.size(); ++i) {
      Progress& progress = progress_[owners_[i]];
      progress.log_probs.push_back(log_probs_[i]);
      progress.greedy.push_back(greedy_[i] ? 1 : 0);
    }
    for (const PrefixWalk::Part& part : parts) {
      if (part.ends_node()) finish(*part.node);
    }
  }

 private:
  struct Progress {
    std::vector<double> log_probs;
    std::vector<char> greedy;
  };

  void finish(const PrefixNode& node) {
    for (int64_t place = node.first; place < node.last; ++place) {
      const int64_t sequence = plan_.tree().order[place];
      if (std::cmp_greater(requests_[sequence].ids.size(), node.end)) return;  // sorted: the rest go on as well
      if (!plan_.wanted(sequence)) continue;
      const Progress done = std::exchange(progress_[sequence], {});
      const auto greedy = std::make_unique<bool[]>(done.greedy.size());
      std::copy(done.greedy.begin(), done.greedy.end(), greedy.get());
      on_scored_({sequence, done.log_probs, {greedy.get(), done.greedy.size()}});
    }
  }

  LanguageModel& model_;
  std::span<const ScoreRequest> requests_;
  const Plan& plan_;
  const std::function<void(const Scored&)>& on_scored_;
  std::vector<Progress> progress_;  // of what has been read, by sequence
  std::vector<nn::Target> targets_;
  std::vector<int64_t> owners_;
  std::vector<double> log_probs_;
  std::unique_ptr<bool[]> greedy_;
  std::size_t capacity_ = 0;
};

// ---- generation

// Gathers prompts that were read until there are enough to go on side by side.
class Speaker {
 public:
  Speaker(LanguageModel& model, const Sequences& prompts, const Plan& plan, const GenerateOptions& options,
          int64_t most, const std::function<bool(int64_t, int32_t)>& on_token)
      : model_(model),
        prompts_(prompts),
        plan_(plan),
        options_(options),
        left_(plan.wanted_count()),
        most_(most),
        on_token_(on_token) {}

  void pass(std::span<const PrefixWalk::Part> parts, std::span<const int32_t> ids, std::span<const int64_t> offsets,
            State* state) {
    const int64_t vocab = model_.config().vocab_size;
    std::vector<float> logits(parts.size() * static_cast<std::size_t>(vocab));
    model_.next_logits(ids, offsets, state, logits.data());
    for (std::size_t n = 0; n < parts.size(); ++n) {
      const PrefixNode& node = *parts[n].node;
      if (!parts[n].ends_node()) continue;
      for (int64_t place = node.first; place < node.last; ++place) {
        const int64_t prompt = plan_.tree().order[place];
        if (std::cmp_greater(prompts_[prompt].size(), node.end)) break;
        if (plan_.wanted(prompt)) {
          add(prompt, *state, static_cast<int64_t>(n),
              {logits.data() + static_cast<int64_t>(n) * vocab, static_cast<std::size_t>(vocab)});
        }
      }
    }
  }

  const GenerateStats& stats() const { return stats_; }

 private:
  void add(int64_t prompt, const State& from, int64_t slot, std::span<const float> logits) {
    if (!batch_) batch_.emplace(model_.layout(), std::min(most_, left_));
    if (ready_.empty()) batch_->resize(std::min(most_, left_));
    batch_->copy_sequence(from, slot, static_cast<int64_t>(ready_.size()));
    logits_.insert(logits_.end(), logits.begin(), logits.end());
    ready_.push_back(prompt);
    stats_.prompt_tokens += static_cast<int64_t>(prompts_[prompt].size());
    if (std::cmp_less(ready_.size(), batch_->sequences())) return;
    speak();
    left_ -= static_cast<int64_t>(ready_.size());
    ready_.clear();
    logits_.clear();
  }

  void speak() {
    const auto start = std::chrono::steady_clock::now();
    std::vector<Continuation> sequences;
    for (std::size_t n = 0; n < ready_.size(); ++n) {
      SamplerOptions sampling = options_.sampling;
      sampling.seed += static_cast<uint64_t>(ready_[n]);
      sequences.push_back({static_cast<int64_t>(n), Sampler(sampling)});
    }
    stats_.tokens += continue_from(model_, *batch_, logits_, std::move(sequences), options_,
                                   [&](int64_t n, int32_t id) { return on_token_(ready_[n], id); });
    stats_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  LanguageModel& model_;
  const Sequences& prompts_;
  const Plan& plan_;
  const GenerateOptions& options_;
  int64_t left_, most_;
  const std::function<bool(int64_t, int32_t)>& on_token_;
  GenerateStats stats_;
  std::optional<State> batch_;  // of the prompts that are ready
  std::vector<int64_t> ready_;
  std::vector<float> logits_;  // behind them
};

}  // namespace

void Model::score(std::span<const ScoreRequest> requests, const BatchOptions& options,
                  const std::function<void(const Scored&)>& on_scored) {
  Plan::check(options, requests.size());
  LanguageModel& model = impl_->language_model;
  Sequences sequences;
  for (std::size_t i = 0; i < requests.size(); ++i) {  // all of them, before the first is read
    const int64_t offsets[] = {0, static_cast<int64_t>(requests[i].ids.size())};
    try {
      model.check_batch(requests[i].ids, requests[i].targets, offsets);
    } catch (const Error& error) {
      throw Error(std::string(error.what()) + " (of request " + std::to_string(i) + ")");
    }
    sequences.emplace_back(requests[i].ids);
  }
  Plan plan(model, sequences, options, 0);
  Scorer scorer(model, requests, plan, on_scored);
  plan.walk(false, [&](auto parts, auto ids, auto offsets, State* state) { scorer.pass(parts, ids, offsets, state); });
}

GenerateStats Model::generate(std::span<const std::vector<int32_t>> prompts, const GenerateOptions& options,
                              const BatchOptions& batch, const std::function<bool(int64_t, int32_t)>& on_token) {
  Plan::check(batch, prompts.size());
  check(options, impl_->language_model);
  LanguageModel& model = impl_->language_model;
  Sequences sequences;
  for (std::size_t n = 0; n < prompts.size(); ++n) {
    if (prompts[n].empty()) {
      throw Error("[generate] prompts[" + std::to_string(n) + "]: is empty; expected at least one token");
    }
    model.check_ids(prompts[n]);
    sequences.emplace_back(prompts[n]);
  }
  Plan plan(model, sequences, batch, options.max_tokens);
  const auto start = std::chrono::steady_clock::now();
  Speaker speaker(model, sequences, plan, options, std::min(batch.sequences, plan.most_states()), on_token);
  plan.walk(true, [&](auto parts, auto ids, auto offsets, State* state) { speaker.pass(parts, ids, offsets, state); });
  GenerateStats stats = speaker.stats();
  stats.prompt_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() - stats.seconds;
  return stats;
}

}  // namespace deltanet
