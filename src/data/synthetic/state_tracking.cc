#include "data/synthetic/state_tracking.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string>

#include "base/hash.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

LabelledExample unasked(int64_t length) {
  LabelledExample example;
  example.ids.resize(length);
  example.targets.assign(length, kNoTarget);
  return example;
}

// ---- parity

LabelledExample draw_parity(int64_t length, Rng& rng) {
  LabelledExample example = unasked(length);
  for (int32_t& id : example.ids) id = static_cast<int32_t>(1 + uniform_below(2, rng));
  example.targets.back() = static_cast<int32_t>(1 + std::count(example.ids.begin(), example.ids.end(), 2) % 2);
  return example;
}

// ---- modular arithmetic

constexpr int64_t kModulus = 5;
enum Symbol : int32_t { kZero = 1, kPlus = 6, kMinus = 7, kTimes = 8, kEquals = 9, kOpen = 10, kClose = 11 };

int64_t apply(int32_t symbol, int64_t a, int64_t b) {
  const int64_t value = symbol == kPlus ? a + b : symbol == kMinus ? a - b : a * b;
  return (value % kModulus + kModulus) % kModulus;
}

class ExpressionWriter {
 public:
  ExpressionWriter(std::vector<int32_t>& ids, Rng& rng) : ids_(ids), rng_(rng) {}

  // Digits with operations between them; times goes first. Where the length is even, a minus stands in front.
  int64_t flat(int64_t length) {
    int64_t sum = 0;
    int32_t sign = kPlus;
    if (length % 2 == 0) put(sign = kMinus);
    int64_t product = digit();
    for (int64_t written = length % 2 == 0 ? 2 : 1; written < length; written += 2) {
      const int32_t symbol = operation();
      const int64_t next = digit();
      if (symbol == kTimes) {
        product = apply(kTimes, product, next);
      } else {
        sum = apply(sign, sum, product);
        sign = symbol, product = next;
      }
    }
    return apply(sign, sum, product);
  }

  // A digit, minus a digit, either in brackets, or an operation in brackets on two such expressions.
  int64_t nested(int64_t length) {
    if (length == 1) return digit();
    if (length == 2) {
      put(kMinus);
      return apply(kMinus, 0, digit());
    }
    put(kOpen);
    int64_t value = 0;
    if (length < 5) {
      value = nested(length - 2);
    } else {
      const int64_t left = 1 + uniform_below(length - 4, rng_);
      value = nested(left);
      const int32_t symbol = operation();
      value = apply(symbol, value, nested(length - 3 - left));
    }
    put(kClose);
    return value;
  }

 private:
  void put(int32_t id) { ids_.push_back(id); }
  int64_t digit() {
    const int64_t value = uniform_below(kModulus, rng_);
    put(static_cast<int32_t>(kZero + value));
    return value;
  }
  int32_t operation() {
    put(static_cast<int32_t>(kPlus + uniform_below(3, rng_)));
    return ids_.back();
  }

  std::vector<int32_t>& ids_;
  Rng& rng_;
};

template <int64_t (ExpressionWriter::*write)(int64_t)>
LabelledExample draw_expression(int64_t length, Rng& rng) {
  LabelledExample example;
  ExpressionWriter writer(example.ids, rng);
  const int64_t value = (writer.*write)(length - 1);
  example.ids.push_back(kEquals);
  example.targets.assign(length, kNoTarget);
  example.targets.back() = static_cast<int32_t>(kZero + value);
  return example;
}

// ---- permutations

template <int N>
struct Permutations {
  using Images = std::array<int32_t, N>;
  std::vector<Images> all;  // in lexicographic order; the first one moves nothing

  Permutations() {
    Images images;
    std::iota(images.begin(), images.end(), 0);
    do {
      all.push_back(images);
    } while (std::next_permutation(images.begin(), images.end()));
  }

  int32_t id_of(const Images& images) const {
    return static_cast<int32_t>(std::lower_bound(all.begin(), all.end(), images) - all.begin());
  }
};

template <int N>
LabelledExample draw_word(int64_t length, Rng& rng) {
  static const Permutations<N> group;
  LabelledExample example = unasked(length);
  auto product = group.all.front();
  for (int64_t i = 0; i < length; ++i) {
    example.ids[i] = static_cast<int32_t>(uniform_below(static_cast<int64_t>(group.all.size()), rng));
    for (int32_t& image : product) image = group.all[example.ids[i]][image];  // first what was, then this one
    example.targets[i] = group.id_of(product);
  }
  return example;
}

constexpr StateTask kTasks[] = {
    {"parity", "is the number of ones odd?", "1 a zero, even; 2 a one, odd", 3, 1, 2, draw_parity},
    {"modular_arithmetic", "sums, differences and products modulo 5",
     "1 to 5 the digits 0 to 4, 6 +, 7 -, 8 *, 9 =", 10, 2, 5, draw_expression<&ExpressionWriter::flat>},
    {"modular_arithmetic_brackets", "the same with brackets",
     "1 to 5 the digits 0 to 4, 6 +, 7 -, 8 *, 9 =, 10 (, 11 )", 12, 2, 5, draw_expression<&ExpressionWriter::nested>},
    {"s3", "products of permutations of 3 things", "the permutations in lexicographic order, 0 moves nothing", 6, 1, 6,
     draw_word<3>},
    {"s5", "products of permutations of 5 things", "the permutations in lexicographic order, 0 moves nothing", 120, 1,
     120, draw_word<5>},
};

}  // namespace

std::span<const StateTask> state_tasks() { return kTasks; }

void validate(const StateTask& task, int64_t length) {
  constexpr int64_t kLongest = int64_t{1} << 20;
  if (length >= task.least_length && length <= kLongest) return;
  throw Error("[" + std::string(task.name) + "] length: given " + std::to_string(length) + "; expected " +
              std::to_string(task.least_length) + " to " + std::to_string(kLongest));
}

LabelledExample draw_state_example(const StateTask& task, int64_t length, uint64_t seed, int64_t index) {
  validate(task, length);
  Rng rng(hash_bytes(task.name.data(), task.name.size()) ^ seed,
          static_cast<uint64_t>(length) << 40 | static_cast<uint64_t>(index));
  return task.draw(length, rng);
}

}  // namespace deltanet
