#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "eval/result.h"

namespace deltanet::eval {

// The results of examples in a file, so that a stopped evaluation goes on: a first line that says what was evaluated,
// then a line for each example as soon as it is done, in any order. A last line that was cut off is left out.
class SavedExamples {
 public:
  // Throws Error if the file holds the results of something else, naming what differs.
  SavedExamples(std::filesystem::path path, const nlohmann::ordered_json& identity);

  // Of the example with this number and key (Encoded::key); null: not done. Throws Error where the number belongs to
  // another example.
  const ExampleResult* find(int64_t number, uint64_t key) const;
  void append(int64_t number, uint64_t key, const std::string& place, const ExampleResult& result);

 private:
  struct Saved {
    std::string key;
    ExampleResult result;
  };
  void read(const std::string& text, const nlohmann::ordered_json& identity);

  std::filesystem::path path_;
  std::map<int64_t, Saved> saved_;
  std::ofstream file_;
};

}  // namespace deltanet::eval
