// `deltanet info`: what a checkpoint or a preset is.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/text.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/terminal.h"
#include "deltanet/error.h"
#include "model/checkpoint/checkpoint.h"
#include "model/config/config.h"
#include "model/layout.h"
#include "model/state.h"
#include "model/weights.h"
#include "recurrence/preconditioners.h"

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;

struct Settings {
  std::string directory, preset;
  bool json = false, all = false, list = false, check = false;
};

std::string mixer_text(const Config& config) {
  if (config.row.empty()) return "softmax attention";
  std::string text = fmt::format("{} ({})", config.row, find_row(config.row).summary);
  for (const AttentionConfig& attention : config.attention) {
    text += fmt::format("; softmax attention in layers {}", fmt::join(attention.layers, ", "));
    if (attention.window > 0) text += fmt::format(" over {} tokens", attention.window);
  }
  return text;
}

std::string gate_text(OutputGate gate) {
  switch (gate) {
    case OutputGate::kNone:
      return "none";
    case OutputGate::kSilu:
      return "silu";
    case OutputGate::kSigmoid:
      return "sigmoid";
    case OutputGate::kSigmoidLowRank:
      return "sigmoid, low rank";
  }
  return "";
}

void print_config(const Config& config, const Layout& layout) {
  std::vector<std::vector<std::string>> table = {
      {"model type", config.model_type},
      {"mixer", mixer_text(config)},
      {"layers", std::to_string(config.num_hidden_layers)},
      {"width", fmt::format("{}, MLP {}", config.hidden_size, config.intermediate_size)},
  };
  if (!config.row.empty()) {
    table.push_back({"heads", fmt::format("{} keys of {}, {} values of {}", config.num_heads, config.head_dim,
                                          config.num_v_heads, config.head_v_dim)});
    table.push_back({"convolution", config.conv_size > 0 ? fmt::format("width {}", config.conv_size) : "none"});
    table.push_back({"output gate", gate_text(config.output_gate)});
    if (squashes(config.spec)) {
      table.push_back({"preconditioner", fmt::format("x {}, eps {}", config.spec.x, config.spec.eps)});
    }
  } else {
    const AttentionConfig& attention = config.attention.front();
    table.push_back({"heads", fmt::format("{} queries, {} keys", attention.num_heads, attention.num_kv_heads)});
  }
  table.push_back({"vocabulary", fmt::format("{}, head {}", config.vocab_size,
                                             config.tie_word_embeddings ? "tied to the embeddings" : "separate")});
  table.push_back({"parameters", bold(grouped_text(layout.parameter_count()))});
  table.push_back({"state", fmt::format("{} per sequence", bytes_text(static_cast<double>(State(layout, 1).bytes())))});
  print_table(table);
}

// Layers mostly look alike, so only the first of each kind is listed unless all are wanted.
void print_parameters(const Layout& layout, const CheckpointReader* reader, bool all) {
  std::vector<std::vector<std::string>> table = {{bold("parameter"), bold("shape"), bold("count"), bold("stored")}};
  std::string last_shown;
  int64_t hidden_layers = 0;
  for (const Parameter& parameter : layout.parameters()) {
    constexpr std::string_view kPrefix = "model.layers.";
    if (!all && parameter.name.starts_with(kPrefix)) {
      const int64_t layer = std::stoll(parameter.name.substr(kPrefix.size()));
      const bool is_first_of_kind = layer == 0 || (layout.layers()[layer].attention_config != nullptr) !=
                                                      (layout.layers()[layer - 1].attention_config != nullptr);
      if (!is_first_of_kind) {
        hidden_layers = std::max(hidden_layers, layer);
        continue;
      }
    }
    const StoredTensor* tensor = reader ? reader->find(parameter.name) : nullptr;
    table.push_back({parameter.name, shape_text(parameter.shape), grouped_text(parameter.size),
                     tensor ? std::string(dtype_name(tensor->dtype)) : "-"});
  }
  fmt::print("\n");
  print_table(table, {2});
  if (hidden_layers > 0) fmt::print("\nOther layers have the same parameters; --all lists them.\n");
}

nlohmann::json info_json(const Config& config, const Layout& layout, const CheckpointReader* reader) {
  nlohmann::json parameters = nlohmann::json::array();
  for (const Parameter& parameter : layout.parameters()) {
    const StoredTensor* tensor = reader ? reader->find(parameter.name) : nullptr;
    parameters.push_back({{"name", parameter.name},
                          {"shape", parameter.shape},
                          {"count", parameter.size},
                          {"dtype", tensor ? nlohmann::json(dtype_name(tensor->dtype)) : nlohmann::json()}});
  }
  return {{"config", nlohmann::json::parse(config_text(config, "float32"))},
          {"parameter_count", layout.parameter_count()},
          {"state_bytes", State(layout, 1).bytes()},
          {"parameters", parameters}};
}

// Reads all values of a checkpoint and compares them with what was written.
int check_values(const std::string& directory, const CheckpointReader& reader) {
  const CheckpointReader::Check check = reader.check_values();
  if (!check.damaged.empty()) {
    constexpr std::size_t kShown = 5;
    std::string names;
    for (std::size_t i = 0; i < std::min(kShown, check.damaged.size()); ++i)
      names += (i > 0 ? "; " : "") + check.damaged[i];
    if (check.damaged.size() > kShown) names += "; ...";
    throw Error(fmt::format("[info] {}: {} of {} tensors are not what was written; the files are damaged: {}",
                            directory, check.damaged.size(), check.tensors, names));
  }
  if (check.without == check.tensors) {
    fmt::print("No checksums: another program wrote {}, or it was written without. `deltanet convert` writes them.\n",
               directory);
  } else if (check.without > 0) {
    fmt::print("{} of {} tensors are as they were written; the others have no checksums.\n",
               check.tensors - check.without, check.tensors);
  } else {
    fmt::print("All {} tensors are as they were written.\n", check.tensors);
  }
  return 0;
}

int run(const Settings& settings) {
  if (settings.list) {
    for (const std::string& name : preset_names()) fmt::print("{}\n", name);
    return 0;
  }
  if (settings.directory.empty() == settings.preset.empty()) {
    throw Error("[info] expected a checkpoint directory or --preset NAME (--presets lists them)");
  }
  const bool from_disk = !settings.directory.empty();
  if (settings.check && !from_disk) throw Error("[info] --check: expected a checkpoint directory");
  const Config config =
      from_disk ? load_config((fs::path(settings.directory) / "config.json").string()) : preset_config(settings.preset);
  const Layout layout(config);
  std::unique_ptr<CheckpointReader> reader;
  if (from_disk) {
    reader = std::make_unique<CheckpointReader>(settings.directory);
    check_tensors(layout, *reader);
  }
  if (settings.check) return check_values(settings.directory, *reader);
  if (settings.json) {
    fmt::print("{}\n", info_json(config, layout, reader.get()).dump(2));
  } else {
    print_config(config, layout);
    print_parameters(layout, reader.get(), settings.all);
  }
  return 0;
}

std::function<int()> setup(const Arguments& args) {
  const auto settings = std::make_shared<Settings>();
  args.option("directory", settings->directory, "Checkpoint directory");
  args.option("--preset", settings->preset, "A preset instead, ROW-SIZE such as pgdn-340m");
  args.flag("--presets", settings->list, "List the presets");
  args.flag("--all", settings->all, "List the parameters of every layer");
  args.flag("--json", settings->json, "Print JSON");
  args.flag("--check", settings->check, "Compare all values with their checksums instead");
  return [settings] { return run(*settings); };
}

const RegisterCommand kInfo({"info", "Show the configuration and parameters of a checkpoint or preset", setup});

}  // namespace
}  // namespace deltanet::cli
