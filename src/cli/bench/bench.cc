// `deltanet bench`: speed and memory of the kernels. Every result is checked before it is timed.

#include "cli/bench/bench.h"

namespace deltanet::cli {
namespace {

constexpr Command kBenchmarks[] = {
    {"kernels", "Time against length of several rows, forward and backward", setup_bench_kernels},
    {"floors", "The speeds and sizes that this library promises: measured, with PASS or FAIL", setup_bench_floors},
    {"step", "Latency of one decode step, for every SIMD target", setup_bench_step},
    {"model", "Prefill, decoding and loading of a language model, against the machine", setup_bench_model},
    {"train", "Training steps of language models, against the products they are made of", setup_bench_train},
    {"memory", "Memory that backward takes beyond its inputs and gradients", setup_bench_memory},
};

std::function<int()> setup(const Arguments& args) { return add_commands(args, kBenchmarks); }

const RegisterCommand kBench({"bench", "Measure kernels and models", setup});

}  // namespace
}  // namespace deltanet::cli
