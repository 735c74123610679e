// Every chunkwise form equals its recurrence (App. F): the fast path in chunk and in recurrent form, its backward, and
// the float64 reference on the same random inputs.

#include "deltanet/recurrence.h"
#include "deltanet/rows.h"
#include "recurrence/arrays.h"
#include "recurrence/preconditioners.h"
#include "theory/statements.h"

namespace deltanet::theory {
namespace {

// float32: rounding 6e-8, grown by some hundred dependent operations.
constexpr double kBound = 2e-5;

}  // namespace

Section check_chunkwise(const CheckOptions& options) {
  Section section{
      "Every chunkwise form equals its recurrence (float32 against the float64 reference)",
      "normwise relative errors; c chunkwise, r recurrent, f64 reference, d the gradients of the chunkwise form",
      {},
      {"c-r", "c-f64", "r-f64", "d-f64"}};
  // An odd length, sizes that are no multiple of a vector, and two value heads per key head where the row allows it.
  const int64_t T = options.quick ? 45 : 131;
  uint64_t seed = options.seed;
  for (const Row& row : rows()) {
    const bool one_value_head = shares_gates(row.spec);
    const Shape shape{1, T, 1, one_value_head ? 1 : 2, 20, 12, 1};
    Spec spec = row.spec;
    spec.l2norm = spec.solve != Solve::kDplr;
    const Arrays inputs = random_inputs(spec, shape, ++seed);
    const Arrays upstream = random_upstream(spec, shape, ++seed);
    const Arrays reference = reference_forward(spec, inputs);
    const Arrays gradients = reference_backward(spec, inputs, upstream);

    const auto run = [&](Mode mode) {
      Options run_options;
      run_options.mode = mode;
      run_options.threads = options.threads;
      return run_options;
    };
    const Arrays chunk = forward_arrays(spec, inputs, run(Mode::kChunk));
    const Arrays recurrent = forward_arrays(spec, inputs, run(Mode::kRecurrent));
    const Arrays chunk_gradients = backward_arrays(spec, inputs, upstream, run(Mode::kChunk));
    Check check{std::string(row.name), std::string(row.paper), 0, "<=", kBound, {}};
    check.parts = {relative_error(chunk, recurrent), relative_error(chunk, reference),
                   relative_error(recurrent, reference), relative_error(chunk_gradients, gradients)};
    for (const double part : check.parts) check.measured = larger(check.measured, part);
    section.checks.push_back(check);
  }
  return section;
}

}  // namespace deltanet::theory
