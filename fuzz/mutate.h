#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace deltanet::fuzz {

// Changes bytes of inputs at random. The same seed gives the same changes everywhere.
class Mutator {
 public:
  // corpus: at least one input; dictionary: may be empty.
  Mutator(uint64_t seed, std::vector<std::string> corpus, std::vector<std::string> dictionary);

  std::string next();  // an input of the corpus with a few changes

 private:
  size_t below(size_t bound);                                                 // uniform in [0, bound); bound > 0
  std::pair<size_t, size_t> block(const std::string& input, size_t longest);  // begin and length
  void change(std::string& input);

  std::mt19937_64 random_;
  std::vector<std::string> corpus_, dictionary_;
};

// Reads a dictionary of libFuzzer: lines name="value" or "value", with \\, \" and \xAB; # begins a comment.
std::vector<std::string> parse_dictionary(const std::string& text);

}  // namespace deltanet::fuzz
