// `deltanet chat`: an interactive prompt. What was said stays in the model's state, so a turn costs only its own
// tokens.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <string>

#include "base/text.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "model/generation/text_stream.h"

namespace deltanet::cli {
namespace {

struct Settings {
  RunOptions run;
  SamplingOptions sampling;
  std::string system, user = "User: ", assistant = "\nAssistant:", end = "\n";
};

constexpr const char* kHelp =
    "  /reset       forget everything said so far\n"
    "  /save FILE   write the state to a file\n"
    "  /load FILE   go on from such a file\n"
    "  /help        this list\n"
    "  /quit        leave (or Ctrl-D)\n"
    "Ctrl-C ends an answer.\n";

volatile std::sig_atomic_t interrupted = 0;

// Ctrl-C ends the answer while one is being given, and the program otherwise.
class InterruptAnswer {
 public:
  InterruptAnswer() : before_(std::signal(SIGINT, [](int) { interrupted = 1; })) { interrupted = 0; }
  ~InterruptAnswer() { std::signal(SIGINT, before_); }
  InterruptAnswer(const InterruptAnswer&) = delete;
  InterruptAnswer& operator=(const InterruptAnswer&) = delete;

 private:
  void (*before_)(int);
};

class Chat {
 public:
  explicit Chat(const Settings& settings)
      : settings_(settings),
        model_(load_model(settings.run)),
        tokenizer_(load_tokenizer_for(settings.run, model_)),
        session_(model_.start()),
        options_(generate_options(settings.sampling, model_, *tokenizer_)) {
    // The other side's turn begins where ours would end.
    stops_ = settings.sampling.stops;
    if (stops_.empty()) stops_.push_back("\n" + settings.user);
  }

  int run() {
    const bool terminal = isatty(STDIN_FILENO) != 0;
    if (terminal)
      fmt::print("{}, {} parameters. /help lists commands.\n", model_.model_type(),
                 grouped_text(model_.parameter_count()));
    for (std::string line; !std::ferror(stdout);) {  // no talk with nobody
      if (terminal) fmt::print("{}", bold("> ")), std::fflush(stdout);
      if (!std::getline(std::cin, line)) break;
      if (line.empty()) continue;
      if (line == "/quit") return 0;
      try {
        if (line.starts_with("/")) {
          command(line);
        } else {
          answer(line);
        }
      } catch (const Error& error) {
        fmt::print(stderr, "{}\n", error.what());
      }
    }
    if (terminal) fmt::print("\n");
    return 0;
  }

 private:
  void command(const std::string& line) {
    const std::size_t space = line.find(' ');
    const std::string name = line.substr(0, space), argument = space == std::string::npos ? "" : line.substr(space + 1);
    if (name == "/reset") {
      session_.reset();
      first_ = true;
    } else if (name == "/save" && !argument.empty()) {
      session_.save(argument);
    } else if (name == "/load" && !argument.empty()) {
      Session loaded = model_.load_session(argument);
      if (loaded.sequences() != 1) {
        throw Error(fmt::format("[chat] {}: holds {} sequences; expected 1", argument, loaded.sequences()));
      }
      session_ = std::move(loaded);
      first_ = false;
    } else {
      fmt::print("{}", kHelp);
    }
  }

  void answer(const std::string& line) {
    const std::string text = (first_ ? settings_.system : settings_.end) + settings_.user + line + settings_.assistant;
    const std::vector<std::vector<int32_t>> prompt = {tokenizer_->encode(text, first_ && !settings_.run.no_special)};
    first_ = false;
    TextStream stream(*tokenizer_, stops_);
    const auto show = [](const std::string& part) { say(stdout, part); };
    const InterruptAnswer guard;
    session_.generate(prompt, options_, [&](int64_t, int32_t id) {
      const bool is_end = std::find(options_.end_ids.begin(), options_.end_ids.end(), id) != options_.end_ids.end();
      if (!is_end) show(stream.push(id));
      return !stream.stopped() && !interrupted && !std::ferror(stdout);
    });
    show(stream.finish());
    say(stdout, "\n");
    options_.sampling.seed += 1;  // another turn, other choices
  }

  const Settings& settings_;
  Model model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Session session_;
  GenerateOptions options_;
  std::vector<std::string> stops_;
  bool first_ = true;
};

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  settings->sampling.generate.sampling = {.temperature = 0.7, .top_p = 0.95};
  add_run_options(args, settings->run);
  add_sampling_options(args, settings->sampling);
  args.option("--system", settings->system, "Text before the first turn");
  args.option("--user-prefix", settings->user, "Text before what you say").show_default();
  args.option("--assistant-prefix", settings->assistant, "Text before what the model says");
  args.footer("Models are plain language models: the prefixes are how a conversation looks as text.");
  return [settings] { return Chat(*settings).run(); };
}

const RegisterCommand kChat({"chat", "Talk to a model", setup});

}  // namespace
}  // namespace deltanet::cli
