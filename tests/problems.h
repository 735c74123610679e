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

// How large a problem may get; the reference's gradients cost much more than its values.
struct Sizes {
  int64_t max_T, max_K, max_V;
};
constexpr Sizes kForwardSizes{150, 40, 40}, kBackwardSizes{90, 24, 20}, kTinySizes{6, 4, 3};

rc::Gen<Problem> any_problem(const Sizes& sizes);

// A plain problem of one row with dense, unpacked inputs, for tests that fix everything themselves.
Problem problem_of(const std::string& row, const Shape& shape, uint64_t seed);

// Rows are grouped per key head only where nothing ties the preconditioner to the value heads.
bool allows_grouped_heads(const Spec& spec);

// How far float32 may be from float64, normwise: rounding 6e-8 per operation, growing like a random walk over the sums
// of length K and the T dependent tokens, with a factor for the divisions and exponentials in between.
double tolerance(const Problem& problem);

// Gradients pass through the recurrence twice, and through its divisions.
double gradient_tolerance(const Problem& problem);

// Values that are left over when larger ones nearly cancel (q almost orthogonal to the keys, gradients of parameters
// that all tokens share) are smaller than this per entry, where inputs are of size 1; their errors count absolutely.
constexpr double kCancelled = 0.05;

// Equal to the last bit, or both NaN.
bool same_bits(const Array& x, const Array& y);

// The first array of `expected` that is missing from `actual` or not within `bound` of it, described; empty if none is.
// Arrays smaller than `floor` per entry are measured on that scale; arrays of fewer than `tokens` entries are sums over
// tokens, and measured as if they had one entry for each.
std::string first_difference(const Arrays& actual, const Arrays& expected, double bound, double floor = 0,
                             int64_t tokens = 0);

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
