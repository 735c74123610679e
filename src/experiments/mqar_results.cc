#include "experiments/mqar_results.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "deltanet/error.h"

namespace deltanet {
namespace {

using Json = nlohmann::json;

constexpr std::pair<MqarEnd, const char*> kEnds[] = {
    {MqarEnd::kSteps, "steps"}, {MqarEnd::kAccuracy, "accuracy"}, {MqarEnd::kDiverged, "diverged"}};

Json parts_json(const std::vector<MqarPart>& parts) {
  Json json = Json::array();
  for (const MqarPart& part : parts) json.push_back({part.task.length, part.task.pairs, part.examples});
  return json;
}

std::vector<MqarPart> parts_from(const Json& json) {
  std::vector<MqarPart> parts;
  for (const Json& part : json) {
    parts.push_back({{part.at(0).get<int64_t>(), part.at(1).get<int64_t>()}, part.at(2).get<int64_t>()});
  }
  return parts;
}

Json settings_json(const MqarRun& run) {
  return {{"model", run.row},
          {"d_model", run.d_model},
          {"layers", run.layers},
          {"heads", run.heads},
          {"lr", run.lr},
          {"seed", run.seed},
          {"vocab_size", run.options.vocab_size},
          {"power", run.options.power},
          {"filler", run.options.filler == MqarFiller::kZeros ? "zeros" : "random"},
          {"train", parts_json(run.train)},
          {"tests", parts_json(run.tests)},
          {"more_tests", parts_json(run.more_tests)},
          {"epochs", run.epochs},
          {"batch", run.batch},
          {"validations", run.validations},
          {"weight_decay", run.weight_decay},
          {"initializer_range", run.initializer_range},
          {"stop_accuracy", run.stop_accuracy}};
}

MqarRun run_from(const Json& json) {
  MqarRun run;
  run.row = json.at("model");
  run.d_model = json.at("d_model");
  run.layers = json.at("layers");
  run.heads = json.at("heads");
  run.lr = json.at("lr");
  run.seed = json.at("seed");
  run.options.vocab_size = json.at("vocab_size");
  run.options.power = json.at("power");
  run.options.filler = json.at("filler") == "zeros" ? MqarFiller::kZeros : MqarFiller::kRandom;
  run.train = parts_from(json.at("train"));
  run.tests = parts_from(json.at("tests"));
  run.more_tests = parts_from(json.at("more_tests"));
  run.epochs = json.at("epochs");
  run.batch = json.at("batch");
  run.validations = json.at("validations");
  run.weight_decay = json.at("weight_decay");
  run.initializer_range = json.at("initializer_range");
  run.stop_accuracy = json.at("stop_accuracy");
  return run;
}

Json record_json(const MqarRecord& record) {
  const MqarResult& result = record.result;
  Json json = {{"settings", settings_json(record.run)},
               {"accuracy", result.accuracy},
               {"steps", result.steps},
               {"tokens", result.tokens},
               {"seconds", result.seconds},
               {"train_seconds", result.train_seconds},
               {"scores", Json::array()},
               {"curve", Json::array()}};
  for (const auto& [end, name] : kEnds) {
    if (end == result.end) json["end"] = name;
  }
  for (const MqarScore& score : result.scores) {
    json["scores"].push_back(
        {{"length", score.task.length}, {"pairs", score.task.pairs}, {"accuracy", score.accuracy}});
  }
  for (const MqarProgress& point : result.curve) {
    // A loss that is not a number has no place in JSON.
    json["curve"].push_back({{"step", point.step},
                             {"loss", std::isfinite(point.loss) ? Json(point.loss) : Json()},
                             {"accuracy", point.accuracy},
                             {"seconds", point.seconds}});
  }
  return json;
}

MqarRecord record_from(const Json& json) {
  MqarRecord record{run_from(json.at("settings")), {}};
  MqarResult& result = record.result;
  result.accuracy = json.at("accuracy");
  result.steps = json.at("steps");
  result.tokens = json.at("tokens");
  result.seconds = json.at("seconds");
  result.train_seconds = json.at("train_seconds");
  for (const auto& [end, name] : kEnds) {
    if (json.at("end") == name) result.end = end;
  }
  for (const Json& score : json.at("scores")) {
    result.scores.push_back({{score.at("length"), score.at("pairs")}, score.at("accuracy")});
  }
  for (const Json& point : json.at("curve")) {
    const Json& loss = point.at("loss");
    result.curve.push_back({.step = point.at("step"),
                            .steps = mqar_steps(record.run),
                            .loss = loss.is_null() ? std::numeric_limits<double>::quiet_NaN() : loss.get<double>(),
                            .accuracy = point.at("accuracy"),
                            .validated = true,
                            .seconds = point.at("seconds")});
  }
  return record;
}

MqarRecord parse_line(const std::string& line, const std::string& where) {
  const Json json = parse_json(line, where);
  try {
    return record_from(json);
  } catch (const Json::exception& error) {
    throw Error("[" + where + "] not a result of this version (" + error.what() +
                "); move the file away to start anew");
  }
}

// One write: another process that reads or appends sees a whole line or none of it.
void append(const std::filesystem::path& path, const std::string& line) {
  const auto fail = [&] { throw Error("[mqar] " + path.string() + ": cannot be written: " + std::strerror(errno)); };
  const int file = open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) fail();
  const bool written = write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()) && fsync(file) == 0;
  const int reason = errno;
  close(file);
  errno = reason;
  if (!written) fail();
}

}  // namespace

std::string mqar_key(const MqarRun& run) { return settings_json(run).dump(); }

std::string mqar_group(const MqarRun& run) {
  Json settings = settings_json(run);
  settings.erase("lr");
  settings.erase("seed");
  return settings.dump();
}

MqarResults::MqarResults(std::filesystem::path path) : path_(std::move(path)) {
  constexpr int64_t kLargest = int64_t{1} << 30;
  if (!std::filesystem::exists(path_)) return;
  const std::string text = read_file(path_, kLargest);
  std::size_t begin = 0, number = 0;
  for (std::size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    records_.push_back(
        parse_line(text.substr(begin, end - begin), "mqar " + path_.string() + " line " + std::to_string(++number)));
  }
  if (begin == text.size()) return;
  AtomicFile whole(path_);
  whole.write(std::string_view(text).substr(0, begin));
  whole.commit();
}

const MqarRecord* MqarResults::find(const MqarRun& run) const {
  const std::string key = mqar_key(run);
  for (const MqarRecord& record : records_) {
    if (mqar_key(record.run) == key) return &record;
  }
  return nullptr;
}

void MqarResults::add(const MqarRecord& record) {
  append(path_, record_json(record).dump() + "\n");
  records_.push_back(record);
}

// ---- the best learning rate

double MqarBest::mean() const {
  double sum = 0;
  for (const MqarRecord* record : seeds) sum += record->result.accuracy;
  return sum / static_cast<double>(seeds.size());
}

double MqarBest::lowest() const {
  double value = 1;
  for (const MqarRecord* record : seeds) value = std::min(value, record->result.accuracy);
  return value;
}

double MqarBest::median() const {
  std::vector<double> values;
  for (const MqarRecord* record : seeds) values.push_back(record->result.accuracy);
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double MqarBest::highest() const {
  double value = 0;
  for (const MqarRecord* record : seeds) value = std::max(value, record->result.accuracy);
  return value;
}

double MqarBest::mean(const MqarTask& task) const {
  double sum = 0;
  int64_t count = 0;
  for (const MqarRecord* record : seeds) {
    for (const MqarScore& score : record->result.scores) {
      if (score.task != task) continue;
      sum += score.accuracy;
      ++count;
      break;
    }
  }
  return count ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN();
}

std::vector<MqarBest> best_runs(const std::vector<MqarRecord>& records) {
  std::vector<MqarBest> all;  // one for each learning rate
  for (const MqarRecord& record : records) {
    const MqarRun& run = record.run;
    const std::string group = mqar_group(run);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const MqarBest& one) { return one.group == group && one.lr == run.lr; });
    if (found == all.end()) {
      all.push_back({group, run.row, run.d_model, run.train, run.lr, {&record}});
    } else {
      found->seeds.push_back(&record);
    }
  }
  std::vector<MqarBest> best;
  for (const MqarBest& one : all) {
    const auto found =
        std::find_if(best.begin(), best.end(), [&](const MqarBest& other) { return other.group == one.group; });
    if (found == best.end()) {
      best.push_back(one);
    } else if (one.mean() > found->mean()) {
      *found = one;
    }
  }
  return best;
}

}  // namespace deltanet
