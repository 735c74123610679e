#include "train/run_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <set>
#include <system_error>

#include "base/file.h"
#include "base/parallel.h"
#include "data/tokenizer_files.h"
#include "deltanet/error.h"
#include "model/checkpoint.h"
#include "model/save_weights.h"
#include "train/training_data.h"

namespace deltanet {
namespace {

namespace fs = std::filesystem;
using Metadata = SafetensorsFile::Metadata;

constexpr const char* kTrainerFile = "trainer.safetensors";
constexpr std::string_view kStep = "step-", kUnfinished = ".unfinished";

[[noreturn]] void fail(const fs::path& path, const std::string& what) {
  throw Error("[checkpoint] " + path.string() + ": " + what);
}

template <class T>
std::string text_of(T value) {
  char text[64];
  return {text, std::to_chars(text, std::end(text), value).ptr};  // reads back the same, also inf and nan
}

template <class T>
T value_of(const Metadata& metadata, const std::string& name, const fs::path& file) {
  const auto found = metadata.find(name);
  T value{};
  if (found == metadata.end()) fail(file, name + ": missing");
  const std::string& text = found->second;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) fail(file, name + ": given \"" + text + "\"");
  return value;
}

// ---- checksum

// Of many floats, block by block, so that threads share the work; order matters.
class Checksum {
 public:
  explicit Checksum(int threads) : threads_(threads) {}

  void add(const void* data, int64_t floats) {
    constexpr int64_t kBlock = int64_t{1} << 18;
    std::vector<uint64_t> parts(static_cast<std::size_t>((floats + kBlock - 1) / kBlock));
    const auto* bytes = static_cast<const unsigned char*>(data);
    parallel_blocks(threads_, floats, kBlock, [&](int64_t begin, int64_t end) {
      uint64_t hash = kStart;
      for (int64_t i = begin; i < end; ++i) {
        uint32_t word;
        std::memcpy(&word, bytes + 4 * i, sizeof word);
        hash = mix(hash, word);
      }
      parts[static_cast<std::size_t>(begin / kBlock)] = hash;
    });
    for (const uint64_t part : parts) hash_ = mix(hash_, part);
  }
  uint64_t value() const { return hash_; }

 private:
  static constexpr uint64_t kStart = 0xcbf29ce484222325u;
  // FNV-1a on words; the shift brings the high bits, where the product is well mixed, back into play.
  static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * 0x100000001b3u;
    return hash ^ hash >> 32;
  }

  int threads_;
  uint64_t hash_ = kStart;
};

// ---- the state of a run as text

Metadata metadata_of(const Trainer& trainer, uint64_t checksum) {
  const TrainState& state = trainer.state();
  Metadata metadata = {{"format", "deltanet trainer 1"},
                       {"step", text_of(state.step)},
                       {"samples", text_of(state.step * trainer.config().batch_size)},
                       {"optimizer_steps", text_of(state.optimizer_steps)},
                       {"bad_steps", text_of(state.bad_steps)},
                       {"bad_in_a_row", text_of(state.bad_in_a_row)},
                       {"last_good_loss", text_of(state.last_good_loss)},
                       {"best_loss", text_of(state.best_loss)},
                       {"best_step", text_of(state.best_step)},
                       {"checksum", text_of(checksum)}};
  for (const auto& [key, value] : key_values(trainer.config(), /*identity=*/true)) metadata["config." + key] = value;
  return metadata;
}

TrainState state_of(const Metadata& metadata, const fs::path& file) {
  const auto integer = [&](const char* name) { return value_of<int64_t>(metadata, name, file); };
  return {.step = integer("step"),
          .optimizer_steps = integer("optimizer_steps"),
          .bad_steps = integer("bad_steps"),
          .bad_in_a_row = integer("bad_in_a_row"),
          .last_good_loss = value_of<double>(metadata, "last_good_loss", file),
          .best_loss = value_of<double>(metadata, "best_loss", file),
          .best_step = integer("best_step")};
}

void check_same_config(const Metadata& metadata, const TrainConfig& config, const fs::path& file) {
  std::string differences;
  for (const auto& [key, value] : key_values(config, /*identity=*/true)) {
    const auto before = metadata.find("config." + key);
    const std::string old = before == metadata.end() ? "missing" : before->second;
    if (old != value) differences += (differences.empty() ? "" : ", ") + key + " was " + old + " and is " + value;
  }
  if (!differences.empty()) fail(file, "belongs to a run with another config: " + differences);
}

// ---- directories

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

// Steps of the directories that are complete, in order; leftovers of unfinished ones are removed.
std::vector<int64_t> complete_steps(const fs::path& out) {
  std::vector<int64_t> steps;
  std::vector<fs::path> unfinished;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStep) || !entry.is_directory()) continue;
    int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
    if (error != std::errc()) continue;
    const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
    if (rest == kUnfinished) unfinished.push_back(entry.path());
    if (rest.empty()) steps.push_back(step);
  }
  for (const fs::path& path : unfinished) fs::remove_all(path);
  std::sort(steps.begin(), steps.end());
  return steps;
}

void remove_step(const fs::path& out, int64_t step) {
  // First under a name that does not count, so that a crash in between leaves no half of a checkpoint.
  const fs::path from = step_directory(out, step), to = from.string() + std::string(kUnfinished);
  fs::rename(from, to);
  fs::remove_all(to);
}

std::map<std::string, std::string> tokenizer_files(const TrainConfig& config) {
  try {
    const std::string tokenizer = chosen_tokenizer(config, config.model_config().vocab_size);
    return tokenizer.empty() ? data::NamedFiles() : data::read_tokenizer_files(tokenizer);
  } catch (const std::exception&) {
    return {};  // data that are gone since the run began are no reason to lose a checkpoint
  }
}

void add_weights(const Weights& weights, Checksum& checksum) {
  for (const Parameter& parameter : weights.layout().parameters()) {
    const float* values = parameter.is_matrix ? weights.matrices() : weights.vectors();
    checksum.add(values + parameter.offset, parameter.size);
  }
}

void write_step(const fs::path& directory, Trainer& trainer, const std::vector<StoredTensor>& moments) {
  Checksum checksum(trainer.threads());
  add_weights(trainer.weights(), checksum);
  for (const StoredTensor& moment : moments) checksum.add(moment.data, moment.count());
  save_weights(trainer.weights(), directory, {}, tokenizer_files(trainer.config()), trainer.threads());
  write_safetensors(directory / kTrainerFile, moments, metadata_of(trainer, checksum.value()));
}

}  // namespace

fs::path step_directory(const fs::path& out, int64_t step) { return out / (std::string(kStep) + std::to_string(step)); }

std::optional<int64_t> named_step(const fs::path& out, const char* name) {
  if (!fs::exists(out / name)) return {};
  const std::string text = read_file(out / name, 64);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc() || step < 0 || std::string_view(end) != "\n") {
    fail(out / name, "given \"" + text + "\"; expected the number of a step");
  }
  return step;
}

void save_run_checkpoint(const fs::path& out, Trainer& trainer) {
  Communicator& processes = trainer.processes();
  const bool writes = processes.rank() == 0;
  std::vector<std::vector<float>> copies;
  std::vector<StoredTensor> moments;
  for (const Trainer::Moment& moment : trainer.moments()) {
    const int64_t size = moment.begins->back();
    const float* values = moment.own->data();
    if (processes.size() > 1) {
      std::vector<float>& copy = copies.emplace_back(writes ? static_cast<std::size_t>(size) : 0);
      processes.gather(moment.own->data(), copy.data(), *moment.begins);
      values = copy.data();
    }
    moments.push_back({.name = std::string(moment.name),
                       .shape = {size},
                       .data = reinterpret_cast<const std::byte*>(values),
                       .bytes = size * static_cast<int64_t>(sizeof(float))});
  }
  if (!writes) return;

  const int64_t step = trainer.state().step;
  const fs::path target = step_directory(out, step), unfinished = target.string() + std::string(kUnfinished);
  try {
    const std::vector<int64_t> before = complete_steps(out);
    if (std::find(before.begin(), before.end(), step) == before.end()) {
      write_step(unfinished, trainer, moments);
      fs::rename(unfinished, target);
      sync_directory(out);
    }
    write_text(out / "last", std::to_string(step) + "\n");
    if (trainer.state().best_step == step) write_text(out / "best", std::to_string(step) + "\n");

    std::vector<int64_t> steps = complete_steps(out);
    const auto best = named_step(out, "best");
    for (int64_t surplus = static_cast<int64_t>(steps.size()) - trainer.config().keep_checkpoints; surplus > 0;
         --surplus) {
      if (best != steps.front()) remove_step(out, steps.front());
      steps.erase(steps.begin());
    }
  } catch (const fs::filesystem_error& error) {
    fail(target, error.code().message());
  } catch (...) {
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);  // gives a full disk its space back
    throw;
  }
}

void load_run_checkpoint(const fs::path& out, Trainer& trainer) {
  const auto last = named_step(out, "last");
  if (!last) fail(out, "has no checkpoint to resume from");
  const fs::path directory = step_directory(out, *last);
  const SafetensorsFile file(directory / kTrainerFile);
  check_same_config(file.metadata(), trainer.config(), directory / kTrainerFile);
  const TrainState state = state_of(file.metadata(), directory / kTrainerFile);
  if (state.step != *last) fail(directory, "holds step " + std::to_string(state.step));

  trainer.weights().load(CheckpointReader(directory), trainer.threads());
  Checksum checksum(trainer.threads());
  add_weights(trainer.weights(), checksum);
  for (const Trainer::Moment& moment : trainer.moments()) {
    const StoredTensor* stored = file.find(moment.name);
    if (!stored || stored->dtype != DType::kF32 || stored->count() != moment.begins->back()) {
      fail(directory / kTrainerFile, std::string(moment.name) + ": missing or of another size; expected " +
                                         std::to_string(moment.begins->back()) + " floats");
    }
    checksum.add(stored->data, stored->count());
    const int64_t begin = (*moment.begins)[static_cast<std::size_t>(trainer.processes().rank())];
    std::memcpy(moment.own->data(), stored->data + begin * static_cast<int64_t>(sizeof(float)),
                moment.own->size() * sizeof(float));
  }
  if (checksum.value() != value_of<uint64_t>(file.metadata(), "checksum", directory / kTrainerFile)) {
    fail(directory, "the checksum differs: the files were changed or damaged");
  }
  trainer.restore(state);
  if (trainer.processes().rank() == 0) {
    // Complete directories beyond `last` come from a crash before it was renewed; they will be written again.
    for (const int64_t step : complete_steps(out)) {
      if (step > *last) remove_step(out, step);
    }
  }
}

}  // namespace deltanet
