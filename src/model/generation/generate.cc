#include "model/generation/generate.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "base/interrupt.h"
#include "base/stopwatch.h"
#include "deltanet/error.h"
#include "model/generation/sampler.h"

namespace deltanet {
namespace {

constexpr int64_t kBlock = 2048;  // tokens of one pass
// A pass over so few is done in a moment: it is not interrupted, so that nothing has to be kept of the state before it.
constexpr std::size_t kFewTokens = 16;

void check_count(const State& state, std::span<const std::vector<int32_t>> prompts) {
  if (static_cast<int64_t>(prompts.size()) == state.sequences()) return;
  throw Error("[generate] prompts: given " + std::to_string(prompts.size()) + "; expected " +
              std::to_string(state.sequences()) + ", one for each sequence of the state");
}

// One sequence in passes of at most kBlock tokens.
void prefill_one(LanguageModel& model, State& state, std::span<const int32_t> ids, float* logits) {
  for (std::size_t begin = 0; begin < ids.size(); begin += kBlock) {
    const std::span<const int32_t> block = ids.subspan(begin, std::min<std::size_t>(kBlock, ids.size() - begin));
    const int64_t offsets[] = {0, static_cast<int64_t>(block.size())};
    model.next_logits(block, offsets, &state, logits);
  }
}

// Drops the sequences of a batch that are not in `places`: their state goes back to the caller's, and a smaller batch
// goes on. A batch of one runs in the caller's state itself.
void keep_only(LanguageModel& model, const std::vector<int64_t>& places, std::vector<Continuation>& sequences,
               State& state, std::optional<State>& batch, State*& live) {
  std::optional<State> smaller;
  if (!places.empty()) smaller.emplace(model.layout(), static_cast<int64_t>(places.size()));
  std::vector<Continuation> kept;
  for (std::size_t i = 0, next = 0; i < sequences.size(); ++i) {
    if (next < places.size() && places[next] == static_cast<int64_t>(i)) {
      smaller->copy_sequence(*live, static_cast<int64_t>(i), static_cast<int64_t>(next++));
      kept.push_back(std::move(sequences[i]));
    } else if (live != &state) {
      state.copy_sequence(*live, static_cast<int64_t>(i), sequences[i].index);
    }
  }
  sequences = std::move(kept);
  batch = std::move(smaller);
  live = batch ? &*batch : &state;
}

}  // namespace

void prefill(LanguageModel& model, State& state, std::span<const std::vector<int32_t>> prompts, float* logits) {
  check_count(state, prompts);
  const int64_t N = state.sequences();
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets = {0};
  for (int64_t n = 0; n < N; ++n) {
    ids.insert(ids.end(), state.pending[n].begin(), state.pending[n].end());
    ids.insert(ids.end(), prompts[n].begin(), prompts[n].end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
    if (offsets[n + 1] == offsets[n]) {
      throw Error("[generate] prompts[" + std::to_string(n) + "]: is empty; expected at least one token");
    }
  }
  model.check_ids(ids);  // all of them, before the first block changes the state
  check_interrupt();
  const bool few = ids.size() <= kFewTokens;
  const InterruptScope scope(few ? nullptr : current_interrupt);
  std::optional<StateBefore> before;
  if (current_interrupt) before.emplace(state);
  if (N == 1) {
    prefill_one(model, state, ids, logits);
  } else if (offsets.back() <= kBlock) {
    model.next_logits(ids, offsets, &state, logits);
  } else {
    State one(model.layout(), 1);
    const bool fresh = state.fresh();
    for (int64_t n = 0; n < N; ++n) {
      if (fresh) {
        one.reset();
      } else {
        one.copy_sequence(state, n, 0);
      }
      const std::span<const int32_t> all(ids);
      prefill_one(model, one, all.subspan(offsets[n], offsets[n + 1] - offsets[n]),
                  logits + n * model.config().vocab_size);
      state.copy_sequence(one, 0, n);
    }
  }
  for (auto& pending : state.pending) pending.clear();
  if (before) before->call_is_done();
}

void check(const GenerateOptions& options, const LanguageModel& model) {
  if (options.max_tokens < 0) {
    throw Error("[generate] max_tokens: given " + std::to_string(options.max_tokens) + "; expected 0 or more");
  }
  const int64_t most = model.config().vocab_size;
  if (options.vocab_size < 0 || options.vocab_size > most) {
    throw Error("[generate] vocab_size: given a tokenizer of " + std::to_string(options.vocab_size) +
                " tokens; expected at most " + std::to_string(most) +
                ", the vocabulary of the model: it belongs to another model");
  }
}

int32_t choose(LanguageModel& model, const State& state, int64_t n, const float* logits, const GenerateOptions& options,
               Sampler& sampler) {
  const int64_t vocab = options.vocab_size > 0 ? options.vocab_size : model.config().vocab_size;
  std::vector<int32_t> read;
  if (options.sampling.repetition_penalty != 1.0) {
    read = state.ids_read(n);
    std::erase_if(read, [&](int32_t id) { return id >= vocab; });
  }
  return sampler.next({logits, static_cast<std::size_t>(vocab)}, read);
}

bool is_end(const GenerateOptions& options, int32_t id) {
  return std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end();
}

GenerateStats generate(LanguageModel& model, State& state, std::span<const std::vector<int32_t>> prompts,
                       const GenerateOptions& options, const std::function<bool(int64_t, int32_t)>& on_token) {
  check_count(state, prompts);
  const int64_t N = state.sequences();
  check(options, model);
  std::vector<Continuation> sequences;
  for (int64_t n = 0; n < N; ++n) {
    SamplerOptions sampling = options.sampling;
    sampling.seed += static_cast<uint64_t>(n);  // sequences of one batch differ, and do not depend on its size
    sequences.push_back({n, Sampler(sampling)});
  }

  GenerateStats stats;
  for (int64_t n = 0; n < N; ++n) {
    stats.prompt_tokens += static_cast<int64_t>(state.pending[n].size() + prompts[n].size());
  }
  const Stopwatch prompt_clock;
  std::vector<float> logits(static_cast<std::size_t>(N * model.config().vocab_size));
  prefill(model, state, prompts, logits.data());
  stats.prompt_seconds = prompt_clock.seconds();
  const Stopwatch clock;
  stats.tokens = continue_from(model, state, logits, std::move(sequences), options, on_token);
  stats.seconds = clock.seconds();
  return stats;
}

int64_t continue_from(LanguageModel& model, State& state, std::vector<float>& logits,
                      std::vector<Continuation> sequences, const GenerateOptions& options,
                      const std::function<bool(int64_t, int32_t)>& on_token) {
  const int64_t vocab = model.config().vocab_size;
  int64_t tokens = 0;
  // Sequences that have ended leave the batch; their state is kept in `state` as it was when they ended.
  std::optional<State> batch;
  State* live = &state;
  std::vector<int32_t> ids;
  std::vector<int64_t> offsets;
  std::vector<int64_t> going_on;  // places in the batch
  const auto take_step = [&](bool is_last) {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const auto n = static_cast<int64_t>(i);
      live->pending[i].assign(1, choose(model, *live, n, logits.data() + n * vocab, options, sequences[i].sampler));
    }
    ids.clear();
    offsets.assign(1, 0);
    going_on.clear();
    for (std::size_t i = 0; i < sequences.size(); ++i) {
      const int32_t id = live->pending[i].front();
      ++tokens;
      if (!on_token(sequences[i].index, id) || is_end(options, id) || is_last) continue;
      going_on.push_back(static_cast<int64_t>(i));
      ids.push_back(id);
      offsets.push_back(static_cast<int64_t>(ids.size()));
    }
    if (going_on.size() < sequences.size()) keep_only(model, going_on, sequences, state, batch, live);
    if (sequences.empty()) return;
    check_interrupt();
    const InterruptScope whole(nullptr);  // a step is soon done, and its states cannot be left half-way
    model.next_logits(ids, offsets, live, logits.data());
    for (auto& pending : live->pending) pending.clear();
  };
  try {
    for (int64_t step = 0; step < options.max_tokens && !sequences.empty(); ++step) {
      take_step(/*is_last=*/step + 1 == options.max_tokens);
    }
  } catch (...) {
    keep_only(model, {}, sequences, state, batch, live);
    throw;
  }
  return tokens;
}

}  // namespace deltanet
