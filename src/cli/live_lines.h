#pragma once

#include <chrono>
#include <cstdio>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace deltanet::cli {

// What several threads are doing: one changing line for each at the bottom of a terminal, and lines that stay above
// them. Where `to` is not a terminal, such as a log, the lines that stay are printed, and a changing one once a minute.
// All calls may come from any thread.
class LiveLines {
 public:
  explicit LiveLines(std::size_t count, std::FILE* to = stdout);
  ~LiveLines();
  LiveLines(const LiveLines&) = delete;
  LiveLines& operator=(const LiveLines&) = delete;

  bool live() const { return live_; }
  void set(std::size_t line, std::string text);           // drawn at most ten times a second; empty: nothing to show
  void set_first(const std::vector<std::string>& lines);  // the first ones, all at once; shown where it is live only
  void say(std::string_view text);                        // stays

 private:
  void show();
  void erase();
  void draw();

  std::mutex mutex_;
  std::FILE* to_;
  bool live_;
  std::size_t drawn_ = 0;
  std::vector<std::string> lines_;
  std::chrono::steady_clock::time_point last_{};               // drawn
  std::vector<std::chrono::steady_clock::time_point> logged_;  // each line, where it is not live
};

}  // namespace deltanet::cli
