#include "eval/saved_examples.h"

#include <fmt/format.h>

#include <limits>

#include "base/file.h"
#include "base/json.h"
#include "deltanet/error.h"

namespace deltanet::eval {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kFormat = "deltanet eval examples 1";

std::string key_text(uint64_t key) { return fmt::format("{:016x}", key); }

Json line_of(int64_t number, uint64_t key, const std::string& place, const ExampleResult& result) {
  Json line = {{"example", number}, {"key", key_text(key)}, {"place", place}};
  line["scores"] = result.scores;
  if (!result.tags.empty()) line["tags"] = result.tags;
  if (result.cut) line["cut"] = true;
  line["said"] = result.said;
  return line;
}

}  // namespace

SavedExamples::SavedExamples(std::filesystem::path path, const Json& identity) : path_(std::move(path)) {
  std::string kept;
  if (std::filesystem::exists(path_)) {
    kept = read_file(path_, std::numeric_limits<int64_t>::max());
    kept.resize(kept.rfind('\n') + 1);  // a line that was cut off; npos + 1 is 0
    read(kept, identity);
  }
  if (kept.empty()) {
    Json head = {{"format", kFormat}};
    head.update(identity);
    kept = head.dump() + "\n";
  }
  AtomicFile whole(path_);
  whole.write(kept);
  whole.commit();
  file_.open(path_, std::ios::binary | std::ios::app);
}

void SavedExamples::read(const std::string& text, const Json& identity) {
  int64_t number = 0;
  for (std::size_t begin = 0; begin < text.size(); ++number) {
    const std::size_t end = text.find('\n', begin);
    const auto refuse = [&](const std::string& what) {
      throw Error(fmt::format("[eval] {}: line {}: {}; remove the file or name another folder", path_.string(),
                              number + 1, what));
    };
    const Json line = Json::parse(text.substr(begin, end - begin), nullptr, /*allow_exceptions=*/false);
    begin = end + 1;
    if (number == 0) {
      if (!line.is_object() || line.value("format", "") != kFormat) refuse("no results of examples begin here");
      std::string differences;
      for (const auto& [name, value] : identity.items()) {
        const Json before = line.contains(name) ? line[name] : Json();
        if (before == value) continue;
        differences += (differences.empty() ? "" : ", ") + name + " was " + before.dump() + " and is " + value.dump();
      }
      if (!differences.empty()) refuse("holds the results of another evaluation: " + differences);
      continue;
    }
    try {
      Saved saved{.key = line.at("key").get<std::string>(), .result = {}};
      saved.result.scores = line.at("scores").get<std::map<std::string, double>>();
      if (line.contains("tags")) saved.result.tags = line["tags"].get<std::map<std::string, double>>();
      saved.result.said = line.at("said");
      saved.result.cut = line.value("cut", false);
      saved_[line.at("example").get<int64_t>()] = std::move(saved);
    } catch (const nlohmann::json::exception&) {
      refuse("is no result of an example");
    }
  }
}

const ExampleResult* SavedExamples::find(int64_t number, uint64_t key) const {
  const auto found = saved_.find(number);
  if (found == saved_.end()) return nullptr;
  if (found->second.key != key_text(key)) {
    throw Error(fmt::format(
        "[eval] {}: example {} was another one: the data or the options have changed since; remove the file or name "
        "another folder",
        path_.string(), number));
  }
  return &found->second.result;
}

void SavedExamples::append(int64_t number, uint64_t key, const std::string& place, const ExampleResult& result) {
  // What a model of bytes says may be no UTF-8.
  file_ << line_of(number, key, place, result).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"
        << std::flush;
  if (!file_) throw Error("[eval] " + path_.string() + ": cannot be written; is the disk full?");
}

}  // namespace deltanet::eval
