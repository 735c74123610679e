#include "train/run/metrics.h"

#include <fstream>

#include "base/file.h"
#include "base/json.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

// The step of a line; nothing if the line is not whole.
std::optional<int64_t> step_of(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("step") || !json["step"].is_number_integer()) return {};
  return json["step"].get<int64_t>();
}

}  // namespace

std::string metrics_line(const Metrics& metrics) {
  nlohmann::ordered_json json = {
      {"step", metrics.step},           {"loss", metrics.loss},     {"lr", metrics.lr},
      {"grad_norm", metrics.grad_norm}, {"tokens", metrics.tokens}, {"tokens_per_second", metrics.tokens_per_second},
      {"bad_steps", metrics.bad_steps}};
  if (metrics.val_loss) json["val_loss"] = *metrics.val_loss;
  for (const auto& [task, score] : metrics.tasks) json["tasks"][task] = score;
  return json.dump() + "\n";
}

MetricsFile::MetricsFile(std::filesystem::path path, int64_t from_step) : path_(std::move(path)) {
  if (std::filesystem::exists(path_) && !std::filesystem::is_regular_file(path_)) {
    throw Error("[metrics] " + path_.string() + ": is no file; expected one, or nothing");
  }
  std::ifstream before(path_);
  if (!before && std::filesystem::exists(path_)) throw Error("[metrics] " + path_.string() + ": cannot be read");
  AtomicFile kept(path_);
  for (std::string line; std::getline(before, line);) {
    const auto step = step_of(line);
    if (step && *step <= from_step) kept.write(line + "\n");
  }
  kept.commit();
}

void MetricsFile::append(const Metrics& metrics) {
  std::ofstream file(path_, std::ios::binary | std::ios::app);
  file << metrics_line(metrics);
  file.close();  // one write of one line
  if (!file) throw Error("[metrics] " + path_.string() + ": cannot be written; is the disk full?");
}

void MetricsFile::sync() const { sync_file(path_); }

}  // namespace deltanet
