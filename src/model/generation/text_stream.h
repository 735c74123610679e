#pragma once

#include <string>
#include <vector>

#include "deltanet/tokenizer.h"
#include "model/generation/stop_matcher.h"

namespace deltanet {

// Tokens in, text out as soon as it is certain: whole characters, and nothing that may be the beginning of a stop
// string.
class TextStream {
 public:
  TextStream(const Tokenizer& tokenizer, const std::vector<std::string>& stops)
      : decoder_(tokenizer), matcher_(stops) {}

  std::string push(int32_t id) { return matcher_.push(decoder_.push(id)); }
  std::string finish() {
    const std::string text = matcher_.push(decoder_.finish());
    return stopped() ? text : text + matcher_.finish();
  }
  bool stopped() const { return matcher_.stopped(); }
  const std::string& matched() const { return matcher_.matched(); }  // the stop string, or empty

 private:
  StreamDecoder decoder_;
  StopMatcher matcher_;
};

}  // namespace deltanet
