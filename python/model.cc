// Model, Session and TokenStream for Python. deltanet/model.py gives them their public form.

#include "deltanet/model.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <tuple>

#include "arrays.h"
#include "bindings.h"
#include "deltanet/error.h"
#include "deltanet/optimizer.h"
#include "interrupts.h"

namespace deltanet {
namespace {

using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = std::vector<int64_t>;
using Prompts = std::vector<std::vector<int32_t>>;

std::span<const int32_t> span_of(const Ids& ids) { return {ids.data(), ids.size()}; }

// A model runs one call at a time; Python may ask for more from several threads, which then wait. A thread that is
// itself in a call, in on_token, would wait forever.
struct PyModel {
  explicit PyModel(Model loaded) : model(std::move(loaded)) {}

  template <class Call>
  auto run(const Call& call) {
    if (busy_thread == std::this_thread::get_id()) {
      throw Error("[model] on_token: calls the model that it is called by; use stream() to do so between tokens");
    }
    return without_gil([&](Interrupt& interrupt) {
      const std::unique_lock lock = locked(interrupt);
      const Busy busy(*this);
      return call();
    });
  }

  // Waits for the calls of other threads.
  std::unique_lock<std::timed_mutex> locked(Interrupt& interrupt) {
    std::unique_lock lock(mutex, std::defer_lock);
    while (!lock.try_lock_for(std::chrono::milliseconds(Interrupt::kMilliseconds))) interrupt.check();
    return lock;
  }

  struct Busy {
    explicit Busy(PyModel& called) : owner(called) { owner.busy_thread = std::this_thread::get_id(); }
    ~Busy() { owner.busy_thread = std::thread::id(); }
    Busy(const Busy&) = delete;
    Busy& operator=(const Busy&) = delete;
    PyModel& owner;
  };

  // Made by the first step: the moments take twice the memory of the weights.
  Optimizer& trained() {
    if (!optimizer) optimizer.emplace(model);
    return *optimizer;
  }

  Model model;
  std::optional<Optimizer> optimizer;
  std::timed_mutex mutex;
  std::atomic<std::thread::id> busy_thread;
};

using ModelPointer = std::shared_ptr<PyModel>;

// Keeps its model alive.
struct PySession {
  ModelPointer owner;
  Session session;
};

// Python keeps its session alive (keep_alive below).
struct PyTokenStream {
  ModelPointer owner;
  TokenStream stream;
};

ModelPointer wrap(const std::function<Model()>& make) {
  return without_gil([&](Interrupt&) { return std::make_shared<PyModel>(make()); });
}

ModelOptions options_of(const std::string& weights, int threads) {
  return {.weights = parse_weight_type(weights), .threads = threads};
}

nb::object to_array(const std::vector<int64_t>& shape, std::span<const float> values) {
  auto [array, data] = new_array<float>(shape);
  std::memcpy(data, values.data(), values.size_bytes());
  return array;
}

const std::vector<int64_t>& shape_of(const std::vector<ParameterInfo>& list, std::string_view name) {
  for (const ParameterInfo& info : list) {
    if (info.name == name) return info.shape;
  }
  throw Error("[model] parameter: given \"" + std::string(name) + "\"; expected one of parameter_names");
}

nb::object logits(PyModel& self, const Ids& ids, const Offsets& offsets) {
  auto [array, data] = new_array<float>({static_cast<int64_t>(ids.size()), self.model.vocab_size()});
  self.run([&, out = data] { self.model.logits(span_of(ids), offsets, out); });
  return array;
}

// Of a Model or a Session.
template <class Scorer>
nb::object log_probs(PyModel& owner, Scorer& scorer, const Ids& ids, const Ids& targets, const Offsets& offsets) {
  auto [log_prob, values] = new_array<double>({static_cast<int64_t>(ids.size())});
  auto [greedy, flags] = new_array<bool>({static_cast<int64_t>(ids.size())});
  owner.run([&, a = values, b = flags] { scorer.log_probs(span_of(ids), span_of(targets), offsets, a, b); });
  return nb::make_tuple(log_prob, greedy);
}

// Of many sequences, after one another in the arrays: log p and greedy of each target, and how many tokens were read.
// on_progress(sequences done since the last call) may raise.
nb::object score(PyModel& self, const Ids& ids, const Ids& targets, const Offsets& offsets, int64_t batch_tokens,
                 int64_t state_bytes, const nb::object& on_progress) {
  auto [log_prob, values] = new_array<double>({static_cast<int64_t>(ids.size())});
  auto [greedy, flags] = new_array<bool>({static_cast<int64_t>(ids.size())});
  std::vector<ScoreRequest> requests;
  for (std::size_t i = 0; i + 1 < offsets.size(); ++i) {
    requests.push_back({{ids.data() + offsets[i], ids.data() + offsets[i + 1]},
                        {targets.data() + offsets[i], targets.data() + offsets[i + 1]}});
  }
  int64_t tokens = 0;
  const auto report = [&](int64_t done) {
    const nb::gil_scoped_acquire locked;
    on_progress(done);
  };
  const BatchOptions options{
      .tokens = batch_tokens, .state_bytes = state_bytes, .on_read = [&](int64_t read, int64_t) { tokens += read; }};
  self.run([&, values = values, flags = flags] {
    self.model.score(requests, options, [&](const Scored& scored) {
      const std::vector<int32_t>& asked = requests[scored.sequence].targets;
      for (std::size_t i = 0, next = 0; i < asked.size(); ++i) {
        const bool is_asked = asked[i] >= 0;
        values[offsets[scored.sequence] + i] = is_asked ? scored.log_probs[next] : 0.0;
        flags[offsets[scored.sequence] + i] = is_asked && scored.greedy[next];
        next += is_asked ? 1 : 0;
      }
      report(1);
    });
  });
  return nb::make_tuple(log_prob, greedy, tokens);
}

std::tuple<double, int64_t> loss(PyModel& self, const Ids& ids, const Ids& targets, const Offsets& offsets) {
  const LossSum sum = self.run([&] { return self.model.loss(span_of(ids), span_of(targets), offsets); });
  return {sum.sum, sum.count};
}

// Computes and copies under one lock, so that the gradients of calls from several threads do not mix.
nb::object loss_and_gradients(PyModel& self, const Ids& ids, const Ids& targets, const Offsets& offsets,
                              bool recompute) {
  const std::vector<ParameterInfo> parameters = self.model.parameters();
  nb::dict gradients;
  std::vector<float*> arrays;
  for (const ParameterInfo& info : parameters) {
    auto [array, data] = new_array<float>(info.shape);
    gradients[info.name.c_str()] = array;
    arrays.push_back(data);
  }
  const LossSum sum = self.run([&] {
    const LossSum computed = self.model.loss_and_gradients(span_of(ids), span_of(targets), offsets, recompute);
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const std::span<const float> gradient = self.model.gradient(parameters[i].name);
      std::memcpy(arrays[i], gradient.data(), gradient.size_bytes());
    }
    return computed;
  });
  return nb::make_tuple(sum.sum, sum.count, gradients);
}

std::tuple<double, double, bool> train_step(PyModel& self, const Ids& ids, const Ids& targets, const Offsets& offsets,
                                            double lr, std::tuple<double, double> betas, double eps,
                                            double weight_decay, double clip, bool recompute) {
  const auto [beta1, beta2] = betas;
  const TrainStepOptions options{.lr = lr,
                                 .adamw = {.beta1 = beta1, .beta2 = beta2, .eps = eps, .weight_decay = weight_decay},
                                 .clip = clip,
                                 .recompute = recompute};
  const TrainStepResult result =
      self.run([&] { return self.trained().step(span_of(ids), span_of(targets), offsets, options); });
  return {result.loss, result.grad_norm, result.skipped};
}

nb::object read(PySession& self, const Prompts& prompts) {
  auto [array, data] = new_array<float>({self.session.sequences(), self.owner->model.vocab_size()});
  self.owner->run([&, out = data] { self.session.read(prompts, out); });
  return array;
}

// on_token may be None. An exception in it ends the call.
nb::object generate(PySession& self, const Prompts& prompts, const GenerateOptions& options,
                    const nb::object& on_token) {
  Prompts tokens(static_cast<std::size_t>(self.session.sequences()));
  self.owner->run([&] {
    self.session.generate(prompts, options, [&](int64_t sequence, int32_t id) {
      tokens[static_cast<std::size_t>(sequence)].push_back(id);
      if (on_token.is_none()) return true;
      const nb::gil_scoped_acquire locked;
      return !on_token(sequence, id).equal(nb::bool_(false));
    });
  });
  return nb::cast(tokens);
}

GenerateOptions make_generate_options(int64_t max_tokens, double temperature, int64_t top_k, double top_p, double min_p,
                                      double repetition_penalty, uint64_t seed, const std::vector<int32_t>& end_ids,
                                      int64_t vocab_size) {
  return {.max_tokens = max_tokens,
          .sampling = {.temperature = temperature,
                       .top_k = top_k,
                       .top_p = top_p,
                       .min_p = min_p,
                       .repetition_penalty = repetition_penalty,
                       .seed = seed},
          .end_ids = end_ids,
          .vocab_size = vocab_size};
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<GenerateOptions>(m, "GenerateOptions").def_static("make", make_generate_options);

  nb::class_<PyTokenStream>(m, "TokenStream").def("next", [](PyTokenStream& self) {
    return self.owner->run([&] { return self.stream.next(); });
  });

  nb::class_<PySession>(m, "Session")
      .def_prop_ro("sequences", [](PySession& self) { return self.session.sequences(); })
      .def_prop_ro("bytes", [](PySession& self) { return self.session.bytes(); })
      .def("read", read)
      .def("log_probs",
           [](PySession& self, const Ids& ids, const Ids& targets, const Offsets& offsets) {
             return log_probs(*self.owner, self.session, ids, targets, offsets);
           })
      .def("generate", generate, nb::arg(), nb::arg(), nb::arg().none())
      .def(
          "stream",
          [](PySession& self, const std::vector<int32_t>& prompt, const GenerateOptions& options) {
            TokenStream stream = self.owner->run([&] { return self.session.stream(prompt, options); });
            return PyTokenStream{self.owner, std::move(stream)};
          },
          nb::keep_alive<0, 1>())
      .def("copy",
           [](PySession& self, const std::vector<int64_t>& from) {
             Session copied = self.owner->run([&] { return self.session.copy(from); });
             return PySession{self.owner, std::move(copied)};
           })
      .def("save",
           [](PySession& self, const nb::bytes& name) {
             const std::string path = path_of(name);
             self.owner->run([&] { self.session.save(path); });
           })
      .def("reset", [](PySession& self) { self.owner->run([&] { self.session.reset(); }); });

  nb::class_<PyModel>(m, "Model")
      .def_static("load",
                  [](const nb::bytes& name, const std::string& weights, int threads) {
                    const std::string directory = path_of(name);
                    return wrap([&] { return Model::load(directory, options_of(weights, threads)); });
                  })
      .def_static("from_preset",
                  [](const std::string& preset, uint64_t seed, const std::string& weights, int threads) {
                    return wrap([&] { return Model::from_preset(preset, seed, options_of(weights, threads)); });
                  })
      .def_static("from_config",
                  [](const std::string& config, uint64_t seed, const std::string& weights, int threads) {
                    return wrap([&] { return Model::from_config(config, seed, options_of(weights, threads)); });
                  })
      .def_prop_ro("config_json", [](PyModel& self) { return self.model.config_json(); })
      .def_prop_ro("vocab_size", [](PyModel& self) { return self.model.vocab_size(); })
      .def_prop_ro("parameter_count", [](PyModel& self) { return self.model.parameter_count(); })
      .def_prop_ro("end_ids", [](PyModel& self) { return self.model.end_ids(); })
      .def_prop_ro("parameter_names",
                   [](PyModel& self) {
                     std::vector<std::string> names;
                     for (const ParameterInfo& info : self.model.parameters()) names.push_back(info.name);
                     return names;
                   })
      .def("parameter",
           [](PyModel& self, std::string_view name) {
             const std::vector<float> values = self.run([&] { return self.model.parameter(name); });
             return to_array(shape_of(self.model.parameters(), name), values);
           })
      .def("set_parameter",
           [](PyModel& self, std::string_view name,
              const nb::ndarray<const float, nb::c_contig, nb::device::cpu>& values) {
             self.run([&] { self.model.set_parameter(name, {values.data(), values.size()}); });
           })
      .def("logits", logits)
      .def("log_probs", [](PyModel& self, const Ids& ids, const Ids& targets,
                           const Offsets& offsets) { return log_probs(self, self.model, ids, targets, offsets); })
      .def("score", score)
      .def("loss", loss)
      .def("loss_and_gradients", loss_and_gradients)
      .def("train_step", train_step)
      .def_prop_ro("train_steps",
                   [](PyModel& self) { return self.run([&] { return self.optimizer ? self.optimizer->steps() : 0; }); })
      .def("save_optimizer",
           [](PyModel& self, const nb::bytes& name) {
             const std::string path = path_of(name);
             self.run([&] { self.trained().save(path); });
           })
      .def("load_optimizer",
           [](PyModel& self, const nb::bytes& name) {
             const std::string path = path_of(name);
             self.run([&] { self.trained().load(path); });
           })
      .def("start",
           [](const ModelPointer& self, int64_t sequences) {
             return PySession{self, self->model.start(sequences)};
           })
      .def("load_session",
           [](const ModelPointer& self, const nb::bytes& name) {
             const std::string path = path_of(name);
             Session session = self->run([&] { return self->model.load_session(path); });
             return PySession{self, std::move(session)};
           })
      .def("save",
           [](PyModel& self, const nb::bytes& name, const std::string& dtype, int64_t max_shard_bytes, bool checksums) {
             const std::string directory = path_of(name);
             self.run([&] {
               self.model.save(directory, {.dtype = dtype, .max_shard_bytes = max_shard_bytes, .checksums = checksums});
             });
           });
  m.def("model_presets", model_presets);
}

}  // namespace deltanet
