#include "bench/work.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>

#include "recurrence/arrays.h"
#include "recurrence/preconditioners.h"

namespace deltanet::bench {
namespace {

constexpr int64_t kDrawnTokens = 512;  // tokens of random data; longer sequences repeat them
constexpr uint64_t kSeed = 7;

std::size_t count_of(const std::vector<int64_t>& dims) {
  std::size_t count = 1;
  for (int64_t extent : dims) count *= static_cast<std::size_t>(extent);
  return count;
}

// Sequences start from nothing, as in training. RLS has no other start than a P0.
bool is_used(const Spec& spec, std::string_view name) {
  if (name == "P0") return true;
  if (name == "ridge") return !ridge_makes_P0(spec);
  return name != "S0" && name != "A0" && name != "G0";
}

std::string key_of(std::string_view kind, std::string_view name, const std::vector<int64_t>& dims) {
  std::string key = std::string(kind) + " " + std::string(name);
  for (int64_t extent : dims) key += " " + std::to_string(extent);
  return key;
}

// Repeats the tokens of `drawn` along the second dimension of [B,T,...]; tensors without tokens are copied.
void fill_repeating(const Array& drawn, const std::vector<int64_t>& dims, float* target) {
  if (drawn.shape == dims) {
    std::copy(drawn.data.begin(), drawn.data.end(), target);
    return;
  }
  const int64_t inner = static_cast<int64_t>(count_of(dims)) / (dims[0] * dims[1]);
  for (int64_t b = 0; b < dims[0]; ++b) {
    for (int64_t t = 0; t < dims[1]; ++t) {
      const double* source = drawn.data.data() + (b * drawn.shape[1] + t % drawn.shape[1]) * inner;
      std::copy_n(source, inner, target + (b * dims[1] + t) * inner);
    }
  }
}

double normwise_error(const ConstTensor& x, const ConstTensor& y) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < y.size(); ++i) {
    const double delta = static_cast<double>(x.data[i]) - y.data[i];
    difference += delta * delta;
    size += static_cast<double>(y.data[i]) * y.data[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

// Calls visit(key, dims) for every tensor of the row.
template <class Visit>
void visit_tensors(const Spec& spec, const Shape& shape, bool with_backward, const Visit& visit) {
  for (const auto& arg : input_args()) {
    const std::vector<int64_t> dims = input_shape(spec, arg.name, shape);
    if (dims.empty() || !is_used(spec, arg.name)) continue;
    visit(key_of("input", arg.name, dims), dims);
    if (with_backward) visit(key_of("gradient", arg.name, dims), dims);
  }
  for (const auto& arg : output_args()) {
    const std::vector<int64_t> dims = output_shape(spec, arg.name, shape);
    if (dims.empty()) continue;
    visit(key_of("output", arg.name, dims), dims);
    visit(key_of("other output", arg.name, dims), dims);
    if (with_backward && arg.name == "o") visit(key_of("upstream", arg.name, dims), dims);
  }
}

}  // namespace

// Writing zeros now keeps the first touch of a page out of the timed runs.
Tensor Workspace::tensor(const std::string& key, const std::vector<int64_t>& dims, bool* created) {
  float*& data = data_[key];
  if (created) *created = data == nullptr;
  if (!data) {
    const auto count = static_cast<int64_t>(count_of(dims));
    data = arena_.take_zeros(count);
    bytes_ += count * static_cast<int64_t>(sizeof(float));
  }
  return {data, dims};
}

void Workspace::fill_inputs(const Spec& spec, Inputs& inputs) {
  Shape drawn_shape = shape_;
  drawn_shape.T = std::min(shape_.T, kDrawnTokens);
  Arrays drawn;
  for (const auto& arg : input_args()) {
    const std::vector<int64_t> dims = input_shape(spec, arg.name, shape_);
    if (dims.empty() || !is_used(spec, arg.name)) continue;
    bool created = false;
    const Tensor memory = tensor(key_of("input", arg.name, dims), dims, &created);
    inputs.*arg.member = memory;
    if (!created) continue;
    if (drawn.empty()) drawn = random_inputs(spec, drawn_shape, kSeed);
    fill_repeating(drawn.at(std::string(arg.name)), dims, memory.data);
  }
}

Work Workspace::work(const Spec& spec, bool with_backward) {
  Work work;
  fill_inputs(spec, work.inputs);
  for (const auto& arg : output_args()) {
    const std::vector<int64_t> dims = output_shape(spec, arg.name, shape_);
    if (!dims.empty()) work.outputs.*arg.member = tensor(key_of("output", arg.name, dims), dims);
  }
  if (!with_backward) return work;

  const std::vector<int64_t> dims = output_shape(spec, "o", shape_);
  bool created = false;
  const Tensor upstream = tensor(key_of("upstream", "o", dims), dims, &created);
  work.upstream.o = upstream;
  if (created) {
    Shape drawn_shape = shape_;
    drawn_shape.T = std::min(shape_.T, kDrawnTokens);
    fill_repeating(random_upstream(spec, drawn_shape, kSeed).at("do"), dims, upstream.data);
  }
  for (const auto& arg : input_gradient_args()) {
    if (!is_used(spec, arg.name)) continue;
    const std::vector<int64_t> extents = input_shape(spec, arg.name, shape_);
    if (!extents.empty()) work.gradients.*arg.member = tensor(key_of("gradient", arg.name, extents), extents);
  }
  return work;
}

Outputs Workspace::other_outputs(const Spec& spec) {
  Outputs outputs;
  for (const auto& arg : output_args()) {
    const std::vector<int64_t> dims = output_shape(spec, arg.name, shape_);
    if (!dims.empty()) outputs.*arg.member = tensor(key_of("other output", arg.name, dims), dims);
  }
  return outputs;
}

int64_t workspace_bytes(const std::vector<BenchRow>& rows, const Shape& shape, bool with_backward) {
  std::set<std::string> seen;
  int64_t bytes = 0;
  for (const BenchRow& row : rows) {
    visit_tensors(row.spec, shape, with_backward, [&](const std::string& key, const std::vector<int64_t>& dims) {
      if (seen.insert(key).second) bytes += static_cast<int64_t>(count_of(dims) * sizeof(float));
    });
  }
  return bytes;
}

int64_t available_bytes() {
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("MemAvailable:", 0) == 0) return std::stoll(line.substr(std::strlen("MemAvailable:"))) * 1024;
  }
  return std::numeric_limits<int64_t>::max();
}

double error_against_reference(const BenchRow& row, const Shape& shape, bool with_backward, int threads) {
  const Shape small{1, 37, 1, shape.U / shape.H, shape.K, shape.V, 1};  // two chunks and a rest
  const Arrays inputs = random_inputs(row.spec, small, kSeed);
  Options options;
  options.threads = threads;
  double error = relative_error(forward_arrays(row.spec, inputs, options), reference_forward(row.spec, inputs));
  if (with_backward) {
    const Arrays upstream = random_upstream(row.spec, small, kSeed);
    const double backward_error = relative_error(backward_arrays(row.spec, inputs, upstream, options),
                                                 reference_backward(row.spec, inputs, upstream));
    if (!(backward_error <= error)) error = backward_error;  // NaN wins
  }
  return error;
}

double error_against_recurrent(const BenchRow& row, Workspace& workspace, const Work& work) {
  const Outputs expected = workspace.other_outputs(row.spec);
  for (const auto& arg : output_args()) {  // what is not written must not pass
    for (const Tensor& output : {work.outputs.*arg.member, expected.*arg.member}) {
      if (output) std::fill_n(output.data, output.size(), std::numeric_limits<float>::quiet_NaN());
    }
  }
  Options options;
  forward(row.spec, work.inputs, work.outputs, options);
  options.mode = Mode::kRecurrent;
  forward(row.spec, work.inputs, expected, options);
  double worst = 0;
  for (const auto& arg : output_args()) {
    if (!(expected.*arg.member)) continue;
    const double error = normwise_error(work.outputs.*arg.member, expected.*arg.member);
    if (!(error <= worst)) worst = error;
    if (std::isnan(worst)) break;
  }
  return worst;
}

}  // namespace deltanet::bench
