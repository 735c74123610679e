// `deltanet generate`: continues prompts, token by token.

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <optional>

#include "base/file.h"
#include "base/stopwatch.h"
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
  std::vector<std::string> prompts, prompt_files;
  std::string save_state, load_state;
  bool quiet = false;
};

std::vector<std::string> prompts_of(const Settings& settings) {
  std::vector<std::string> prompts = settings.prompts;
  constexpr int64_t kLargest = int64_t{1} << 30;
  for (const std::string& path : settings.prompt_files) prompts.push_back(read_file(path, kLargest));
  return prompts;
}

// A saved session goes on in the middle of a text, so nothing is put before its prompts.
std::vector<std::vector<int32_t>> encode(const Settings& settings, const Tokenizer& tokenizer,
                                         const std::vector<std::string>& prompts) {
  const bool add_special = !settings.run.no_special && settings.load_state.empty();
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& prompt : prompts) {
    ids.push_back(tokenizer.encode(prompt, add_special));
    if (ids.back().empty() && settings.load_state.empty()) {
      if (!tokenizer.bos()) {
        throw Error("[generate] prompt: is empty, and the tokenizer has no token to begin with; give it some text");
      }
      ids.back().push_back(*tokenizer.bos());
    }
  }
  return ids;
}

int run(const Settings& settings) {
  std::vector<std::string> prompts = prompts_of(settings);
  if (prompts.empty() && settings.load_state.empty()) {
    throw Error("[generate] expected --prompt TEXT, --prompt-file FILE or --load-state FILE");
  }
  const Stopwatch clock;
  Model model = load_model(settings.run);
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer_for(settings.run, model);
  const double load_seconds = clock.seconds();

  std::optional<Session> session;
  if (!settings.load_state.empty()) {
    session = model.load_session(settings.load_state);
    if (prompts.empty()) prompts.resize(static_cast<std::size_t>(session->sequences()));
    if (static_cast<int64_t>(prompts.size()) != session->sequences()) {
      throw Error(fmt::format("[generate] {}: holds {} sequences; given {} prompts, expected one for each or none",
                              settings.load_state, session->sequences(), prompts.size()));
    }
  } else {
    session = model.start(static_cast<int64_t>(prompts.size()));
  }
  const GenerateOptions options = generate_options(settings.sampling, model, *tokenizer);

  // One text is shown as it comes; several are shown when they are complete, so that they do not mix.
  std::vector<TextStream> texts;
  for (std::size_t n = 0; n < prompts.size(); ++n) texts.emplace_back(*tokenizer, settings.sampling.stops);
  const bool single = texts.size() == 1;
  if (single) say(stdout, prompts.front());
  std::vector<std::string> shown(texts.size());
  const auto show = [&](std::size_t n, const std::string& text) {
    if (single) {
      say(stdout, text);
    } else {
      shown[n] += text;
    }
  };
  const auto is_end = [&](int32_t id) {
    return std::find(options.end_ids.begin(), options.end_ids.end(), id) != options.end_ids.end();
  };
  const GenerateStats stats =
      session->generate(encode(settings, *tokenizer, prompts), options, [&](int64_t sequence, int32_t id) {
        const auto n = static_cast<std::size_t>(sequence);
        if (!is_end(id)) show(n, texts[n].push(id));
        return !texts[n].stopped() && !std::ferror(stdout);  // nothing more where nobody reads it
      });
  for (std::size_t n = 0; n < texts.size(); ++n) show(n, texts[n].finish());
  for (std::size_t n = 0; !single && n < texts.size(); ++n) {
    say(stdout, fmt::format("{}\n{}{}\n{}", bold(fmt::format("[{}]", n + 1)), prompts[n], shown[n],
                            n + 1 < texts.size() ? "\n" : ""));
  }
  if (single) say(stdout, "\n");

  if (!settings.save_state.empty()) session->save(settings.save_state);
  if (!settings.quiet) {
    fmt::print(stderr,
               "\n{}: loaded in {:.2f} s; prompt {} tokens, {:.1f} tokens/s; generated {} tokens, {:.1f} tokens/s\n",
               model.model_type(), load_seconds, stats.prompt_tokens,
               static_cast<double>(stats.prompt_tokens) / stats.prompt_seconds, stats.tokens,
               static_cast<double>(stats.tokens) / stats.seconds);
  }
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  add_run_options(args, settings->run);
  // One value each time the option is given: the directory may follow.
  args.option("-p,--prompt", settings->prompts, "Text to continue; given several times, a batch").one_value_each();
  args.option("--prompt-file", settings->prompt_files, "The same from a file").existing_file().one_value_each();
  add_sampling_options(args, settings->sampling);
  args.option("--save-state", settings->save_state, "Write what the model remembers to this file at the end");
  args.option("--load-state", settings->load_state, "Go on from such a file; prompts are added to it");
  args.flag("-q,--quiet", settings->quiet, "No statistics at the end");
  return [settings] { return run(*settings); };
}

const RegisterCommand kGenerate({"generate", "Continue a text", setup});

}  // namespace
}  // namespace deltanet::cli
