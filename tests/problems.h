#pragma once

#include <rapidcheck.h>

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "deltanet/recurrence.h"
#include "deltanet/reference.h"
#include "deltanet/rows.h"

// Random problems for the property tests: any row with any of its options, any shape, packed or not. Scratch memory is
// poisoned in every test program that links this.

namespace deltanet::test {

struct Problem {
  std::string row;  // for people; spec may differ from the row's in its options
  Spec spec;
  Shape shape;
  std::vector<int64_t> cu_seqlens;   // empty: not packed
  std::vector<std::string> omitted;  // optional inputs that are not given
  uint64_t seed = 0;

  Arrays inputs() const;
  Arrays upstream() const;
};
std::ostream& operator<<(std::ostream& out, const Problem& problem);

// How large a problem may get. Work is B T U K V; the reference's gradients cost much more than its values. Sequences
// may be longer than two segments of the backward pass.
struct Sizes {
  int64_t max_T, max_K, max_V, max_work;
};
constexpr Sizes kForwardSizes{600, 40, 40, 20000}, kBackwardSizes{600, 24, 20, 6000}, kTinySizes{6, 4, 3, 1000};

rc::Gen<Problem> any_problem(const Sizes& sizes);

// A plain problem of one row with dense, unpacked inputs, for tests that fix everything themselves.
Problem problem_of(const std::string& row, const Shape& shape, uint64_t seed);

// Rows are grouped per key head only where nothing ties the preconditioner to the value heads.
bool allows_grouped_heads(const Spec& spec);

// Equal to the last bit, or both NaN.
bool same_bits(const Array& x, const Array& y);

// Room for Options::writes, with a column of NaN between the heads that must stay so.
class KeptWrites {
 public:
  explicit KeptWrites(const Shape& shape);
  Tensor view();
  // Every write is there, and nothing else.
  bool complete() const;

 private:
  Shape shape_;
  std::vector<float> values_;
};

// Tokens [begin, end) of every per-token input; the rest unchanged.
Arrays tokens_of(const Arrays& inputs, int64_t begin, int64_t end);

// Entry `b` alone of a batch: per-token inputs and initial states.
Arrays batch_entry(const Arrays& inputs, int64_t b);

// Sub-array [begin, end) along one axis.
Array slice(const Array& array, std::size_t axis, int64_t begin, int64_t end);

}  // namespace deltanet::test
