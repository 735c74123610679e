// The include rule: a file of src/ includes its own layer and the layers below it, never one above, and so do the
// folders inside a layer; the public headers include the standard library and each other; only src/simd sees Highway or
// intrinsics.

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

// Height of each folder of src/. Folders of equal height do not include each other.
const std::map<std::string, int> kLayers = {
    {"base", 0}, {"simd", 1},   {"data", 2},  {"recurrence", 3},  {"nn", 4},    {"model", 5}, {"train", 6},
    {"eval", 7}, {"theory", 7}, {"bench", 7}, {"experiments", 7}, {"serve", 7}, {"cli", 8},
};

// The same inside a room that has folders; "" is the files beside them.
const std::map<std::string, std::map<std::string, int>> kFolders = {
    {"data", {{"unicode", 0}, {"synthetic", 0}, {"regex", 1}, {"tokenizer", 2}, {"corpus", 3}}},
    {"nn", {{"matmul", 0}, {"", 1}, {"attention", 2}}},
    {"model", {{"checkpoint", 0}, {"config", 0}, {"", 1}, {"generation", 2}}},
    {"train", {{"", 0}, {"run", 1}}},
    {"cli", {{"", 0}, {"bench", 1}, {"quickstart", 1}}},
};

struct Include {
  std::string path;
  bool angled = false;
};

std::vector<Include> parse_includes(const std::string& text) {
  std::vector<Include> includes;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // # include <path> or "path", with blanks anywhere between
    std::istringstream words(line);
    char hash = 0, open = 0;
    std::string keyword, path;
    if (!(words >> hash) || hash != '#') continue;
    words >> std::ws;
    while (std::isalpha(words.peek())) keyword += static_cast<char>(words.get());
    if (keyword != "include" || !(words >> open) || (open != '<' && open != '"')) continue;
    if (std::getline(words, path, open == '<' ? '>' : '"')) includes.push_back({path, open == '<'});
  }
  return includes;
}

bool is_standard(const Include& include) {
  if (!include.angled || include.path.find('/') != std::string::npos) return false;
  for (char c : include.path) {
    if (!std::islower(static_cast<unsigned char>(c)) && !std::isdigit(static_cast<unsigned char>(c)) && c != '_') {
      return false;  // C++'s own headers have no extension: <vector>, not <vector.h>
    }
  }
  return true;
}

bool is_vector_header(const std::string& path) {
  const std::string name = fs::path(path).filename().string();
  return path.starts_with("hwy/") || name.ends_with("intrin.h") || name == "arm_neon.h" || name == "arm_sve.h" ||
         name == "arm_acle.h";
}

// The folder of a room that a path like room/folder/file.h lies in.
std::string folder_of(const std::string& path) {
  const fs::path inside = fs::path(path).parent_path();
  return inside.has_parent_path() ? std::next(inside.begin())->string() : "";
}

// What is wrong with an include in a file, both paths as written from the root of the project; nothing when it is fine.
std::optional<std::string> violation(const std::string& file, const Include& include) {
  const std::string& path = include.path;
  auto says = [&](const std::string& why) { return file + " includes " + path + ": " + why; };

  if (file.starts_with("include/deltanet/")) {
    const bool allowed = is_standard(include) || (!include.angled && path.starts_with("deltanet/"));
    if (!allowed) return says("public headers include only the standard library and deltanet/");
    return {};
  }
  if (is_vector_header(path) && !file.starts_with("src/simd/")) return says("only src/simd sees SIMD headers");
  if (!file.starts_with("src/")) return {};
  if (path.starts_with("src/") || path.find("..") != std::string::npos) return says("write the path from inside src/");

  const std::string layer = fs::path(file.substr(4)).begin()->string();
  if (!kLayers.contains(layer)) return file + ": folder src/" + layer + " has no layer in this test";
  const std::string target = fs::path(path).begin()->string();
  if (include.angled || !kLayers.contains(target)) {
    // A bare file name would be found beside the file and hide its layer.
    if (!include.angled && path.find('/') == std::string::npos) return says("write the path from inside src/");
    return {};
  }
  if (target != layer) {
    if (kLayers.at(target) >= kLayers.at(layer)) return says("includes go downwards only");
    return {};
  }
  const std::string from = folder_of(file.substr(4)), to = folder_of(path);
  if (from == to) return {};
  const auto folders = kFolders.find(layer);
  for (const std::string& folder : {from, to}) {
    if (folders == kFolders.end() || !folders->second.contains(folder)) {
      return says("the folders of src/" + layer + " have no order in this test");
    }
  }
  if (folders->second.at(to) >= folders->second.at(from)) return says("includes go downwards only, in a room too");
  return {};
}

std::set<std::string> check_file(const std::string& file, const std::string& text) {
  std::set<std::string> found;
  for (const Include& include : parse_includes(text)) {
    if (auto what = violation(file, include)) found.insert(*what);
  }
  return found;
}

TEST(Includes, FollowTheLayers) {
  const fs::path root = DELTANET_SOURCE_DIR;
  int files = 0;
  for (const char* folder : {"include", "src", "python", "tests", "fuzz", "examples", "bench"}) {
    if (!fs::exists(root / folder)) continue;
    for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
      const std::string extension = entry.path().extension().string();
      if (!entry.is_regular_file() || (extension != ".h" && extension != ".cc")) continue;
      std::ostringstream text;
      text << std::ifstream(entry.path()).rdbuf();
      for (const std::string& what : check_file(fs::relative(entry.path(), root).string(), text.str())) {
        ADD_FAILURE() << what;
      }
      ++files;
    }
  }
  EXPECT_GT(files, 20) << "the files of the project were not found under " << root;
}

TEST(Includes, ViolationsAreSeen) {
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"src/base/parallel.cc", "#include \"simd/kernels.h\""},
      {"src/simd/kernels.cc", "#include \"recurrence/core.h\""},
      {"src/data/corpus.cc", "#include \"recurrence/core.h\""},
      {"src/recurrence/core.cc", "  #  include \"model/config.h\""},
      {"src/train/trainer.cc", "#include \"eval/task.h\""},
      {"src/eval/task.cc", "#include \"experiments/mqar_run.h\""},
      {"src/train/trainer.cc", "#include \"experiments/mqar_run.h\""},
      {"src/bench/model.cc", "#include \"cli/terminal.h\""},
      {"src/data/tokenizer/bpe.cc", "#include \"data/corpus/shards.h\""},
      {"src/data/tokenizer/bpe.cc", "#include \"data/elsewhere/shards.h\""},
      {"src/model/checkpoint/safetensors.cc", "#include \"model/state.h\""},
      {"src/model/layer.cc", "#include \"model/generation/sampler.h\""},
      {"src/bench/model.cc", "#include \"bench/deeper/model.h\""},
      {"src/bench/model.cc", "#include \"theory/statements.h\""},
      {"src/recurrence/core.cc", "#include <hwy/highway.h>"},
      {"src/recurrence/core.cc", "#include \"hwy/highway.h\""},
      {"src/nn/linear.cc", "#include <immintrin.h>"},
      {"src/nn/linear.cc", "#include<avx512fintrin.h>"},
      {"tests/test_core.cc", "#include <arm_neon.h>"},
      {"src/recurrence/core.cc", "#include \"core.h\""},
      {"src/recurrence/core.cc", "#include \"../simd/kernels.h\""},
      {"src/recurrence/core.cc", "#include \"src/simd/kernels.h\""},
      {"src/nowhere/file.cc", "#include <vector>"},
      {"include/deltanet/rows.h", "#include <omp.h>"},
      {"include/deltanet/rows.h", "#include <fmt/format.h>"},
      {"include/deltanet/rows.h", "#include \"nlohmann/json.hpp\""},
      {"include/deltanet/rows.h", "#include \"recurrence/core.h\""},
  };
  for (const auto& [file, text] : wrong) {
    EXPECT_EQ(check_file(file, "int before;\n" + text + "\nint after;\n").size(), 1u) << file << ": " << text;
  }
}

TEST(Includes, AllowedOnesPass) {
  const std::vector<std::pair<std::string, std::string>> right = {
      {"src/recurrence/core.cc", "#include \"recurrence/core.h\""},
      {"src/recurrence/core.cc", "#include \"simd/kernels.h\""},
      {"src/recurrence/core.cc", "#include \"deltanet/rows.h\""},
      {"src/data/corpus/shards.cc", "#include \"data/tokenizer/tokenizer_files.h\""},
      {"src/data/corpus/shards.cc", "#include \"data/corpus/token_store.h\""},
      {"src/model/state.cc", "#include \"model/checkpoint/safetensors.h\""},
      {"src/simd/gemm.cc", "#include \"hwy/foreach_target.h\""},
      {"src/simd/gemm.cc", "#include <immintrin.h>"},
      {"src/cli/main.cc", "#include \"train/trainer.h\"\n#include <CLI/CLI.hpp>"},
      {"src/base/parallel.cc", "#include <omp.h>"},
      {"include/deltanet/rows.h", "#include <string_view>\n#include \"deltanet/error.h\""},
      {"src/base/log.cc", "// #include \"cli/main.h\""},
  };
  for (const auto& [file, text] : right) EXPECT_EQ(check_file(file, text), std::set<std::string>()) << file;
}

}  // namespace
