// The command-line program: `deltanet <subcommand> [options]`. See command.h for how subcommands are added.

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <functional>
#include <new>
#include <string>
#include <system_error>
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

void prepare_files() {
  // The number of a stream that is closed would go to the next file that is opened, and what is said into that file.
  for (int descriptor = STDIN_FILENO; descriptor <= STDERR_FILENO; ++descriptor) {
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
  }
  // The files of a large corpus are all open at once.
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
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
  using namespace deltanet::cli;
  std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // a log should show what has been said when a program is stopped
  prepare_files();
  const bool terminal = isatty(STDOUT_FILENO) == 1;  // fails only when it is closed, which SIGHUP says
  int status = 1;
  std::string trouble;
  try {
    status = run(argc, argv);
  } catch (const std::bad_alloc&) {
    trouble = "not enough memory";
  } catch (const std::filesystem::filesystem_error& error) {
    trouble = error.what();
  } catch (const std::system_error& error) {
    if (!std::ferror(stdout)) trouble = error.what();  // else fmt's words for what follows
  } catch (const std::exception& error) {
    trouble = error.what();
  }
  const bool all_said = (std::fflush(stdout) == 0 && !std::ferror(stdout)) || terminal;
  if (!all_said && trouble.empty()) {
    trouble = "[output] standard output cannot be written; is the disk full, or its reader gone?";
  }
  if (trouble.empty()) return status;
  say(stderr, fmt::format("deltanet: {}\n", trouble));
  return 1;
}
