#include "recurrence/arrays.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <string_view>

#include "recurrence/preconditioners.h"

namespace deltanet {
namespace {

std::size_t size_of(const std::vector<int64_t>& shape) {
  std::size_t size = 1;
  for (int64_t extent : shape) size *= static_cast<std::size_t>(extent);
  return size;
}

// Owns float tensors by name.
class Floats {
 public:
  void add(const std::string& name, const Array& array) {
    Entry& entry = entries_[name];
    entry.shape = array.shape;
    entry.data.assign(array.data.begin(), array.data.end());
  }
  void add_unwritten(const std::string& name, const std::vector<int64_t>& shape) {
    entries_[name] = {shape, std::vector<float>(size_of(shape), std::numeric_limits<float>::quiet_NaN())};
  }

  Tensor view(const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) return {};
    Entry& entry = found->second;
    if (entry.data.empty()) entry.data.resize(1);  // a tensor of no elements is still present
    return {entry.data.data(), entry.shape};
  }

  Arrays arrays() const {
    Arrays out;
    for (const auto& [name, entry] : entries_) {
      const auto end = entry.data.begin() + static_cast<std::ptrdiff_t>(size_of(entry.shape));
      out[name] = {entry.shape, {entry.data.begin(), end}};
    }
    return out;
  }

 private:
  struct Entry {
    std::vector<int64_t> shape;
    std::vector<float> data;
  };
  std::map<std::string, Entry> entries_;
};

constexpr char kCuSeqlens[] = "cu_seqlens";

struct FloatInputs {
  Floats floats;
  std::vector<int64_t> cu_seqlens;
  Inputs views;

  explicit FloatInputs(const Arrays& arrays) {
    for (const auto& [name, array] : arrays) {
      if (name == kCuSeqlens) {
        cu_seqlens.assign(array.data.begin(), array.data.end());
      } else {
        floats.add(name, array);
      }
    }
    for (const auto& arg : input_args()) views.*arg.member = floats.view(std::string(arg.name));
    views.cu_seqlens = cu_seqlens;
  }
};

// Draws float values in the range that suits the input of that name.
class Draw {
 public:
  explicit Draw(uint64_t seed) : rng_(seed) {}

  Array array(std::string_view name, const std::vector<int64_t>& shape) {
    Array array{shape, std::vector<double>(size_of(shape))};
    for (double& x : array.data) x = static_cast<float>(value(name, shape.back()));
    if (name == "P0" || name == "G0") make_positive_definite(array);
    return array;
  }

 private:
  double normal() { return normal_(rng_); }
  double uniform(double low, double high) { return low + (high - low) * uniform_(rng_); }

  double value(std::string_view name, int64_t width) {
    const double unit = 1 / std::sqrt(static_cast<double>(std::max<int64_t>(width, 1)));  // makes |x| about 1
    if (name == "q" || name == "k") {
      // The L2 norm and 1/(k.k) amplify rounding where a vector nearly vanishes, which only short ones do by chance.
      if (width < 4) return uniform(0.5, 1) * (uniform(-1, 1) < 0 ? -1 : 1);
      return normal() * unit;
    }
    if (name == "a" || name == "b") return 0.7 * normal() * unit;
    if (name == "kk") return normal() * unit;
    if (name == "g" || name == "g_atk") return std::log(uniform(0.5, 1));
    if (name == "k_write") return uniform(0.5, 1.5);  // of k
    if (name == "k_erase") return uniform(0.05, 1);   // of k
    if (name == "beta" || name == "beta_erase" || name == "beta_atk" || name == "eta") return uniform(0.05, 0.95);
    if (name == "log_atk_scale") return uniform(-4, 0);
    if (name == "ridge") return uniform(0.5, 1.5);
    if (name == "A0") return uniform(0, 0.5);
    if (name == "S0") return 0.3 * normal();
    if (name == "P0" || name == "G0") return 0.5 * normal() * unit;
    return normal();  // v, d and upstream gradients
  }

  // M <- (M M^T + I) / 2, for every matrix of [N,H,K,K].
  static void make_positive_definite(Array& array) {
    const auto n = static_cast<std::size_t>(array.shape.back());
    std::vector<double> m(n * n);
    for (std::size_t start = 0; start < array.data.size(); start += n * n) {
      for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t j = 0; j < n; ++j) {
          double sum = i == j ? 1 : 0;
          for (std::size_t c = 0; c < n; ++c) sum += array.data[start + i * n + c] * array.data[start + j * n + c];
          m[i * n + j] = static_cast<float>(sum / 2);
        }
      }
      std::copy(m.begin(), m.end(), array.data.begin() + static_cast<std::ptrdiff_t>(start));
    }
  }

  std::mt19937_64 rng_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_;
};

}  // namespace

Arrays forward_arrays(const Spec& spec, const Arrays& inputs, const Options& options) {
  const FloatInputs in(inputs);
  const Shape shape = infer_shape(spec, in.views);
  Floats results;
  Outputs outputs;
  for (const auto& arg : output_args()) {
    const std::vector<int64_t> extents = output_shape(spec, arg.name, shape);
    if (extents.empty()) continue;
    results.add_unwritten(std::string(arg.name), extents);
    outputs.*arg.member = results.view(std::string(arg.name));
  }
  forward(spec, in.views, outputs, options);
  return results.arrays();
}

Arrays backward_arrays(const Spec& spec, const Arrays& inputs, const Arrays& upstream, const Options& options) {
  const FloatInputs in(inputs);
  Floats weights, results;
  for (const auto& [name, array] : upstream) weights.add(name, array);
  OutputGradients given;
  for (const auto& arg : output_gradient_args()) given.*arg.member = weights.view("d" + std::string(arg.name));
  InputGradients gradients;
  for (const auto& arg : input_gradient_args()) {
    const std::string name(arg.name);
    if (!inputs.count(name)) continue;
    results.add_unwritten(name, inputs.at(name).shape);
    gradients.*arg.member = results.view(name);
  }
  backward(spec, in.views, given, gradients, options);
  return results.arrays();
}

Arrays random_inputs(const Spec& spec, const Shape& shape, uint64_t seed) {
  Draw draw(seed);
  Arrays inputs;
  for (const auto& arg : input_args()) {
    const std::vector<int64_t> extents = input_shape(spec, arg.name, shape);
    const bool replaced = arg.name == "ridge" && ridge_makes_P0(spec);
    if (!extents.empty() && !replaced) inputs[std::string(arg.name)] = draw.array(arg.name, extents);
  }
  // What P forgets between two tokens that excite a direction is lost to its rounding: gentle decays, as RLS has them.
  if (carries(spec, Carried::kInverseGram) && inputs.count("g")) {
    for (double& g : inputs["g"].data) g = static_cast<float>(g / 8);
  }
  // Free keys lie near k: along others, what is erased is not what is written, and the state grows without end.
  for (const char* name : {"k_write", "k_erase"}) {
    const auto free = inputs.find(name);
    if (free == inputs.end()) continue;
    const std::vector<double>& k = inputs.at("k").data;
    for (std::size_t i = 0; i < k.size(); ++i) free->second.data[i] = static_cast<float>(free->second.data[i] * k[i]);
  }
  return inputs;
}

Arrays random_upstream(const Spec& spec, const Shape& shape, uint64_t seed) {
  Draw draw(seed);
  Arrays upstream;
  for (const auto& arg : output_args()) {
    const std::vector<int64_t> extents = output_shape(spec, arg.name, shape);
    const std::string name = "d" + std::string(arg.name);
    if (!extents.empty()) upstream[name] = draw.array(name, extents);
  }
  return upstream;
}

double relative_error(const Array& x, const Array& y) {
  double difference = 0, size = 0;
  for (std::size_t i = 0; i < y.data.size(); ++i) {
    difference += (x.data[i] - y.data[i]) * (x.data[i] - y.data[i]);
    size += y.data[i] * y.data[i];
  }
  return size > 0 ? std::sqrt(difference / size) : std::sqrt(difference);
}

double relative_error(const Arrays& actual, const Arrays& expected) {
  double worst = 0;
  for (const auto& [name, want] : expected) {
    const auto found = actual.find(name);
    if (found == actual.end() || found->second.shape != want.shape) return std::numeric_limits<double>::infinity();
    const double error = relative_error(found->second, want);
    if (!(error <= worst)) worst = error;  // NaN sticks
    if (std::isnan(worst)) return worst;
  }
  return worst;
}

}  // namespace deltanet
