#include "cli/quickstart/text.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "base/text.h"
#include "cli/live_lines.h"
#include "cli/terminal.h"
#include "deltanet/model.h"
#include "deltanet/tokenizer.h"
#include "experiments/text_model.h"
#include "model/generation/text_stream.h"

namespace deltanet::cli {
namespace {

constexpr const char* kPrompts[] = {"The", "A checkpoint", "Every"};

void stream_sample(Model& model, const Tokenizer& tokenizer, const std::string& prompt) {
  TextStream stream(tokenizer, {"\n\n"});  // a paragraph
  const auto show = [](const std::string& text) {
    std::string indented;
    for (const char c : text) indented += c == '\n' ? std::string("\n  ") : std::string(1, c);
    say(stdout, indented);
  };
  Session session = model.start();
  say(stdout, "  " + bold(prompt));
  session.generate(std::vector<std::vector<int32_t>>{tokenizer.encode(prompt)},
                   {.max_tokens = 60, .sampling = {.temperature = 0.4, .top_k = 40, .seed = 1}},
                   [&](int64_t, int32_t id) {
                     show(stream.push(id));
                     return !stream.stopped() && !std::ferror(stdout);
                   });
  show(stream.finish());
  say(stdout, "\n\n");
}

}  // namespace

void show_text_model(const std::string& text, int64_t steps, const std::filesystem::path& checkpoint) {
  fmt::print("\n{}: {} of text, {} steps\n", bold("A language model"), bytes_text(static_cast<double>(text.size())),
             steps);
  TextModelOptions options;
  options.steps = steps;
  TextModelResult result;
  {
    LiveLines lines(1);
    result = train_text_model(text, options, checkpoint, [&](const TextModelProgress& now) {
      lines.set(0, fmt::format("  step {}/{}  {:.2f} bits per byte  {} bytes/s  {}", now.step, steps, now.bits,
                               count_text(now.bytes_per_second),
                               left_text(now.seconds, static_cast<double>(now.step) / static_cast<double>(steps))));
    });
  }
  fmt::print("  PGDN, {} parameters, a vocabulary of {} made for the text: {:.2f} bits per byte at the end\n\n",
             grouped_text(result.parameters), grouped_text(result.vocab_size), result.bits);
  Model model = Model::load(checkpoint.string());
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(checkpoint.string());
  for (const char* prompt : kPrompts) stream_sample(model, *tokenizer, prompt);
}

}  // namespace deltanet::cli
