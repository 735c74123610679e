#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "cli/arguments.h"

namespace deltanet::cli {

// A subcommand of the program. Each lives in a file of its own under src/cli and registers itself there:
//
//   std::function<int()> setup(const Arguments& args) { ... add options ...; return [=] { ... return 0; }; }
//   const RegisterCommand rows_command({"rows", "Print the table of recurrences.", setup});
struct Command {
  std::string_view name;
  std::string_view summary;
  // Adds the options to the subcommand and returns what runs it; the result is the exit status of the program.
  // Variables bound to options must outlive setup: hold them in a std::shared_ptr captured by the returned function.
  std::function<int()> (*setup)(const Arguments& args);
};

// All registered subcommands, sorted by name.
std::vector<Command> commands();

// Adds each as a subcommand; what is returned runs the one that was asked for.
std::function<int()> add_commands(const Arguments& args, std::span<const Command> commands);

struct RegisterCommand {
  explicit RegisterCommand(const Command& command);
};

}  // namespace deltanet::cli
