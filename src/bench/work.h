#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/arena.h"
#include "bench/rows.h"

// The tensors that a benchmark works on, and the check that the work is done right.

namespace deltanet::bench {

// Everything that one row reads and writes. No initial states, except RLS's P0; upstream is the gradient of o alone.
struct Work {
  Inputs inputs;
  Outputs outputs;
  OutputGradients upstream;
  InputGradients gradients;
};

// Tensors of one shape, shared by all rows that use a tensor of the same name and size: the rows of a benchmark then
// read the same numbers, and eight rows need hardly more memory than one.
class Workspace {
 public:
  explicit Workspace(const Shape& shape) : shape_(shape) {}

  const Shape& shape() const { return shape_; }
  Work work(const Spec& spec, bool with_backward);
  // A second set of outputs, to compare with those of work().
  Outputs other_outputs(const Spec& spec);
  // Sizes of the tensors handed out so far.
  int64_t bytes() const { return bytes_; }

 private:
  Tensor tensor(const std::string& key, const std::vector<int64_t>& dims, bool* created = nullptr);
  void fill_inputs(const Spec& spec, Inputs& inputs);

  const Shape shape_;
  Arena arena_;
  std::map<std::string, float*> data_;
  int64_t bytes_ = 0;
};

// Bytes that a Workspace takes for these rows, all at once.
int64_t workspace_bytes(const std::vector<BenchRow>& rows, const Shape& shape, bool with_backward);
// What the machine can still give; a very large number where it does not say.
int64_t available_bytes();

// Errors are normwise and relative. The tolerances leave a factor over what float32 gives on such data.
inline constexpr double kReferenceTolerance = 2e-5;
inline constexpr double kRecurrentTolerance = 5e-5;

// Chunkwise outputs, final states and (on request) all gradients against the float64 reference, on a short sequence of
// one key head with initial states. The largest error.
double error_against_reference(const BenchRow& row, const Shape& shape, bool with_backward, int threads);

// The chunkwise outputs of `work` against the token-recurrent form, at full length. Runs both.
double error_against_recurrent(const BenchRow& row, Workspace& workspace, const Work& work);

}  // namespace deltanet::bench
