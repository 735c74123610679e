// The command-line program: `deltanet <subcommand> [options]`. See command.h for how subcommands are added.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/terminal.h"
#include "deltanet/deltanet.h"

namespace deltanet::cli {
namespace {

std::vector<Command>& registry() {
  static std::vector<Command> commands;
  return commands;
}

std::string version_text() {
  std::string targets;
  for (const std::string& target : simd_targets()) targets += (targets.empty() ? "" : ", ") + target;
  return fmt::format("deltanet {} (SIMD {}; available: {}; {} threads)", version(), simd_target(), targets,
                     default_threads());
}

// CLI11 takes [a,b] for a list, even where it is a file to tokenize.
std::vector<std::string> plain_arguments(int argc, char** argv) {
  std::vector<std::string> arguments(argv, argv + argc);
  if (argc < 2 || arguments[1] != "tokenize") return arguments;
  for (std::string& argument : arguments) {
    if (argument.starts_with('[') && argument.ends_with(']') && std::filesystem::exists(argument)) {
      argument.insert(0, "./");
    }
  }
  return arguments;
}

int run(int argc, char** argv) {
  CLI::App app("Delta-rule linear attention on CPUs.", "deltanet");
  app.set_version_flag("--version", version_text);
  std::string simd;
  app.add_option("--simd", simd, "Use this SIMD target instead of the best one (see --version)");
  const std::function<int()> action = add_commands(Arguments(app), commands());
  if (argc == 1) {
    std::fputs(app.help().c_str(), stdout);
    return 0;
  }
  const std::vector<std::string> arguments = plain_arguments(argc, argv);
  std::vector<const char*> pointers;
  for (const std::string& argument : arguments) pointers.push_back(argument.c_str());
  try {
    app.parse(argc, pointers.data());
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  if (!simd.empty()) set_simd_target(simd);
  return action();
}

}  // namespace

std::vector<Command> commands() {
  std::vector<Command> sorted = registry();
  std::sort(sorted.begin(), sorted.end(), [](const Command& a, const Command& b) { return a.name < b.name; });
  return sorted;
}

RegisterCommand::RegisterCommand(const Command& command) { registry().push_back(command); }

}  // namespace deltanet::cli

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a log should show what has been said when a program is stopped
  try {
    return deltanet::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    deltanet::cli::say(stderr, "deltanet: not enough memory\n");
    return 1;
  } catch (const std::exception& error) {
    deltanet::cli::say(stderr, fmt::format("deltanet: {}\n", error.what()));
    return 1;
  }
}
