#include "cli/model_options.h"

#include <fmt/format.h>

#include <filesystem>

#include "deltanet/error.h"

namespace deltanet::cli {

void add_run_options(const Arguments& args, RunOptions& options) {
  args.option("directory", options.directory, "Checkpoint: config.json, model.safetensors, tokenizer").required();
  args.option("--weights", options.weights, "Type of the matrices: f32, bf16 or int8").show_default();
  args.option(
      "--tokenizer", options.tokenizer,
      "tokenizer.json, tokenizer.model, a directory with one of them, or \"bytes\" (default: the checkpoint's)");
  args.option("--threads", options.threads, "Threads (default: one per core)").not_negative();
  args.flag("--no-special", options.no_special, "Do not add the tokens that the tokenizer puts before a text (BOS)");
}

Model load_model(const RunOptions& options) {
  return Model::load(options.directory, {.weights = parse_weight_type(options.weights), .threads = options.threads});
}

std::unique_ptr<Tokenizer> load_tokenizer_for(const RunOptions& options, const Model& model) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (options.tokenizer == "bytes") {
    tokenizer = byte_tokenizer();
  } else if (!options.tokenizer.empty()) {
    tokenizer = load_tokenizer(options.tokenizer);
  } else {
    const std::filesystem::path directory(options.directory);
    const bool has_one =
        std::filesystem::exists(directory / "tokenizer.json") || std::filesystem::exists(directory / "tokenizer.model");
    // A vocabulary of 256 without a tokenizer can only be bytes.
    if (!has_one && model.vocab_size() != 256) {
      throw Error(
          fmt::format("[tokenizer] {}: has neither tokenizer.json nor tokenizer.model; name one with "
                      "--tokenizer, or use --tokenizer bytes for a model of bytes",
                      options.directory));
    }
    tokenizer = has_one ? load_tokenizer(options.directory) : byte_tokenizer();
  }
  if (tokenizer->vocab_size() > model.vocab_size()) {
    throw Error(
        fmt::format("[tokenizer] has {} tokens, but the model's vocabulary holds {}: it belongs to another model. "
                    "Expected one with at most as many; --tokenizer names it",
                    tokenizer->vocab_size(), model.vocab_size()));
  }
  return tokenizer;
}

void add_sampling_options(const Arguments& args, SamplingOptions& options) {
  SamplerOptions& sampling = options.generate.sampling;
  args.option("-n,--max-tokens", options.generate.max_tokens, "New tokens at most").show_default();
  args.option("-t,--temperature", sampling.temperature, "0 takes the most probable token; higher is wilder")
      .show_default();
  args.option("--top-k", sampling.top_k, "Only the k most probable tokens (0: all)").show_default();
  args.option("--top-p", sampling.top_p, "Only the most probable tokens that have this probability together")
      .show_default();
  args.option("--min-p", sampling.min_p, "Only tokens at least this times as probable as the most probable")
      .show_default();
  args.option("--repetition-penalty", sampling.repetition_penalty, "Above 1: tokens seen before become less probable")
      .show_default();
  args.option("--seed", sampling.seed, "Seed of the random choices").show_default();
  args.option("--stop", options.stops, "End at this text, which is not printed; may be given several times")
      .one_value_each();
  args.flag("--ignore-eos", options.ignore_eos, "Go on after an end-of-text token");
}

GenerateOptions generate_options(const SamplingOptions& options, const Model& model, const Tokenizer& tokenizer) {
  GenerateOptions chosen = options.generate;
  chosen.vocab_size = tokenizer.vocab_size();
  if (!options.ignore_eos) {
    chosen.end_ids = model.end_ids();
    if (tokenizer.eos()) chosen.end_ids.push_back(*tokenizer.eos());
  }
  return chosen;
}

}  // namespace deltanet::cli
