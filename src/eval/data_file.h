#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "eval/task.h"

namespace deltanet::eval {

// The first of the task's files that is in the folder, with any of these endings; an Error that says what is expected
// and where people get it.
std::filesystem::path find_data_file(const Task& task, const std::string& folder,
                                     const std::vector<std::string_view>& endings = {".jsonl", ".jsonl.gz",
                                                                                     ".jsonl.zst"});

// What a result says about a file: its name, size and checksum (FNV-1a of its bytes as they are on disk).
nlohmann::ordered_json about_file(const std::filesystem::path& file);

}  // namespace deltanet::eval
