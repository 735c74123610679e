// `deltanet convert` and `deltanet init`: checkpoints from checkpoints, and from nothing.

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <memory>

#include "base/file.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "deltanet/error.h"
#include "deltanet/model.h"

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;

struct SaveSettings {
  std::string target, dtype = "f32";
  double max_shard_gb = 50;
  bool force = false, no_checksums = false;
  int threads = 0;
};

void add_save_options(const Arguments& args, SaveSettings& settings) {
  args.option("--dtype", settings.dtype, "Type of the stored values: f32, bf16 or f16").show_default();
  args.option("--max-shard-gb", settings.max_shard_gb, "Split the weights into files of at most this size")
      .show_default()
      .between(1e-9, 1e9);
  args.flag("--force", settings.force, "Replace a checkpoint that is already there");
  args.flag("--no-checksums", settings.no_checksums,
            "Leave out the checksums that `deltanet info --check` compares: the files are upstream's byte for byte");
  args.option("--threads", settings.threads, "Threads (default: one per core)").not_negative();
}

void check_target(const SaveSettings& settings) {
  if (!settings.force && fs::exists(fs::path(settings.target) / "config.json")) {
    throw Error(
        fmt::format("[save] {}: holds a checkpoint already; choose another directory or add --force", settings.target));
  }
}

void save(const Model& model, const SaveSettings& settings) {
  model.save(settings.target, {.dtype = settings.dtype,
                               .max_shard_bytes = static_cast<int64_t>(std::round(settings.max_shard_gb * 1e9)),
                               .checksums = !settings.no_checksums});
  fmt::print("{}: {}, {} parameters, {}\n", settings.target, model.model_type(), grouped_text(model.parameter_count()),
             settings.dtype);
}

std::function<int()> setup_convert(const Arguments& args) {
  const auto settings = std::make_shared<SaveSettings>();
  const auto source = std::make_shared<std::string>();
  args.option("source", *source, "Checkpoint to read").required();
  args.option("target", settings->target, "Directory to write").required();
  add_save_options(args, *settings);
  return [settings, source] {
    check_target(*settings);
    save(Model::load(*source, {.threads = settings->threads}), *settings);
    return 0;
  };
}

struct InitSettings : SaveSettings {
  std::string preset, config;
  uint64_t seed = 0;
};

std::function<int()> setup_init(const Arguments& args) {
  const auto settings = std::make_shared<InitSettings>();
  args.option("target", settings->target, "Directory to write").required();
  const Option preset =
      args.option("--preset", settings->preset, "ROW-SIZE such as pgdn-340m (`deltanet info --presets`)");
  args.option("--config", settings->config, "A config.json instead").excludes(preset);
  args.option("--seed", settings->seed, "Seed of the random values").show_default();
  add_save_options(args, *settings);
  return [settings] {
    if (settings->preset.empty() == settings->config.empty()) {
      throw Error("[init] expected --preset NAME or --config FILE");
    }
    check_target(*settings);
    constexpr int64_t kLargestConfig = int64_t{16} << 20;
    const ModelOptions options{.threads = settings->threads};
    save(settings->config.empty()
             ? Model::from_preset(settings->preset, settings->seed, options)
             : Model::from_config(read_file(settings->config, kLargestConfig), settings->seed, options),
         *settings);
    return 0;
  };
}

const RegisterCommand kConvert({"convert", "Rewrite a checkpoint with another type or in shards", setup_convert});
const RegisterCommand kInit({"init", "Write a checkpoint with random weights", setup_init});

}  // namespace
}  // namespace deltanet::cli
