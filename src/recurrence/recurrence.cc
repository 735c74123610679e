#include "deltanet/recurrence.h"

#include "base/parallel.h"
#include "recurrence/args.h"
#include "recurrence/backward.h"
#include "recurrence/tasks.h"

namespace deltanet {
namespace {

// Sums the gradients of shared parameters over the sequences, in the order of the sequences.
void store_shared(const Problem& p, const std::vector<SharedGrads>& parts, const InputGradients& out) {
  const int64_t H = p.shape.H;
  for (int64_t head = 0; head < H; ++head) {
    SharedGrads total(p);
    for (int64_t n = 0; n < p.shape.N; ++n) {
      const SharedGrads& part = parts[n * H + head];
      total.center += part.center;
      total.d += part.d;
      for (size_t i = 0; i < total.ridge.size(); ++i) total.ridge[i] += part.ridge[i];
      for (size_t i = 0; i < total.g.size(); ++i) total.g[i] += part.g[i];
    }
    if (out.log_atk_scale)
      out.log_atk_scale.data[head * out.log_atk_scale.stride[0]] = static_cast<float>(total.center);
    if (out.d) out.d.data[head * out.d.stride[0]] = static_cast<float>(total.d);
    if (out.ridge) {
      for (int64_t i = 0; i < (out.ridge.rank == 2 ? p.K : 1); ++i) {
        out.ridge.data[head * out.ridge.stride[0] + i * out.ridge.stride[1]] = static_cast<float>(total.ridge[i]);
      }
    }
    if (out.g && p.spec.decay == Decay::kConst) {
      for (int64_t i = 0; i < p.group; ++i) {
        out.g.data[(head * p.group + i) * out.g.stride[0]] = static_cast<float>(total.g[i]);
      }
    }
  }
}

}  // namespace

void forward(const Spec& spec, const Inputs& inputs, const Outputs& outputs, const Options& options) {
  const Shape shape = check_inputs("forward", spec, inputs);
  check_outputs("forward", "", spec, shape, outputs);
  check_writes("forward", spec, shape, options);
  if (options.check_values) check_values("forward", inputs);
  const Problem problem(spec, inputs, shape, options);
  const int threads = options.threads > 0 ? options.threads : default_threads();
  const std::span<const Task> tasks = make_tasks(problem, threads, shape.H);
  if (options.mode == Mode::kChunk && static_cast<int64_t>(tasks.size()) < threads) {
    for (const Task& task : tasks) run_chunked_shared(problem, task, threads, outputs);
    return;
  }
  const auto run = options.mode == Mode::kChunk ? run_chunked : run_recurrent;
  parallel_for(threads, static_cast<int64_t>(tasks.size()), [&](int64_t i) { run(problem, tasks[i], outputs); });
}

void backward(const Spec& spec, const Inputs& inputs, const OutputGradients& upstream, const InputGradients& gradients,
              const Options& options) {
  const Shape shape = check_inputs("backward", spec, inputs);
  check_outputs("backward", "d", spec, shape, upstream);
  check_gradients("backward", spec, shape, inputs, gradients);
  check_writes("backward", spec, shape, options);
  if (options.check_values) check_values("backward", inputs, options.writes);
  const Problem problem(spec, inputs, shape, options);
  std::vector<SharedGrads> shared(shape.N * shape.H, SharedGrads(problem));
  const int threads = options.threads > 0 ? options.threads : default_threads();
  const std::span<const Task> tasks = make_tasks(problem, threads, most_backward_heads(problem));
  // Threads share the tasks, or, where there are fewer tasks than threads, the columns of one task after the other.
  const bool share_tasks = static_cast<int64_t>(tasks.size()) >= threads;
  parallel_for(share_tasks ? threads : 1, static_cast<int64_t>(tasks.size()), [&](int64_t i) {
    const Task& task = tasks[i];
    std::vector<SharedGrads> parts = run_backward(problem, task, share_tasks ? 1 : threads, upstream, gradients);
    for (size_t h = 0; h < parts.size(); ++h) {
      shared[task.sequence.index * shape.H + task.first_head + static_cast<int64_t>(h)] = std::move(parts[h]);
    }
  });
  store_shared(problem, shared, gradients);
}

}  // namespace deltanet
