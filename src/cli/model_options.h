#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cli/arguments.h"
#include "deltanet/model.h"
#include "deltanet/tokenizer.h"

// Options that the subcommands on models share.

namespace deltanet::cli {

struct RunOptions {
  std::string directory;
  std::string weights = "f32";
  std::string tokenizer;  // empty: the one in the directory
  int threads = 0;
  bool no_special = false;  // do not put the tokens around a prompt that the tokenizer asks for
};

void add_run_options(const Arguments& args, RunOptions& options);

Model load_model(const RunOptions& options);
// The tokenizer of the directory, or the one asked for: a file, a directory, or "bytes". A vocabulary that the model
// cannot hold is an Error.
std::unique_ptr<Tokenizer> load_tokenizer_for(const RunOptions& options, const Model& model);

struct SamplingOptions {
  GenerateOptions generate;
  std::vector<std::string> stops;
  bool ignore_eos = false;
};

void add_sampling_options(const Arguments& args, SamplingOptions& options);
// With the end tokens that the model and the tokenizer name, unless they are to be ignored, and no tokens that the
// tokenizer does not have.
GenerateOptions generate_options(const SamplingOptions& options, const Model& model, const Tokenizer& tokenizer);

}  // namespace deltanet::cli
