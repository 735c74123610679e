// Runs a fuzz target where there is no libFuzzer: mutations of a corpus for some seconds, or given files once each.
//
//   fuzz_NAME --corpus DIR [--dict FILE] [--seconds N] [--seed N]
//   fuzz_NAME FILE...
//
// An input that crashes the target, or runs for longer than kHangSeconds, is written to crash-NAME in the current
// directory, and its path is printed. Crashes are signals, uncaught exceptions and reports of sanitizers.

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "deltanet/error.h"
#include "mutate.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) void __sanitizer_set_death_callback(void (*callback)());

namespace deltanet::fuzz {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kLongestFile = 1 << 24;
constexpr int kHangSeconds = 20;

// What the signal handler needs.
std::string crash_path;
const uint8_t* volatile current_data = nullptr;
volatile size_t current_size = 0;
volatile sig_atomic_t seconds_in_run = 0;

void say(const char* text) { static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text))); }

void save_input() {
  if (!current_data) return;
  const int file = open(crash_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const bool saved = file >= 0 && write(file, current_data, current_size) == static_cast<ssize_t>(current_size);
  say(saved ? "\nthe input is in " : "\nthe input could not be written to ");
  say(crash_path.c_str());
  say("\n");
  current_data = nullptr;  // the abort() that ends a sanitizer's report comes here again
}

void on_crash(int number) {
  save_input();
  signal(number, SIG_DFL);
  raise(number);
}

void on_tick(int /*number*/) {
  seconds_in_run = seconds_in_run + 1;
  if (seconds_in_run > kHangSeconds) {
    say("the target does not come to an end\n");
    save_input();
    _exit(1);
  }
  alarm(1);
}

void install_handlers(const std::string& program) {
  crash_path = fs::absolute("crash-" + program).string();
  if (__sanitizer_set_death_callback) __sanitizer_set_death_callback(save_input);
  for (const int number : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) {
    struct sigaction current {};
    sigaction(number, nullptr, &current);
    if (current.sa_handler == SIG_DFL) signal(number, on_crash);  // AddressSanitizer's own handlers say more
  }
  signal(SIGALRM, on_tick);
  alarm(1);
}

void run(const std::string& input) {
  const std::vector<uint8_t> exact(input.begin(), input.end());  // no spare bytes behind it: sanitizers see overruns
  current_size = exact.size();
  current_data = exact.data();
  seconds_in_run = 0;
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
  current_data = nullptr;
}

struct Options {
  fs::path corpus, dictionary;
  double seconds = 10;
  uint64_t seed = 1;
  std::vector<fs::path> files;
};

Options parse_options(int count, char** words) {
  Options options;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    if (!word.starts_with("--")) {
      options.files.emplace_back(word);
      continue;
    }
    if (++i == count) throw Error("[fuzz] " + word + ": expected a value");
    if (word == "--corpus") {
      options.corpus = words[i];
    } else if (word == "--dict") {
      options.dictionary = words[i];
    } else if (word == "--seconds") {
      options.seconds = std::strtod(words[i], nullptr);
    } else if (word == "--seed") {
      options.seed = std::strtoull(words[i], nullptr, 10);
    } else {
      throw Error("[fuzz] given " + word + "; expected --corpus, --dict, --seconds or --seed");
    }
  }
  if (options.corpus.empty() == options.files.empty()) throw Error("[fuzz] expected either --corpus or files");
  return options;
}

std::vector<std::string> read_corpus(const fs::path& folder) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());  // the same order everywhere
  std::vector<std::string> corpus;
  for (const fs::path& path : paths) corpus.push_back(read_file(path, kLongestFile));
  if (corpus.empty()) throw Error("[fuzz] " + folder.string() + ": expected files in it");
  return corpus;
}

void fuzz(const Options& options) {
  const std::vector<std::string> corpus = read_corpus(options.corpus);
  std::vector<std::string> dictionary;
  if (!options.dictionary.empty()) dictionary = parse_dictionary(read_file(options.dictionary, kLongestFile));
  for (const std::string& input : corpus) run(input);
  run("");

  Mutator mutator(options.seed, corpus, dictionary);
  const Clock::time_point start = Clock::now();
  int64_t executions = 0;
  double elapsed = 0;
  while (elapsed < options.seconds) {
    for (int i = 0; i < 16; ++i, ++executions) run(mutator.next());
    elapsed = std::chrono::duration<double>(Clock::now() - start).count();
  }
  std::printf("%lld executions in %.1f s: %.0f/s, corpus of %zu, seed %llu\n", static_cast<long long>(executions),
              elapsed, static_cast<double>(executions) / elapsed, corpus.size(),
              static_cast<unsigned long long>(options.seed));
}

}  // namespace
}  // namespace deltanet::fuzz

int main(int count, char** words) {
  using namespace deltanet::fuzz;
  Options options;
  try {
    options = parse_options(count, words);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
  install_handlers(fs::path(words[0]).filename().string());
  if (options.files.empty()) fuzz(options);
  for (const fs::path& path : options.files) run(deltanet::read_file(path, kLongestFile));
  return 0;
}
