// `deltanet tokenize`: a corpus of text into shards of tokens.

#include "data/corpus/tokenize.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <memory>

#include "base/stopwatch.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "data/corpus/shards.h"
#include "deltanet/error.h"

namespace deltanet::cli {
namespace {

struct Settings {
  std::vector<std::string> inputs;
  std::string tokenizer, out, eos = "auto";
  std::string field = "text", separator;
  bool blank_lines = false, force = false;
  int threads = 0;
  int64_t shard_tokens = data::ShardOptions().shard_tokens;
};

// How far the work is: a bar on a terminal, a line now and then elsewhere.
class Meter {
 public:
  explicit Meter(int64_t bytes_total) : total_(static_cast<double>(bytes_total)) {}

  void show(int64_t bytes, int64_t tokens) {
    const bool terminal = isatty(STDERR_FILENO) != 0;
    const double now = seconds();
    if (now < next_) return;
    next_ = now + (terminal ? 0.1 : 10);
    const double done = static_cast<double>(bytes), share = total_ > 0 ? std::min(1.0, done / total_) : 0;
    const std::string text =
        fmt::format("{:3.0f}%  {} of {}  {:.1f} MB/s  {} tokens  {}", 100 * share, bytes_text(done), bytes_text(total_),
                    done / now / 1e6, count_text(static_cast<double>(tokens)), left_text(now, share));
    if (terminal) {
      constexpr int kWidth = 24;
      const int filled = static_cast<int>(share * kWidth);
      line_.show(fmt::format("[{:=<{}}{:{}}] {}", "", filled, "", kWidth - filled, text));
    } else {
      fmt::print(stderr, "{}\n", text);
    }
  }

  void clear() { line_.clear(); }
  double seconds() const { return clock_.seconds(); }

 private:
  Stopwatch clock_;
  double total_, next_ = 0.5;
  Progress line_;
};

// "auto": the tokenizer's own, if it has one; "none"; an id; or a token as the vocabulary writes it.
std::optional<int32_t> chosen_eos(const std::string& text, const Tokenizer& tokenizer) {
  if (text == "auto") return tokenizer.eos();
  if (text == "none") return {};
  int32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  const bool is_id = error == std::errc() && end == text.data() + text.size();
  if (is_id && id >= 0 && id < tokenizer.vocab_size()) return id;
  if (const std::optional<int32_t> token = tokenizer.id_of(text); token && !is_id) return token;
  throw Error(
      fmt::format("[tokenize] --eos: given \"{}\"; expected auto, none, a token of the vocabulary or an id "
                  "below {}",
                  text, tokenizer.vocab_size()));
}

data::TextOptions text_options(const Settings& settings) {
  data::TextOptions options;
  options.field = settings.field;
  options.separator = settings.separator;
  if (settings.blank_lines) options.split = data::Split::kBlankLines;
  if (!settings.separator.empty()) options.split = data::Split::kSeparator;
  return options;
}

void run(const Settings& settings) {
  const auto tokenizer = settings.tokenizer == "bytes" ? byte_tokenizer() : load_tokenizer(settings.tokenizer);
  data::TextSource source(settings.inputs, text_options(settings));
  data::ShardWriter writer(settings.out, {.vocab_size = tokenizer->vocab_size(),
                                          .eos = chosen_eos(settings.eos, *tokenizer),
                                          .tokenizer = settings.tokenizer,
                                          .tokenizer_files = data::read_tokenizer_files(settings.tokenizer),
                                          .shard_tokens = settings.shard_tokens,
                                          .replace = settings.force});
  Meter meter(source.bytes_total());
  data::tokenize(
      source, *tokenizer, settings.threads,
      [&](std::span<const int32_t> ids, bool ends_document) {
        writer.append(ids);
        if (ends_document) writer.end_document();
      },
      [&](int64_t bytes) { meter.show(bytes, writer.tokens()); });
  meter.clear();
  if (writer.tokens() == 0) {
    throw Error(fmt::format("[tokenize] {}: given files without text; expected some", settings.inputs.front()));
  }
  const data::ShardMeta& meta = writer.finish();
  const double seconds = meter.seconds(), bytes = static_cast<double>(source.bytes_total());
  fmt::print("{}: {} tokens, {} documents, {} {}, {}; {} in {:.1f} s, {:.1f} MB/s\n", settings.out,
             grouped_text(meta.tokens()), grouped_text(meta.documents()), meta.shards.size(),
             meta.shards.size() == 1 ? "shard" : "shards",
             meta.eos ? fmt::format("EOS {}", *meta.eos) : std::string("no EOS"), bytes_text(bytes), seconds,
             bytes / seconds / 1e6);
  if (const int64_t replaced = source.replaced_surrogates(); replaced > 0) {
    fmt::print(stderr, "{} {} in JSON stood alone and became U+FFFD\n", grouped_text(replaced),
               replaced == 1 ? "half of a surrogate pair" : "halves of surrogate pairs");
  }
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("inputs", settings->inputs,
              "Text files, JSON lines (.jsonl), either with .gz or .zst, or directories of them")
      .required();
  args.option("--tokenizer", settings->tokenizer,
              "tokenizer.json, tokenizer.model, a directory with one of them, or \"bytes\"")
      .required();
  args.option("--out", settings->out, "Directory to write").required();
  args.option("--field", settings->field, "Field of a JSON line that holds its text").show_default();
  const Option blank =
      args.flag("--split-blank-lines", settings->blank_lines, "Text files: documents end at blank lines");
  args.option("--split-at", settings->separator, "Text files: documents end at this text, such as <|endoftext|>")
      .excludes(blank);
  args.option("--eos", settings->eos, "Token behind every document: auto (the tokenizer's), none, a token or an id")
      .show_default();
  args.option("--shard-tokens", settings->shard_tokens, "Tokens in a file at most").show_default().positive();
  args.option("--threads", settings->threads, "Threads (default: one per core)").not_negative();
  args.flag("--force", settings->force, "Replace a corpus that is already there");
  return [settings] {
    run(*settings);
    return 0;
  };
}

const RegisterCommand kTokenize({"tokenize", "Turn a corpus of text into shards of tokens", setup});

}  // namespace
}  // namespace deltanet::cli
