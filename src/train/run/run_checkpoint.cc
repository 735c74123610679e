#include "train/run/run_checkpoint.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>
#include <system_error>

#include "base/file.h"
#include "base/parallel.h"
#include "data/tokenizer/tokenizer_files.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"
#include "model/save_weights.h"
#include "train/run/training_data.h"

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

// As long for every value: it takes the place of another one.
std::string fixed_text_of(uint64_t value) {
  const std::string text = text_of(value);
  return std::string(std::numeric_limits<uint64_t>::digits10 + 1 - text.size(), '0') + text;
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

  static constexpr int64_t kBlock = int64_t{1} << 18;  // floats

  // What is added in parts counts as what is added at once if all parts but the last hold whole blocks.
  void add(const void* data, int64_t floats) {
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

constexpr const char* kFormat = "deltanet trainer 2";
constexpr const char* kIdentity = "run.";  // in front of the names of a RunIdentity

Metadata metadata_of(const Trainer& trainer, const RunIdentity& identity, uint64_t checksum) {
  const TrainState& state = trainer.state();
  Metadata metadata = {{"format", kFormat},
                       {"step", text_of(state.step)},
                       {"steps", text_of(trainer.config().steps)},
                       {"optimizer_steps", text_of(state.optimizer_steps)},
                       {"bad_steps", text_of(state.bad_steps)},
                       {"bad_in_a_row", text_of(state.bad_in_a_row)},
                       {"last_good_loss", text_of(state.last_good_loss)},
                       {"best_loss", text_of(state.best_loss)},
                       {"best_step", text_of(state.best_step)},
                       {"checksum", fixed_text_of(checksum)}};
  for (const auto& [name, value] : identity) metadata[kIdentity + name] = value;
  return metadata;
}

void check_format(const Metadata& metadata, const fs::path& file) {
  const auto found = metadata.find("format");
  const std::string given = found == metadata.end() ? "none" : found->second;
  if (given != kFormat) fail(file, "format: given " + given + "; expected " + kFormat);
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

void check_identity(const Metadata& metadata, const RunIdentity& now, const fs::path& file) {
  RunIdentity before;
  for (const auto& [name, value] : metadata) {
    if (name.starts_with(kIdentity)) before[name.substr(std::string_view(kIdentity).size())] = value;
  }
  const std::string text = differences(before, now);
  if (!text.empty()) fail(file, "belongs to another run: " + text);
}

// Steps may be added or left out as long as this does not change what has been done.
void check_steps(const TrainConfig& config, const TrainState& state, int64_t steps_before, const fs::path& file) {
  const Schedule now = config.schedule_of_steps();
  Schedule before = now;
  before.steps = steps_before;
  for (int64_t step = 0; step < state.step; ++step) {
    if (learning_rate(before, step) == learning_rate(now, step)) continue;
    fail(file, "steps was " + std::to_string(steps_before) + " and is " + std::to_string(config.steps) +
                   ": with the schedule " + config.schedule + " step " + std::to_string(step + 1) +
                   ", which is done, would have had another learning rate. A constant schedule can always go on, wsd "
                   "until its decay begins; otherwise start a new run from the weights: init_from = \"" +
                   file.parent_path().string() + "\"");
  }
}

// ---- directories

void write_text(const fs::path& path, const std::string& text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

struct Steps {
  std::vector<int64_t> complete;  // in order
  std::vector<fs::path> unfinished;
};

Steps find_steps(const fs::path& out) {
  Steps found;
  for (const auto& entry : fs::directory_iterator(out)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kStep) || !entry.is_directory()) continue;
    int64_t step = 0;
    const auto [end, error] = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
    if (error != std::errc()) continue;
    const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
    if (rest == kUnfinished) found.unfinished.push_back(entry.path());
    if (rest.empty()) found.complete.push_back(step);
  }
  std::sort(found.complete.begin(), found.complete.end());
  return found;
}

// First under a name that does not count, so that a crash in between leaves no half of a checkpoint. What cannot be
// removed stays: that is no reason to end a run.
void remove_step(const fs::path& out, int64_t step) {
  const fs::path from = step_directory(out, step), to = from.string() + std::string(kUnfinished);
  std::error_code error;
  fs::remove_all(to, error);
  fs::rename(from, to, error);
  if (!error) fs::remove_all(to, error);
}

void remove_unfinished(const fs::path& out) {
  std::error_code ignored;
  for (const fs::path& path : find_steps(out).unfinished) fs::remove_all(path, ignored);
}

void keep_newest_and_best(const fs::path& out, int64_t count) {
  const std::vector<int64_t> steps = find_steps(out).complete;
  const auto best = named_step(out, "best");
  for (std::size_t i = 0; static_cast<int64_t>(i) + count < static_cast<int64_t>(steps.size()); ++i) {
    if (best != steps[i]) remove_step(out, steps[i]);
  }
}

std::map<std::string, std::string> tokenizer_files(const TrainConfig& config) {
  try {
    const std::string tokenizer = chosen_tokenizer(config, config.model_config().vocab_size);
    return tokenizer.empty() ? data::NamedFiles() : data::read_tokenizer_files(tokenizer);
  } catch (const std::exception&) {
    return {};  // data that are gone since the run began are no reason to lose a checkpoint
  }
}

// What to do when a checkpoint cannot be used.
std::string others_than(const fs::path& out, int64_t step) {
  std::string others;
  for (const int64_t other : find_steps(out).complete) {
    if (other < step) others += (others.empty() ? "" : ", ") + std::to_string(other);
  }
  return others.empty()
             ? ""
             : "; to go on from an earlier step (" + others + "), write its number into " + (out / "last").string();
}

void add_weights(const Weights& weights, Checksum& checksum) {
  for (const Parameter& parameter : weights.layout().parameters()) {
    const float* values = parameter.is_matrix ? weights.matrices() : weights.vectors();
    checksum.add(values + parameter.offset, parameter.size);
  }
}

// Moments [begin, end), of which each process owns a part, to `all` of the first one. All processes call it.
void gather_part(Communicator& processes, const ModelAdamW::Moment& moment, int64_t begin, int64_t end, float* all) {
  std::vector<int64_t> begins;
  for (const int64_t first : *moment.begins) begins.push_back(std::clamp(first, begin, end) - begin);
  const int64_t own = (*moment.begins)[static_cast<std::size_t>(processes.rank())];
  const int64_t skipped = std::clamp(begin - own, int64_t{0}, static_cast<int64_t>(moment.own->size()));
  processes.gather(moment.own->data() + skipped, all, begins);
}

// The first process asks for the moments of all a piece at a time, so that it needs no room for all of them.
void send_moments(Trainer& trainer) {
  for (const ModelAdamW::Moment& moment : trainer.moments()) {
    const int64_t size = moment.begins->back();
    for (int64_t begin = 0; begin < size; begin += kPieceValues) {
      gather_part(trainer.processes(), moment, begin, std::min(size, begin + kPieceValues), nullptr);
    }
  }
}

void write_moments(const fs::path& path, Trainer& trainer, const RunIdentity& identity, Checksum& checksum) {
  static_assert(kPieceValues % Checksum::kBlock == 0);
  constexpr int64_t kFloat = sizeof(float);
  std::vector<StoredTensor> tensors;
  for (const ModelAdamW::Moment& moment : trainer.moments()) {
    const int64_t size = moment.begins->back();
    tensors.push_back({.name = std::string(moment.name), .shape = {size}, .bytes = size * kFloat});
    tensors.back().source = [&, moment](int64_t begin, int64_t bytes, void* to) {
      gather_part(trainer.processes(), moment, begin / kFloat, (begin + bytes) / kFloat, static_cast<float*>(to));
      checksum.add(to, bytes / kFloat);
    };
  }
  AtomicFile file(path);
  write_safetensors(file, tensors, metadata_of(trainer, identity, 0), DType::kF32,
                    [&] { return metadata_of(trainer, identity, checksum.value()); });
  file.commit();
}

void write_step(const fs::path& directory, Trainer& trainer, const RunIdentity& identity) {
  save_weights(trainer.weights(), directory, {}, tokenizer_files(trainer.config()), trainer.threads());
  Checksum checksum(trainer.threads());
  add_weights(trainer.weights(), checksum);
  write_moments(directory / kTrainerFile, trainer, identity, checksum);
}

// Of files that cannot be read, or hold something else than was written.
struct Damage : Error {
  using Error::Error;
};

void read_values(const fs::path& directory, const SafetensorsFile& file, Trainer& trainer) {
  const fs::path trainer_file = directory / kTrainerFile;
  trainer.weights().load(CheckpointReader(directory), trainer.threads());
  Checksum checksum(trainer.threads());
  add_weights(trainer.weights(), checksum);
  std::vector<float> piece;
  for (const ModelAdamW::Moment& moment : trainer.moments()) {
    const StoredTensor* stored = file.find(moment.name);
    if (!stored || stored->dtype != DType::kF32 || stored->count() != moment.begins->back()) {
      fail(trainer_file, std::string(moment.name) + ": missing or of another size; expected " +
                             std::to_string(moment.begins->back()) + " floats");
    }
    const int64_t own_begin = (*moment.begins)[static_cast<std::size_t>(trainer.processes().rank())];
    const int64_t own_end = own_begin + static_cast<int64_t>(moment.own->size());
    for (int64_t begin = 0; begin < stored->count(); begin += kPieceValues) {
      const int64_t end = std::min(stored->count(), begin + kPieceValues);
      piece.resize(static_cast<std::size_t>(end - begin));
      read_floats(*stored, begin, end - begin, piece.data());
      checksum.add(piece.data(), end - begin);
      const int64_t first = std::max(begin, own_begin), last = std::min(end, own_end);
      if (first < last) std::copy_n(piece.data() + first - begin, last - first, moment.own->data() + first - own_begin);
    }
  }
  if (checksum.value() != value_of<uint64_t>(file.metadata(), "checksum", trainer_file)) {
    fail(directory, "the checksum differs: the files were changed or damaged");
  }
}

template <class Read>
auto or_damage(const Read& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Damage(error.what());
  }
}

void read_step(const fs::path& directory, int64_t step, Trainer& trainer, const RunIdentity& identity) {
  const fs::path trainer_file = directory / kTrainerFile;
  const auto file = or_damage([&] { return std::make_unique<SafetensorsFile>(trainer_file); });
  check_format(file->metadata(), trainer_file);
  check_identity(file->metadata(), identity, trainer_file);
  const TrainState state = or_damage([&] { return state_of(file->metadata(), trainer_file); });
  if (state.step != step) fail(directory, "holds step " + std::to_string(state.step));
  check_steps(trainer.config(), state, value_of<int64_t>(file->metadata(), "steps", trainer_file), trainer_file);
  or_damage([&] { read_values(directory, *file, trainer); });
  trainer.restore(state);
}

}  // namespace

fs::path step_directory(const fs::path& out, int64_t step) { return out / (std::string(kStep) + std::to_string(step)); }

std::optional<int64_t> named_step(const fs::path& out, const char* name) {
  if (!fs::exists(out / name)) return {};
  const std::string text = read_file(out / name, 64);
  int64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  const std::string_view rest(end);
  if (error != std::errc() || step < 0 || !(rest.empty() || rest == "\n")) {
    fail(out / name, "given \"" + text + "\"; expected the number of a step");
  }
  return step;
}

std::optional<int64_t> step_to_resume(const fs::path& out) {
  if (!fs::is_directory(out)) return {};
  const std::vector<int64_t> complete = find_steps(out).complete;
  const auto last = named_step(out, "last");
  if (last && std::binary_search(complete.begin(), complete.end(), *last)) return last;
  return complete.empty() ? std::optional<int64_t>() : complete.back();
}

std::string why_another_step(const fs::path& out) {
  const auto last = fs::is_directory(out) ? named_step(out, "last") : std::nullopt;
  const auto taken = step_to_resume(out);
  if (last == taken) return "";
  const std::string named =
      last ? "names step " + std::to_string(*last) + ", whose checkpoint is not there" : "is missing";
  if (!taken) {
    fail(out / "last", named + ", and no other one is; expected " + step_directory(out, *last).filename().string() +
                           ". To begin anew, remove this file or name another folder");
  }
  return (out / "last").string() + " " + named + ": going on from step " + std::to_string(*taken) +
         ", the newest that is complete";
}

int64_t count_checkpoints(const fs::path& out) { return static_cast<int64_t>(find_steps(out).complete.size()); }

void save_run_checkpoint(const fs::path& out, Trainer& trainer, const RunIdentity& identity) {
  Communicator& processes = trainer.processes();
  if (processes.rank() != 0) return send_moments(trainer);

  const int64_t step = trainer.state().step;
  const fs::path target = step_directory(out, step), unfinished = target.string() + std::string(kUnfinished);
  const auto give_space_back = [&] {  // to a full disk
    std::error_code ignored;
    fs::remove_all(unfinished, ignored);
  };
  try {
    remove_unfinished(out);
    if (fs::exists(target)) remove_step(out, step);  // newer than `last` was, and could not be removed then
    write_step(unfinished, trainer, identity);
    fs::rename(unfinished, target);
    sync_directory(out);
    write_text(out / "last", std::to_string(step) + "\n");
    if (trainer.state().best_step == step) write_text(out / "best", std::to_string(step) + "\n");
    // After steps that failed the weights may be spoilt, and what is there may be all that is good.
    if (trainer.state().bad_in_a_row == 0) keep_newest_and_best(out, trainer.config().keep_checkpoints);
  } catch (const fs::filesystem_error& error) {
    give_space_back();
    fail(target, error.code().message());
  } catch (...) {
    give_space_back();
    throw;
  }
}

void load_run_checkpoint(const fs::path& out, Trainer& trainer, const RunIdentity& identity) {
  const auto last = step_to_resume(out);
  if (!last) fail(out, "has no checkpoint to resume from");
  try {
    read_step(step_directory(out, *last), *last, trainer, identity);
  } catch (const Damage& damage) {
    throw Error(damage.what() + others_than(out, *last));
  }
}

void mend_run_folder(const fs::path& out, const TrainState& state) {
  remove_unfinished(out);
  for (const int64_t step : find_steps(out).complete) {
    if (step > state.step) remove_step(out, step);  // newer than `last`: will be written again
  }
  write_text(out / "last", std::to_string(state.step) + "\n");
  if (state.best_step > 0 && fs::exists(step_directory(out, state.best_step))) {
    write_text(out / "best", std::to_string(state.best_step) + "\n");
  } else {
    fs::remove(out / "best");  // of a later step, before `last` was set back
  }
}

uint64_t weights_checksum(Trainer& trainer) {
  Checksum checksum(trainer.threads());
  add_weights(trainer.weights(), checksum);
  return checksum.value();
}

}  // namespace deltanet
