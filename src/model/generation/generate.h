#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "deltanet/model.h"
#include "model/generation/sampler.h"
#include "model/language_model.h"
#include "model/state.h"

namespace deltanet {

// Feeds the model what each sequence has pending and then the prompts, in blocks, so that the memory of a long prompt
// stays bounded. logits [N, vocab]: after the last token of each sequence. A call that is interrupted leaves the state
// as it was before.
void prefill(LanguageModel& model, State& state, std::span<const std::vector<int32_t>> prompts, float* logits);

void check(const GenerateOptions& options, const LanguageModel& model);  // throws Error
// The next token of sequence n of a state, whose model has given these logits [vocab].
int32_t choose(LanguageModel& model, const State& state, int64_t n, const float* logits, const GenerateOptions& options,
               Sampler& sampler);
bool is_end(const GenerateOptions& options, int32_t id);

// One of the sequences of a state that go on.
struct Continuation {
  int64_t index;  // in the state
  Sampler sampler;
};

// Says what follows the logits [N, vocab] behind the last tokens of the N sequences of the state, which are all of
// `sequences` in order; as generate() does. Returns the number of new tokens. The logits are written over.
int64_t continue_from(LanguageModel& model, State& state, std::vector<float>& logits,
                      std::vector<Continuation> sequences, const GenerateOptions& options,
                      const std::function<bool(int64_t, int32_t)>& on_token);

// Continues every sequence after its prompt. Calls on_token(sequence, id) for every token as it comes; a result of
// false ends that sequence, as do an end token and max_tokens. What the model said last stays pending in the state, so
// that a later call goes on from there; also where an exception of on_token, or an Interrupt, ends this one.
GenerateStats generate(LanguageModel& model, State& state, std::span<const std::vector<int32_t>> prompts,
                       const GenerateOptions& options, const std::function<bool(int64_t, int32_t)>& on_token);

}  // namespace deltanet
