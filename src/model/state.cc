#include "model/state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "base/hash.h"
#include "base/parallel.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/safetensors.h"

namespace deltanet {
namespace {

constexpr std::string_view kFormat = "deltanet state 2", kFormatBefore = "deltanet state 1";
constexpr const char* kChecksum = "checksum";

int64_t size_of(const std::vector<int64_t>& shape) {
  if (shape.empty()) return 0;
  int64_t size = 1;
  for (int64_t extent : shape) size *= extent;
  return size;
}

// The arrays of a layer by name, for saving and loading.
template <class Layer>
auto arrays_of(Layer& layer) {
  return std::array{std::pair{"S", &layer.S}, std::pair{"A", &layer.A}, std::pair{"P", &layer.P},
                    std::pair{"G", &layer.G}, std::pair{"conv", &layer.conv}};
}

StoredTensor stored(const std::string& name, const std::vector<float>& values) {
  return {.name = name,
          .dtype = DType::kF32,
          .shape = {static_cast<int64_t>(values.size())},
          .data = reinterpret_cast<const std::byte*>(values.data()),
          .bytes = static_cast<int64_t>(values.size() * sizeof(float))};
}

StoredTensor stored(const std::string& name, const std::vector<int64_t>& values) {
  return {.name = name,
          .dtype = DType::kI64,
          .shape = {static_cast<int64_t>(values.size())},
          .data = reinterpret_cast<const std::byte*>(values.data()),
          .bytes = static_cast<int64_t>(values.size() * sizeof(int64_t))};
}

// Of everything that the file says but this: its metadata, and names, types, shapes and values of its tensors, which
// may be in any order.
uint64_t checksum(std::span<const StoredTensor> tensors, const SafetensorsFile::Metadata& metadata) {
  const auto add_part = [](ContentHash& hash, std::string_view text) {
    const uint64_t size = text.size();
    hash.add(&size, sizeof size);
    hash.add(text);
  };
  ContentHash of_metadata;
  for (const auto& [key, value] : metadata) {
    if (key == kChecksum) continue;
    add_part(of_metadata, key);
    add_part(of_metadata, value);
  }
  constexpr int64_t kPiece = 1 << 20;
  std::vector<std::byte> piece(kPiece);
  uint64_t sum = of_metadata.value();
  for (const StoredTensor& tensor : tensors) {
    ContentHash hash;
    add_part(hash, tensor.name);
    add_part(hash, dtype_name(tensor.dtype));
    add_part(hash, shape_text(tensor.shape));
    for (int64_t begin = 0; begin < tensor.bytes; begin += kPiece) {
      const int64_t bytes = std::min(kPiece, tensor.bytes - begin);
      tensor.read(begin, bytes, piece.data());
      hash.add(piece.data(), static_cast<std::size_t>(bytes));
    }
    sum ^= hash.value();
  }
  return sum;
}

// The tensors of a file, each checked for its type and, if given, its size.
class StateFile {
 public:
  explicit StateFile(const std::string& path) : file_(path) {}

  std::string text(const std::string& key) const {
    const auto found = file_.metadata().find(key);
    return found == file_.metadata().end() ? std::string() : found->second;
  }

  uint64_t sum() const { return checksum(file_.tensors(), file_.metadata()); }

  template <class T>
  std::vector<T> values(const std::string& name, DType dtype) const {
    const StoredTensor* tensor = file_.find(name);
    if (!tensor || tensor->dtype != dtype) fail(name, "missing or of another type");
    std::vector<T> out(static_cast<std::size_t>(tensor->count()));
    tensor->read(0, tensor->bytes, out.data());
    return out;
  }

  void read(const std::string& name, std::vector<float>& into) const {
    std::vector<float> read = values<float>(name, DType::kF32);
    if (read.size() != into.size()) fail(name, "has another size than the model asks for");
    into = std::move(read);
  }

  [[noreturn]] void fail(const std::string& what, const std::string& why) const {
    throw Error("[state] " + file_.name() + ": " + what + ": " + why);
  }

 private:
  SafetensorsFile file_;
};

}  // namespace

State::State(const Layout& layout, int64_t sequences) : sequences_(sequences) {
  if (sequences < 1) throw Error("[state] sequences: given " + std::to_string(sequences) + "; expected at least 1");
  const Config& config = layout.config();
  pending.resize(static_cast<std::size_t>(sequences));
  read_.assign(static_cast<std::size_t>(sequences), std::vector<bool>(static_cast<std::size_t>(config.vocab_size)));
  for (const LayerLayout& at : layout.layers()) {
    LayerState layer;
    if (at.attention_config) {
      layer.cache = nn::KvCache(sequences, at.attention.kv_heads, at.attention.head_dim, at.attention_config->window);
    } else {
      const Shape shape = recurrence_shape(config, at.recurrence, 1, sequences);
      const auto size = [&](const char* name) {
        return static_cast<std::size_t>(size_of(output_shape(config.spec, name, shape)));
      };
      layer.S.resize(size("S_final"));
      layer.A.resize(size("A_final"));
      layer.P.resize(size("P_final"));
      layer.G.resize(size("G_final"));
      const int64_t channels = at.recurrence.q.width + at.recurrence.k.width + at.recurrence.v.width;
      if (config.conv_size > 1)
        layer.conv.resize(static_cast<std::size_t>(sequences * (config.conv_size - 1) * channels));
    }
    layers_.push_back(std::move(layer));
  }
}

void State::reset() {
  fresh_ = true;
  for (auto& ids : pending) ids.clear();
  for (auto& was_read : read_) was_read.assign(was_read.size(), false);
  for (LayerState& layer : layers_) {
    for (int64_t n = 0; n < static_cast<int64_t>(layer.cache.sequences.size()); ++n) layer.cache.clear(n);
  }
}

void State::resize(int64_t sequences) {
  reset();
  pending.resize(static_cast<std::size_t>(sequences));
  read_.resize(static_cast<std::size_t>(sequences), std::vector<bool>(read_.front().size()));
  for (LayerState& layer : layers_) {
    for (const auto& [name, values] : arrays_of(layer)) {
      values->resize(values->size() / static_cast<std::size_t>(sequences_) * static_cast<std::size_t>(sequences));
    }
    if (!layer.cache.sequences.empty()) layer.cache.sequences.resize(static_cast<std::size_t>(sequences));
  }
  sequences_ = sequences;
}

void State::copy_sequence(const State& from, int64_t source, int64_t target) {
  fresh_ = from.fresh_;
  copy_contents(from, source, target);
}

void State::copy_sequences(const State& from, std::span<const int64_t> sources, int threads) {
  fresh_ = from.fresh_;
  parallel_for(threads, std::ssize(sources), [&](int64_t i) { copy_contents(from, sources[i], i); });
}

void State::copy_contents(const State& from, int64_t source, int64_t target) {
  pending[target] = from.pending[source];
  read_[target] = from.read_[source];
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const auto read = arrays_of(from.layers_[i]);
    const auto write = arrays_of(layers_[i]);
    for (std::size_t k = 0; k < read.size(); ++k) {
      const auto size = static_cast<int64_t>(read[k].second->size()) / from.sequences_;
      std::copy_n(read[k].second->data() + source * size, size, write[k].second->data() + target * size);
    }
    if (!layers_[i].cache.sequences.empty()) {
      layers_[i].cache.sequences[target] = from.layers_[i].cache.sequences[source];
    }
  }
}

void State::note(std::span<const int32_t> ids, std::span<const int64_t> offsets) {
  fresh_ = false;
  for (std::size_t n = 0; n < read_.size(); ++n) {
    for (int64_t i = offsets[n]; i < offsets[n + 1]; ++i) read_[n][static_cast<std::size_t>(ids[i])] = true;
  }
}

std::vector<int32_t> State::ids_read(int64_t n) const {
  std::vector<int32_t> ids;
  for (std::size_t id = 0; id < read_[n].size(); ++id) {
    if (read_[n][id]) ids.push_back(static_cast<int32_t>(id));
  }
  return ids;
}

int64_t State::bytes() const {
  int64_t bytes = 0;
  for (const LayerState& layer : layers_) {
    for (const auto& [name, values] : arrays_of(layer)) bytes += static_cast<int64_t>(values->size() * sizeof(float));
    bytes += layer.cache.bytes();
  }
  return bytes;
}

void State::save(const std::string& path, uint64_t fingerprint) const {
  std::vector<StoredTensor> tensors;
  std::vector<std::vector<int64_t>> integers;  // alive until written
  integers.reserve(static_cast<std::size_t>(sequences_) * (layers_.size() + 2));
  const auto add_integers = [&](const std::string& name, std::vector<int64_t> values) {
    integers.push_back(std::move(values));
    tensors.push_back(stored(name, integers.back()));
  };
  for (int64_t n = 0; n < sequences_; ++n) {
    const std::vector<int32_t> ids = ids_read(n);
    add_integers("pending." + std::to_string(n), {pending[n].begin(), pending[n].end()});
    add_integers("read." + std::to_string(n), {ids.begin(), ids.end()});
  }
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    for (const auto& [name, values] : arrays_of(layers_[i])) {
      if (!values->empty()) tensors.push_back(stored(prefix + name, *values));
    }
    const auto& cached = layers_[i].cache.sequences;
    for (std::size_t n = 0; n < cached.size(); ++n) {
      const std::string at = prefix + "cache." + std::to_string(n) + ".";
      add_integers(at + "length", {cached[n].length, cached[n].capacity});
      tensors.push_back(stored(at + "k", cached[n].k));
      tensors.push_back(stored(at + "v", cached[n].v));
    }
  }
  SafetensorsFile::Metadata metadata = {{"format", std::string(kFormat)},
                                        {"model", hex_text(fingerprint)},
                                        {"sequences", std::to_string(sequences_)},
                                        {"fresh", fresh_ ? "true" : "false"}};
  metadata[kChecksum] = hex_text(checksum(tensors, metadata));
  write_safetensors(path, tensors, metadata);
}

State State::load(const std::string& path, const Layout& layout, uint64_t fingerprint) {
  const StateFile file(path);
  if (file.text("format") == kFormatBefore) {
    file.fail("format", "written by an earlier version, which did not protect all of it (" +
                            std::string(kFormatBefore) + "); read the text again and save its state anew");
  }
  if (file.text("format") != kFormat) file.fail("format", "not a saved state; --save-state writes one");
  if (file.text(kChecksum) != hex_text(file.sum())) {
    file.fail(kChecksum, "the file is damaged: it is not what was saved");
  }
  if (file.text("model") != hex_text(fingerprint)) {
    file.fail("model", "the state was saved by another model (fingerprint " + file.text("model") + ", this one has " +
                           hex_text(fingerprint) + "); load it with the checkpoint that made it");
  }
  const std::string count = file.text("sequences");
  int64_t sequences = 0;
  std::from_chars(count.data(), count.data() + count.size(), sequences);
  constexpr int64_t kMostSequences = 1 << 20;
  if (sequences < 1 || sequences > kMostSequences) file.fail("sequences", "given " + count);

  // Read before the state is made: a count that the file does not keep should not cost memory.
  const auto ids_of = [&](const std::string& name) {
    std::vector<int32_t> ids;
    for (int64_t id : file.values<int64_t>(name, DType::kI64)) {
      if (id < 0 || id >= layout.config().vocab_size) file.fail(name, "an id outside of the vocabulary");
      ids.push_back(static_cast<int32_t>(id));
    }
    return ids;
  };
  std::vector<std::vector<int32_t>> pending, read;
  for (int64_t n = 0; n < sequences; ++n) {
    pending.push_back(ids_of("pending." + std::to_string(n)));
    read.push_back(ids_of("read." + std::to_string(n)));
  }
  State state(layout, sequences);
  state.pending = std::move(pending);
  for (int64_t n = 0; n < sequences; ++n) {
    for (const int32_t id : read[n]) state.read_[n][static_cast<std::size_t>(id)] = true;
  }
  state.fresh_ = file.text("fresh") == "true";
  for (std::size_t i = 0; i < state.layers_.size(); ++i) {
    const std::string prefix = "layers." + std::to_string(i) + ".";
    for (const auto& [name, values] : arrays_of(state.layers_[i])) {
      if (!values->empty()) file.read(prefix + name, *values);
    }
    nn::KvCache& cache = state.layers_[i].cache;
    for (std::size_t n = 0; n < cache.sequences.size(); ++n) {
      const std::string at = prefix + "cache." + std::to_string(n) + ".";
      const auto lengths = file.values<int64_t>(at + "length", DType::kI64);
      auto k = file.values<float>(at + "k", DType::kF32), v = file.values<float>(at + "v", DType::kF32);
      if (lengths.size() != 2 ||
          !cache.restore(static_cast<int64_t>(n), lengths[0], lengths[1], std::move(k), std::move(v))) {
        file.fail(at, "the sizes of the cache contradict each other");
      }
    }
  }
  return state;
}

StateBefore::StateBefore(State& state) : state_(&state) {
  if (state.fresh()) return;
  std::vector<nn::KvCache> aside(state.layers_.size());
  lengths_.resize(state.layers_.size());
  for (std::size_t i = 0; i < aside.size(); ++i) {
    nn::KvCache& cache = state.layers_[i].cache;
    if (cache.window > 0) continue;
    for (const auto& sequence : cache.sequences) lengths_[i].push_back(sequence.length);
    std::swap(cache, aside[i]);
  }
  const auto back = [&] {
    for (std::size_t i = 0; i < aside.size(); ++i) {
      if (!lengths_[i].empty()) std::swap(state.layers_[i].cache, aside[i]);
    }
  };
  try {
    copy_ = state;
  } catch (...) {
    back();
    throw;
  }
  back();
}

StateBefore::~StateBefore() {
  if (!state_) return;
  if (!copy_) {
    state_->reset();
    return;
  }
  for (std::size_t i = 0; i < lengths_.size(); ++i) {
    if (lengths_[i].empty()) continue;
    nn::KvCache& cache = state_->layers_[i].cache;
    for (std::size_t n = 0; n < lengths_[i].size(); ++n) cache.sequences[n].length = lengths_[i][n];
    std::swap(copy_->layers_[i].cache, cache);
  }
  *state_ = std::move(*copy_);
}

}  // namespace deltanet
