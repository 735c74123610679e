#include "data/corpus/tokenize.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <vector>

#include "base/parallel.h"
#include "deltanet/error.h"

namespace deltanet::data {
namespace {

constexpr int64_t kMostInMemory = int64_t{1} << 30;  // tokens: 4 GB

struct Encoded {
  std::vector<int32_t> ids;
  std::vector<std::pair<std::size_t, bool>> parts;  // (end in ids, ends a document)
};

void encode_block(const TextSource& source, const TextBlock& block, const Tokenizer& tokenizer, Encoded& encoded) {
  encoded.ids.clear();
  encoded.parts.clear();
  source.split(block, [&](std::string_view text, bool ends_document) {
    if (!text.empty()) {
      const std::vector<int32_t> ids = tokenizer.encode(text);
      encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
    }
    encoded.parts.emplace_back(encoded.ids.size(), ends_document);
  });
}

void hand_over(const Encoded& encoded, const TokenSink& sink) {
  std::size_t begin = 0;
  for (const auto& [end, ends_document] : encoded.parts) {
    sink(std::span(encoded.ids).subspan(begin, end - begin), ends_document);
    begin = end;
  }
}

// Hands out numbered blocks, and lets their results through in the order of the numbers. A thread has one block at a
// time, so that waiting for the turn also bounds the memory.
class Line {
 public:
  explicit Line(TextSource& source) : source_(source) {}

  // The number of the block, or nothing at the end.
  std::optional<int64_t> take(TextBlock& block) {
    const std::lock_guard lock(reading_);
    if (ended_) return {};
    try {
      if (source_.next(block)) return taken_++;
      ended_ = true;
      return {};
    } catch (...) {
      ended_ = true;
      // What is wrong here comes after everything that was read before.
      failure_of_source_ = std::current_exception();
      return {};
    }
  }

  // Runs step() when all earlier blocks are done, unless one of them failed; `failure` (null: none) is this block's
  // own.
  template <class Step>
  void in_turn(int64_t number, std::exception_ptr failure, const Step& step) {
    std::unique_lock lock(writing_);
    turn_changed_.wait(lock, [&] { return turn_ == number; });
    if (!failure_ && !failure) {
      try {
        step();
      } catch (...) {
        failure = std::current_exception();
      }
    }
    if (!failure_ && failure) {
      failure_ = failure;
      const std::lock_guard reading(reading_);
      ended_ = true;
    }
    ++turn_;
    turn_changed_.notify_all();
  }

  // The first failure, once all threads have left.
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
    if (failure_of_source_) std::rethrow_exception(failure_of_source_);
  }

 private:
  TextSource& source_;
  std::mutex reading_, writing_;
  int64_t taken_ = 0, turn_ = 0;
  bool ended_ = false;
  std::exception_ptr failure_, failure_of_source_;
  std::condition_variable turn_changed_;
};

}  // namespace

void tokenize(TextSource& source, const Tokenizer& tokenizer, int threads, const TokenSink& sink,
              const std::function<void(int64_t bytes)>& done) {
  if (threads <= 0) threads = default_threads();
  Line line(source);
  parallel_for(threads, threads, [&](int64_t) {
    TextBlock block;
    Encoded encoded;
    while (const std::optional<int64_t> number = line.take(block)) {
      std::exception_ptr failure;
      try {
        encode_block(source, block, tokenizer, encoded);
      } catch (...) {
        failure = std::current_exception();
      }
      line.in_turn(*number, failure, [&] {
        hand_over(encoded, sink);
        if (done) done(block.bytes_done);
      });
    }
  });
  line.rethrow();
}

std::shared_ptr<const TokenStore> tokenize_to_memory(TextSource& source, const Tokenizer& tokenizer,
                                                     std::optional<int32_t> eos, int threads) {
  std::vector<int32_t> ids;
  std::vector<int64_t> starts;
  bool inside = false;
  tokenize(source, tokenizer, threads, [&](std::span<const int32_t> part, bool ends_document) {
    if (static_cast<int64_t>(ids.size() + part.size()) > kMostInMemory) {
      throw Error("[tokenize_to_memory] given more than " + std::to_string(kMostInMemory) +
                  " tokens; expected fewer, or a directory made by `deltanet tokenize`, which is not held in memory");
    }
    if (!part.empty() && !inside) {
      starts.push_back(static_cast<int64_t>(ids.size()));
      inside = true;
    }
    ids.insert(ids.end(), part.begin(), part.end());
    if (!ends_document) return;
    if (inside && eos) ids.push_back(*eos);
    inside = false;
  });
  const std::string name = source.files().front().string() + (source.files().size() > 1 ? ", ..." : "");
  return memory_store(std::move(ids), std::move(starts), name);
}

}  // namespace deltanet::data
