#include "bench/memory.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <fstream>
#include <nlohmann/json.hpp>
#include <vector>

#include "bench/rows.h"
#include "bench/work.h"
#include "deltanet/deltanet.h"

namespace deltanet::bench {
namespace {

int64_t bytes_of(const ConstTensor& tensor) { return tensor ? tensor.size() * static_cast<int64_t>(sizeof(float)) : 0; }

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

int64_t process_memory(const std::string& field) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(field + ":", 0) == 0) return std::stoll(line.substr(field.size() + 1)) * 1024;
  }
  throw Error(fmt::format("[bench memory] /proc/self/status has no {}; this measurement needs Linux", field));
}

BackwardMemory measure_backward_memory_here(const std::string& label, const Shape& shape, int threads) {
  const BenchRow row = bench_row(label, true);
  Workspace workspace(shape);
  const Work work = workspace.work(row.spec, /*with_backward=*/true);
  BackwardMemory memory;
  for (const auto& arg : input_args()) memory.tensors += bytes_of(work.inputs.*arg.member);
  for (const auto& arg : input_gradient_args()) memory.tensors += bytes_of(work.gradients.*arg.member);
  memory.tensors += bytes_of(work.upstream.o);

  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak where the kernel allows it
  const int64_t before = process_memory("VmRSS");
  Options options;
  options.threads = threads;
  backward(row.spec, work.inputs, work.upstream, work.gradients, options);
  memory.extra = process_memory("VmHWM") - before;
  return memory;
}

BackwardMemory measure_backward_memory(const std::string& label, const Shape& shape, int threads) {
  const std::string text = output_of_self({"bench", "memory", "--row", label, "--length", std::to_string(shape.T),
                                           "--heads", std::to_string(shape.H), "--threads", std::to_string(threads),
                                           "--target", simd_target(), "--json", "-"});
  const nlohmann::json json = nlohmann::json::parse(text);
  return {json.at("tensor_bytes").get<int64_t>(), json.at("extra_bytes").get<int64_t>()};
}

}  // namespace deltanet::bench
