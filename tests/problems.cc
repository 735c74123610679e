#include "problems.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <ostream>
#include <set>
#include <sstream>

#include "base/arena.h"
#include "deltanet/error.h"
#include "recurrence/arrays.h"
#include "recurrence/preconditioners.h"

namespace deltanet::test {
namespace {

// Every program that uses this file runs with scratch memory that is NaN until written.
struct PoisonedScratch : testing::Environment {
  void SetUp() override { Arena::set_poison(true); }
};
const auto* const kPoisoned = testing::AddGlobalTestEnvironment(new PoisonedScratch);

const std::set<std::string> kPerSequence = {"S0", "A0", "P0", "G0", "dS_final", "dA_final", "dP_final", "dG_final"};
const std::set<std::string> kOptional = {"g_atk", "beta_atk", "S0", "A0", "P0", "G0"};

bool is_per_token(const std::string& name, const Array& array) {
  return array.shape.size() >= 3 && !kPerSequence.count(name);
}

template <class T>
T pick(std::initializer_list<T> values) {
  return *rc::gen::elementOf(std::vector<T>(values));
}

// All of a range from the first case on, where RapidCheck starts with its lower end.
int64_t pick_between(int64_t low, int64_t high) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<int64_t>(low, high + 1));
}

// Often a size that vectors, chunks and segments care about, otherwise any.
int64_t pick_size(std::vector<int64_t> special, int64_t most) {
  special.erase(std::remove_if(special.begin(), special.end(), [&](int64_t s) { return s > most; }), special.end());
  if (!special.empty() && *rc::gen::arbitrary<bool>()) return *rc::gen::elementOf(special);
  return pick_between(1, most);
}

bool is_valid(const Spec& spec) {
  try {
    validate(spec);
  } catch (const Error&) {
    return false;
  }
  return true;
}

// Another gain, erase key, and preconditioner on either side, where they combine. The keys are of length 1 then, so
// that no write overshoots by more than what it corrects, whatever the gain: B is at most 2 for all drawn inputs.
void pick_combination(Spec& spec) {
  Spec other = spec;
  std::vector<Precond> keys, queries;
  for (const Preconditioner& one : preconditioners()) {
    if (one.on_key) keys.push_back(one.id);
    if (one.on_query) queries.push_back(one.id);
  }
  if (pick({0, 1}) == 1) other.key = *rc::gen::elementOf(keys);
  if (pick({0, 1}) == 1) other.query = *rc::gen::elementOf(queries);
  if (pick({0, 1}) == 1) other.erase = pick({Erase::kKey, Erase::kFree, Erase::kOwnGain});
  if (pick({0, 1}) == 1) {
    other.gain = pick({Gain::kOne, Gain::kBeta, Gain::kLonghorn, Gain::kNlms, Gain::kEfla, Gain::kInv, Gain::kOnePlus,
                       Gain::kAlphaBeta});
  }
  if (!squashes(other)) other.squash = Squash::kFast, other.range = Range::kSym;
  if (!has_gates(other)) other.tie_gates = false;
  other.l2norm = true;
  if (is_valid(other)) spec = other;
}

void pick_options(Spec& spec) {
  spec.l2norm = *rc::gen::arbitrary<bool>();
  if (pick({0, 0, 1}) == 1) spec.scale = 0.5;
  if (pick({0, 1}) == 1) pick_combination(spec);
  if (has_gates(spec)) spec.tie_gates = pick({false, false, true});
  if (!is_valid(spec)) spec.tie_gates = false;
  if (does(spec, Operation::kBlock)) spec.block = pick({1, 2, 4, 8, 16, 64});
  spec.eps = pick({spec.eps, 1e-2});
  spec.l2norm_eps = pick({spec.l2norm_eps, 1e-2});
  if (!squashes(spec)) return;
  spec.squash = pick({Squash::kFast, Squash::kTanh});
  spec.range = pick({Range::kSym, Range::kAmplify, Range::kDampen});
  spec.x = pick({1.0, 1.2, 1.5, 2.0});
}

std::vector<int64_t> pick_packing(int64_t T) {
  std::multiset<int64_t> cuts = {0, T};  // what repeats is a sequence without tokens
  for (int64_t i = pick_between(0, 3); i > 0; --i) {
    const bool repeats = pick({true, false, false});
    cuts.insert(repeats ? *rc::gen::elementOf(std::vector(cuts.begin(), cuts.end())) : pick_between(0, T));
  }
  return {cuts.begin(), cuts.end()};
}

}  // namespace

Arrays Problem::inputs() const {
  Arrays inputs = random_inputs(spec, shape, seed);
  for (const std::string& name : omitted) {
    if (inputs.erase(name) == 1 && name == "P0" && ridge_makes_P0(spec)) {
      inputs["ridge"] = {{shape.H}, std::vector<double>(static_cast<std::size_t>(shape.H), 0.75)};
    }
  }
  if (!cu_seqlens.empty()) {
    inputs["cu_seqlens"] = {{static_cast<int64_t>(cu_seqlens.size())}, {cu_seqlens.begin(), cu_seqlens.end()}};
  }
  return inputs;
}

Arrays Problem::upstream() const { return random_upstream(spec, shape, seed + 1); }

std::ostream& operator<<(std::ostream& out, const Problem& problem) {
  const auto& [B, T, H, U, K, V, N] = problem.shape;
  out << problem.row << "_B" << B << "_T" << T << "_H" << H << "_U" << U << "_K" << K << "_V" << V << " seed "
      << problem.seed;
  for (const auto& [key, value] : options(problem.spec)) out << " " << key << "=" << value;
  if (!problem.cu_seqlens.empty()) {
    out << " cu_seqlens";
    for (int64_t cut : problem.cu_seqlens) out << " " << cut;
  }
  for (const std::string& name : problem.omitted) out << " without " << name;
  return out;
}

bool allows_grouped_heads(const Spec& spec) { return !shares_gates(spec); }

rc::Gen<Problem> any_problem(const Sizes& sizes) {
  return rc::gen::exec([sizes] {
    Problem problem;
    const Row& row = rows()[static_cast<std::size_t>(pick_between(0, static_cast<int64_t>(rows().size()) - 1))];
    problem.row = row.name;
    problem.spec = row.spec;
    pick_options(problem.spec);
    Shape& shape = problem.shape;
    shape.T = pick_size({1, 16, 17, 31, 32, 33, 63, 64, 65, 128, 255, 256, 257, 272, 513}, sizes.max_T);
    shape.H = pick({1, 2});
    shape.U = shape.H * (allows_grouped_heads(problem.spec) ? pick({1, 1, 2, 3}) : 1);
    shape.B = pick({1, 2});
    // Few heads of long sequences are wide, so that the next problem comes soon.
    const std::vector<int64_t> widths = {1, 8, 16, 17, 32, 40};
    const int64_t room = std::max<int64_t>(sizes.max_work / (shape.B * shape.T * shape.U), 1);
    shape.K = pick_size(widths, std::min(sizes.max_K, room));
    shape.V = pick_size(widths, std::clamp<int64_t>(room / shape.K, 1, sizes.max_V));
    if (*rc::gen::arbitrary<bool>()) {
      shape.B = 1;
      problem.cu_seqlens = pick_packing(shape.T);
    }
    shape.N = problem.cu_seqlens.empty() ? shape.B : static_cast<int64_t>(problem.cu_seqlens.size()) - 1;
    for (const std::string& name : kOptional) {
      if (pick({0, 0, 0, 1}) == 1) problem.omitted.push_back(name);
    }
    problem.seed = static_cast<uint64_t>(pick_between(1, 1000000));
    return problem;
  });
}

Problem problem_of(const std::string& row, const Shape& shape, uint64_t seed) {
  Problem problem;
  problem.row = row;
  problem.spec = find_row(row).spec;
  problem.shape = shape;
  problem.seed = seed;
  return problem;
}

bool same_bits(const Array& x, const Array& y) {
  if (x.shape != y.shape) return false;
  return x.data.empty() || std::memcmp(x.data.data(), y.data.data(), x.data.size() * sizeof(double)) == 0;
}

Array slice(const Array& array, std::size_t axis, int64_t begin, int64_t end) {
  Array out{array.shape, {}};
  out.shape[axis] = end - begin;
  int64_t outer = 1, inner = 1;
  for (std::size_t i = 0; i < axis; ++i) outer *= array.shape[i];
  for (std::size_t i = axis + 1; i < array.shape.size(); ++i) inner *= array.shape[i];
  for (int64_t i = 0; i < outer; ++i) {
    const auto start = array.data.begin() + (i * array.shape[axis] + begin) * inner;
    out.data.insert(out.data.end(), start, start + (end - begin) * inner);
  }
  return out;
}

KeptWrites::KeptWrites(const Shape& shape)
    : shape_(shape),
      values_(static_cast<std::size_t>(shape.B * shape.T * shape.U * (shape.V + 1)),
              std::numeric_limits<float>::quiet_NaN()) {}

Tensor KeptWrites::view() {
  Tensor tensor(values_.data(), {shape_.B, shape_.T, shape_.U, shape_.V + 1});
  tensor.shape[3] = shape_.V;
  return tensor;
}

bool KeptWrites::complete() const {
  for (std::size_t i = 0; i < values_.size(); ++i) {
    const bool between = static_cast<int64_t>(i) % (shape_.V + 1) == shape_.V;
    if (std::isnan(values_[i]) != between) return false;
  }
  return true;
}

Arrays tokens_of(const Arrays& inputs, int64_t begin, int64_t end) {
  Arrays out = inputs;
  for (auto& [name, array] : out) {
    if (is_per_token(name, array)) array = slice(array, 1, begin, end);
  }
  return out;
}

Arrays batch_entry(const Arrays& inputs, int64_t b) {
  Arrays out = inputs;
  for (auto& [name, array] : out) {
    if (is_per_token(name, array) || kPerSequence.count(name)) array = slice(array, 0, b, b + 1);
  }
  return out;
}

}  // namespace deltanet::test
