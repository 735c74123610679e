// `deltanet chat`: an interactive prompt. What was said stays in the model's state, so a turn costs only its own
// tokens.

#include <fmt/format.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
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
    next_ = settings.system + settings.user;
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
      cut_.reset();
      next_ = settings_.system + settings_.user;
      first_ = true;
    } else if (name == "/save" && !argument.empty()) {
      save(argument);
    } else if (name == "/load" && !argument.empty()) {
      Session loaded = model_.load_session(argument);
      if (loaded.sequences() != 1) {
        throw Error(fmt::format("[chat] {}: holds {} sequences; expected 1", argument, loaded.sequences()));
      }
      session_ = std::move(loaded);
      cut_.reset();
      next_ = between_turns();
      first_ = false;
    } else {
      fmt::print("{}", kHelp);
    }
  }

  std::string between_turns() const { return settings_.end + settings_.user; }

  void answer(const std::string& line) {
    const std::string text = next_ + line + settings_.assistant;
    const std::vector<std::vector<int32_t>> prompt = {tokenizer_->encode(text, first_ && !settings_.run.no_special)};
    const int64_t all[] = {0};
    Cut cut{session_.copy(all), prompt, ""};
    first_ = false;
    TextStream stream(*tokenizer_, stops_);
    StreamDecoder decoder(*tokenizer_);
    std::string said, said_before;  // all of it; without the last token
    const auto show = [&](const std::string& part) {
      cut.answer += part;
      say(stdout, part);
    };
    const InterruptAnswer guard;
    session_.generate(prompt, options_, [&](int64_t, int32_t id) {
      const bool is_end = std::find(options_.end_ids.begin(), options_.end_ids.end(), id) != options_.end_ids.end();
      if (!is_end) show(stream.push(id));
      said_before = said;
      said += decoder.push(id);
      return !stream.stopped() && !interrupted && !std::ferror(stdout);
    });
    show(stream.finish());
    say(stdout, "\n");
    options_.sampling.seed += 1;  // another turn, other choices

    cut_.reset();
    next_ = between_turns();
    if (!next_.starts_with(stream.matched()) || !stream.stopped()) return;
    // The model has begun our turn itself, with all of the stop string but the end of the last token, which may hold
    // more: it is taken back, and what is missing of the turn's beginning comes with the next prompt.
    session_.drop_unread();
    next_ = (cut.answer + next_).substr(said_before.size());
    cut_ = std::move(cut);
  }

  // A file ends with the answer, also where the session is a part of a stop string ahead.
  void save(const std::string& path) {
    if (!cut_) return session_.save(path);
    const int64_t all[] = {0};
    Session whole = cut_->before.copy(all);
    std::vector<int32_t> ids = cut_->prompt.front();
    const std::vector<int32_t> answer = tokenizer_->encode(cut_->answer);
    ids.insert(ids.end(), answer.begin(), answer.end());
    std::vector<float> logits(static_cast<std::size_t>(model_.vocab_size()));
    whole.read({{ids}}, logits.data());
    whole.save(path);
  }

  // A turn whose answer a stop string ended.
  struct Cut {
    Session before;
    std::vector<std::vector<int32_t>> prompt;
    std::string answer;
  };

  const Settings& settings_;
  Model model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Session session_;
  GenerateOptions options_;
  std::vector<std::string> stops_;
  std::string next_;  // what the next turn begins with
  std::optional<Cut> cut_;
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
