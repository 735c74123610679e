#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

// What a model can be asked. A task is a list of such examples, all of one kind; score.h asks them.

namespace deltanet::eval {

struct Option {
  std::string context, continuation;  // the continuation begins with the blank that separates the two
  int64_t length = 1;                 // characters of the option, by which acc_norm divides
};

// Which option has the greatest log-likelihood? Options may differ in the continuation, the context or both; contexts
// that are equal are read once. Metrics: acc, acc_norm.
struct Choice {
  std::vector<Option> options;
  std::size_t answer = 0;
};

// How probable is the continuation, and is it what the model says greedily? Metrics: perplexity, acc.
struct Cloze {
  std::string context, continuation;
};

// How probable is a whole text? Read in windows of tokens, as lm-evaluation-harness does. Metrics:
// word_perplexity, byte_perplexity, bits_per_byte.
struct Document {
  std::string text;
  int64_t words = 0, bytes = 0;  // by which the sum is divided
};

// Does the text that the model says greedily contain one of the answers (contains_answer of score.h)? It ends at a stop
// string, at an end token, after max_tokens, or as soon as it contains an answer. Metric: contains.
//
// Prompts whose tokens begin alike are read once up to where they part, whatever the order of the examples: a haystack
// that many prompts share costs what its part behind the first needle costs, without anything to be said here.
struct Question {
  std::string prompt;
  std::vector<std::string> answers;
  std::vector<std::string> stops = {};
  int64_t max_tokens = 48;
  int64_t most_prompt_tokens = 0;  // the last ones count; 0: all, whatever max_length says
};

// Is the most probable token the target, at each position whose target is not -100? targets[i] belongs to the logits
// after ids[i]. Metrics: acc, the mean over examples of the share of labels, and score, what of it is more than chance:
// (acc - chance) / (1 - chance).
struct Labelled {
  std::vector<int32_t> ids, targets;
  double chance = 0;  // share of labels that guessing gets right
};

enum class Kind { kChoice, kCloze, kDocument, kQuestion, kLabelled };  // in the order of the variant

struct Example {
  std::variant<Choice, Cloze, Document, Question, Labelled> ask;
  // Numbers that results are broken down by (Task::breakdowns): "length", "depth", "pairs"; or that are only worth
  // keeping with the result of the example and in --dump, such as "tokens" of the prompt.
  std::map<std::string, double> tags = {};
  std::string place = {};  // where it comes from, for complaints: file and line

  Kind kind() const { return static_cast<Kind>(ask.index()); }
};

}  // namespace deltanet::eval
