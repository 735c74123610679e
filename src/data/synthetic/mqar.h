#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deltanet {

// Multi-query associative recall (Arora et al. 2023, "Zoology"): a context k v k v ... of `pairs` pairs, then each key
// once more at a random place, where its value is to be predicted.
struct MqarTask {
  int64_t length = 64, pairs = 4;
  bool operator==(const MqarTask&) const = default;
};

enum class MqarFiller { kRandom, kZeros };  // of the positions that hold neither the context nor a query

struct MqarOptions {
  int64_t vocab_size = 8192;  // keys are 1 .. vocab/2-1, values vocab/2 .. vocab-1
  double power = 0.01;        // a of p(n) ~ n^(a-1) for the gap n-1 between the context and a query, in pairs of tokens
  MqarFiller filler = MqarFiller::kRandom;
};

// Throws Error unless every example of the task exists: enough keys, values and places for queries.
void validate(const MqarOptions& options, const MqarTask& task);

enum class MqarSplit : uint64_t { kTrain = 1, kTest = 2 };

// A task and how many examples of it.
struct MqarPart {
  MqarTask task;
  int64_t examples = 0;
  bool operator==(const MqarPart&) const = default;
};

// Some examples of one task. ids and targets [examples * length]; a target is -100 except where a key stands.
struct MqarBatch {
  std::vector<int32_t> ids, targets;
  std::vector<int64_t> offsets;  // [examples+1]
  int64_t labels = 0;            // targets that are not -100
};

// The examples of a split, part after part. Example i is a function of (seed, split, i) and its task.
class MqarData {
 public:
  MqarData(const MqarOptions& options, std::vector<MqarPart> parts, uint64_t seed, MqarSplit split);

  const std::vector<MqarPart>& parts() const { return parts_; }
  int64_t examples() const;

  // Examples [first, first + count), which must belong to one part.
  void read(int64_t first, int64_t count, MqarBatch& batch) const;

 private:
  void make(int64_t index, const MqarTask& task, std::span<int32_t> ids, std::span<int32_t> targets) const;

  MqarOptions options_;
  std::vector<MqarPart> parts_;
  uint64_t seed_;
  MqarSplit split_;
};

// The mix that the paper's models are trained on, and the tests that decide when training stops.
std::vector<MqarPart> mqar_train_mix();
std::vector<MqarPart> mqar_tests();

// The paper's three cuts through the space of tasks: 16 pairs and growing length, a pair for four tokens, length 1024
// and growing number of pairs.
struct MqarCut {
  const char* name;
  std::vector<MqarTask> tasks;
};
std::vector<MqarCut> mqar_cuts();

}  // namespace deltanet
