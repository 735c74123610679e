#include "mutate.h"

#include <algorithm>
#include <cstring>
#include <sstream>
#include <utility>

#include "deltanet/error.h"

namespace deltanet::fuzz {
namespace {

constexpr size_t kLongestInput = 1 << 16;
constexpr size_t kMostChanges = 8;

// Where sizes and offsets go wrong.
constexpr uint64_t kNumbers[] = {0,
                                 1,
                                 2,
                                 7,
                                 8,
                                 127,
                                 128,
                                 255,
                                 256,
                                 32767,
                                 65535,
                                 65536,
                                 0x7fffffff,
                                 0x80000000,
                                 1u << 30,
                                 0xffffffff,
                                 0x100000000,
                                 1ull << 62,
                                 (1ull << 63) - 1,
                                 1ull << 63,
                                 ~0ull};

}  // namespace

Mutator::Mutator(uint64_t seed, std::vector<std::string> corpus, std::vector<std::string> dictionary)
    : random_(seed), corpus_(std::move(corpus)), dictionary_(std::move(dictionary)) {}

size_t Mutator::below(size_t bound) { return static_cast<size_t>(random_() % bound); }

std::pair<size_t, size_t> Mutator::block(const std::string& input, size_t longest) {
  const size_t begin = below(input.size() + 1);
  return {begin, std::min(input.size() - begin, below(longest + 1))};
}

std::string Mutator::next() {
  std::string input = corpus_[below(corpus_.size())];
  if (below(8) == 0) {  // splice: the head of one, the tail of another
    const std::string& other = corpus_[below(corpus_.size())];
    input = input.substr(0, below(input.size() + 1)) + other.substr(below(other.size() + 1));
  }
  for (size_t changes = 1 + below(kMostChanges); changes > 0; --changes) change(input);
  if (input.size() > kLongestInput) input.resize(kLongestInput);
  return input;
}

void Mutator::change(std::string& input) {
  const uint64_t number = kNumbers[below(std::size(kNumbers))] + below(3) - 1;
  const size_t place = below(input.size() + 1);
  const auto [begin, length] = block(input, below(4) == 0 ? input.size() : 16);
  switch (below(9)) {
    case 0:
      if (!input.empty()) input[below(input.size())] ^= static_cast<char>(1u << below(8));
      break;
    case 1:
      if (!input.empty()) input[below(input.size())] = static_cast<char>(below(256));
      break;
    case 2:
      input.insert(place, 1 + below(8), static_cast<char>(below(256)));
      break;
    case 3:
      input.erase(begin, length);
      break;
    case 4:  // repeat a block elsewhere
      input.insert(place, input.substr(begin, length));
      break;
    case 5: {  // copy a block over another
      const std::string copy = input.substr(begin, length);
      input.replace(place, copy.size(), copy);
      break;
    }
    case 6: {  // a number in binary
      char bytes[sizeof number];
      std::memcpy(bytes, &number, sizeof number);
      const size_t size = std::min(size_t{1} << below(4), input.size() - place);
      input.replace(place, size, bytes, size);
      break;
    }
    case 7: {  // a number in digits, in the place of one that is there
      const size_t digits = input.find_first_of("0123456789", place);
      if (digits == input.npos) break;
      const size_t end = std::min(input.find_first_not_of("0123456789", digits), input.size());
      input.replace(digits, end - digits, (below(4) == 0 ? "-" : "") + std::to_string(number));
      break;
    }
    case 8:
      if (!dictionary_.empty()) {
        const std::string& token = dictionary_[below(dictionary_.size())];
        input.replace(place, below(2) == 0 ? 0 : token.size(), token);
      }
      break;
  }
}

std::vector<std::string> parse_dictionary(const std::string& text) {
  std::vector<std::string> tokens;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.front() == '#') continue;
    const size_t open = line.find('"'), close = line.rfind('"');
    if (open == close) throw Error("[dictionary] given " + line + "; expected a token in quotes");
    std::string token;
    for (size_t i = open + 1; i < close; ++i) {
      if (line[i] == '\\' && line[i + 1] == 'x') {
        token += static_cast<char>(std::stoi(line.substr(i + 2, 2), nullptr, 16));
        i += 3;
      } else {
        if (line[i] == '\\') ++i;
        token += line[i];
      }
    }
    tokens.push_back(token);
  }
  return tokens;
}

}  // namespace deltanet::fuzz
