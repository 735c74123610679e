#include "eval/score.h"

#include <algorithm>

#include "eval/text.h"

namespace deltanet::eval {

bool contains_answer(std::string_view text, std::span<const std::string> answers) {
  const std::string small = lower(text);
  return std::any_of(answers.begin(), answers.end(),
                     [&](const std::string& answer) { return small.find(lower(answer)) != small.npos; });
}

}  // namespace deltanet::eval
