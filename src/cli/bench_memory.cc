// `deltanet bench memory`: what backward takes beyond the tensors of its caller.

#include "cli/bench_memory.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/measure.h"
#include "cli/bench.h"
#include "bench/work.h"
#include "cli/json_file.h"
#include "deltanet/deltanet.h"

namespace deltanet::cli {
using namespace bench;
namespace {

struct Settings {
  std::string label = kBaseline;
  Shape shape{1, 32768, 8, 8, 128, 128, 1};
  int threads = 1;
  std::string target, json;
};

// A field of /proc/self/status, in bytes.
int64_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  throw Error(fmt::format("[bench memory] /proc/self/status has no {}; this measurement needs Linux", field));
}

int64_t bytes_of(const Tensor& tensor) { return tensor ? tensor.size() * static_cast<int64_t>(sizeof(float)) : 0; }

BackwardMemory measure_here(const Settings& settings) {
  const BenchRow row = bench_row(settings.label, true);
  Workspace workspace(settings.shape);
  const Work work = workspace.work(row.spec, /*with_backward=*/true);
  BackwardMemory memory;
  for (const auto& arg : input_args()) memory.tensors += bytes_of(work.inputs.*arg.member);
  for (const auto& arg : input_args()) memory.tensors += bytes_of(work.gradients.*arg.member);
  memory.tensors += bytes_of(work.upstream.o);

  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak where the kernel allows it
  const int64_t before = process_memory("VmRSS");
  Options options;
  options.threads = settings.threads;
  backward(row.spec, work.inputs, work.upstream, work.gradients, options);
  memory.extra = process_memory("VmHWM") - before;
  return memory;
}

int run(const Settings& settings) {
  check_writable(settings.json);
  if (!settings.target.empty()) set_simd_target(settings.target);
  const BackwardMemory memory = measure_here(settings);
  const Shape& shape = settings.shape;
  if (settings.json != "-") {
    const auto mb = [](int64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
    fmt::print("{}: backward over B={} T={} H={} K={} V={} on {} thread{}\n", settings.label, shape.B, shape.T, shape.H,
               shape.K, shape.V, settings.threads, settings.threads == 1 ? "" : "s");
    fmt::print("  inputs and gradients  {:.1f} MB\n", mb(memory.tensors));
    fmt::print("  extra at its peak     {:.1f} MB, {:.3f}x\n", mb(memory.extra), memory.ratio());
  }
  write_json(settings.json,
             {{"benchmark", "memory"},
              {"machine", machine_json(settings.threads)},
              {"row", settings.label},
              {"shape", {{"B", shape.B}, {"T", shape.T}, {"H", shape.H}, {"K", shape.K}, {"V", shape.V}}},
              {"tensor_bytes", memory.tensors},
              {"extra_bytes", memory.extra},
              {"ratio", memory.ratio()}});
  return 0;
}

// What the program prints when it is run again with these arguments.
std::string output_of_self(const std::vector<std::string>& arguments) {
  std::array<char, PATH_MAX> path{};
  if (readlink("/proc/self/exe", path.data(), path.size() - 1) < 0) {
    throw Error("[bench memory] /proc/self/exe cannot be read; this measurement needs Linux");
  }
  std::vector<char*> argv = {path.data()};
  std::vector<std::string> copies = arguments;
  for (std::string& argument : copies) argv.push_back(argument.data());
  argv.push_back(nullptr);

  int ends[2];
  if (pipe(ends) != 0) throw Error("[bench memory] no pipe could be made");
  const pid_t child = fork();
  if (child < 0) throw Error("[bench memory] no process could be made");
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
    execv(path.data(), argv.data());
    _exit(127);
  }
  close(ends[1]);
  std::string text;
  std::array<char, 4096> buffer{};
  for (ssize_t count = 0; (count = read(ends[0], buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) throw Error("[bench memory] the measuring process failed");
  return text;
}

}  // namespace

BackwardMemory measure_backward_memory(const std::string& label, const Shape& shape, int threads) {
  const std::string text = output_of_self({"bench", "memory", "--row", label, "--length", std::to_string(shape.T),
                                           "--heads", std::to_string(shape.H), "--threads", std::to_string(threads),
                                           "--target", simd_target(), "--json", "-"});
  const nlohmann::json json = nlohmann::json::parse(text);
  return {json.at("tensor_bytes").get<int64_t>(), json.at("extra_bytes").get<int64_t>()};
}

std::function<int()> setup_bench_memory(const Arguments& args) {
  const auto s = std::make_shared<Settings>();
  args.option("--row", s->label, "Row").show_default();
  args.option("--length", s->shape.T, "Tokens").between(1, 1 << 24).show_default();
  args.option("--heads", s->shape.H, "Heads").between(1, 4096).show_default();
  args.option("--threads", s->threads, "Threads").between(1, 1024).show_default();
  args.option("--target", s->target, "SIMD target to use instead of the best one (see deltanet --version)");
  args.option("--json", s->json, "Write the result to this file (-: to standard output, instead of the text)");
  return [s] {
    s->shape.U = s->shape.H;
    return run(*s);
  };
}

}  // namespace deltanet::cli
