#include "data/synthetic/mqar.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "base/rng.h"
#include "data/synthetic/labelled.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

int64_t query_places(const MqarTask& task) { return (task.length - 2 * task.pairs) / 2; }

// `count` different numbers of [begin, end), in random order.
std::vector<int32_t> draw_distinct(int64_t count, int64_t begin, int64_t end, Rng& rng) {
  std::vector<bool> taken(static_cast<std::size_t>(end - begin));
  std::vector<int32_t> drawn;
  while (static_cast<int64_t>(drawn.size()) < count) {
    const int64_t one = uniform_below(end - begin, rng);
    if (taken[one]) continue;
    taken[one] = true;
    drawn.push_back(static_cast<int32_t>(begin + one));
  }
  return drawn;
}

// `count` different gaps of [0, places), drawn one after the other with probabilities ~ (gap+1)^(power-1) among those
// that are left. Arrival times -log(u)/p put the gaps into the order of such draws (Efraimidis and Spirakis 2006).
std::vector<int64_t> draw_gaps(int64_t count, int64_t places, double power, Rng& rng) {
  std::vector<double> arrival(places);
  for (int64_t gap = 0; gap < places; ++gap) {
    arrival[gap] = -std::log(1.0 - rng.uniform()) * std::pow(static_cast<double>(gap + 1), 1.0 - power);
  }
  std::vector<int64_t> order(places);
  std::iota(order.begin(), order.end(), 0);
  std::partial_sort(order.begin(), order.begin() + count, order.end(),
                    [&](int64_t a, int64_t b) { return arrival[a] < arrival[b]; });
  order.resize(count);
  return order;
}

}  // namespace

void validate(const MqarOptions& options, const MqarTask& task) {
  const auto fail = [&](const std::string& expected) {
    throw Error("[mqar] task: given length " + std::to_string(task.length) + ", " + std::to_string(task.pairs) +
                " pairs, vocabulary " + std::to_string(options.vocab_size) + "; expected " + expected);
  };
  constexpr int64_t kLongest = int64_t{1} << 20;
  if (task.pairs < 1 || task.length > kLongest) fail("at least one pair, and a length of at most 2^20");
  if (task.length < 4 * task.pairs) fail("a length of at least 4 tokens for each pair: context and queries");
  const int64_t smallest = 2 * (task.pairs + 1);
  if (options.vocab_size < smallest) {
    fail("a vocabulary of at least " + std::to_string(smallest) + ": keys are half of it without token 0");
  }
  if (!(options.power > 0)) throw Error("[mqar] power: given " + std::to_string(options.power) + "; expected above 0");
}

MqarData::MqarData(const MqarOptions& options, std::vector<MqarPart> parts, uint64_t seed, MqarSplit split)
    : options_(options), parts_(std::move(parts)), seed_(seed), split_(split) {
  for (const MqarPart& part : parts_) {
    validate(options_, part.task);
    if (part.examples < 1) {
      throw Error("[mqar] examples: given " + std::to_string(part.examples) + "; expected at least 1 of each task");
    }
  }
}

int64_t MqarData::examples() const {
  int64_t sum = 0;
  for (const MqarPart& part : parts_) sum += part.examples;
  return sum;
}

void MqarData::read(int64_t first, int64_t count, MqarBatch& batch) const {
  int64_t begin = 0;
  const MqarPart* part = parts_.data();
  while (part != parts_.data() + parts_.size() && first >= begin + part->examples) begin += part++->examples;
  if (first < 0 || count < 1 || part == parts_.data() + parts_.size() || first + count > begin + part->examples) {
    throw Error("[mqar] examples: given " + std::to_string(count) + " from " + std::to_string(first) +
                "; expected some of one part");
  }
  const int64_t L = part->task.length;
  batch.ids.resize(count * L);
  batch.targets.assign(count * L, kNoTarget);
  batch.offsets.resize(count + 1);
  for (int64_t i = 0; i < count; ++i) {
    make(first + i, part->task, std::span(batch.ids).subspan(i * L, L), std::span(batch.targets).subspan(i * L, L));
  }
  for (int64_t i = 0; i <= count; ++i) batch.offsets[i] = i * L;
  batch.labels = count * part->task.pairs;
}

void MqarData::make(int64_t index, const MqarTask& task, std::span<int32_t> ids, std::span<int32_t> targets) const {
  Rng rng(seed_, static_cast<uint64_t>(split_) << 48 | static_cast<uint64_t>(index));
  const int64_t V = options_.vocab_size, N = task.pairs;
  for (int32_t& id : ids) {
    id = options_.filler == MqarFiller::kZeros ? 0 : static_cast<int32_t>(uniform_below(V, rng));
  }
  const std::vector<int32_t> keys = draw_distinct(N, 1, V / 2, rng), values = draw_distinct(N, V / 2, V, rng);
  const std::vector<int64_t> gaps = draw_gaps(N, query_places(task), options_.power, rng);
  for (int64_t i = 0; i < N; ++i) {
    ids[2 * i] = keys[i];
    ids[2 * i + 1] = values[i];
    const int64_t query = 2 * N + 2 * gaps[i];
    ids[query] = keys[i];
    targets[query] = values[i];
  }
}

std::vector<MqarPart> mqar_train_mix() {
  return {{{64, 4}, 100000}, {{128, 8}, 20000}, {{256, 16}, 20000}, {{256, 32}, 20000}, {{256, 64}, 20000}};
}

std::vector<MqarPart> mqar_tests() {
  std::vector<MqarPart> tests;
  for (const MqarTask& task :
       std::initializer_list<MqarTask>{{64, 4}, {64, 8}, {64, 16}, {128, 32}, {256, 64}, {512, 128}, {1024, 256}}) {
    tests.push_back({task, 1000});
  }
  return tests;
}

std::vector<MqarCut> mqar_cuts() {
  MqarCut length{"16 pairs, growing length", {}}, ratio{"one pair per 4 tokens, growing length", {}},
      pairs{"length 1024, growing pairs", {}};
  for (int64_t L = 64; L <= 1024; L *= 2) {
    length.tasks.push_back({L, 16});
    ratio.tasks.push_back({L, L / 4});
  }
  for (int64_t N = 4; N <= 256; N *= 2) pairs.tasks.push_back({1024, N});
  return {length, ratio, pairs};
}

}  // namespace deltanet
