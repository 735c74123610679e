#include "cli/pictures.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

namespace deltanet::cli {
namespace {

namespace fs = std::filesystem;

// The interpreter of the project that this program was built in: build/release/deltanet -> .venv/bin/python.
fs::path project_python() {
  std::error_code ignored;
  fs::path folder = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  for (int up = 0; up < 4 && !folder.empty(); ++up, folder = folder.parent_path()) {
    const fs::path python = folder / ".venv" / "bin" / "python";
    if (fs::exists(python, ignored)) return python;
  }
  return {};
}

int exit_status(const std::vector<std::string>& words) {
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  std::fflush(stdout);
  const pid_t child = fork();
  if (child == 0) {
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  int status = 0;
  if (child < 0 || waitpid(child, &status, 0) < 0) return 127;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 127;
}

}  // namespace

void draw(const std::string& kind, const fs::path& path) {
  const fs::path python = project_python();
  if (!python.empty() && exit_status({python.string(), "-m", "deltanet.plots", kind, path.string()}) == 0) return;
  fmt::print("For a picture: pip install matplotlib and the Python module, then python -m deltanet.plots {} {}\n", kind,
             path.string());
}

}  // namespace deltanet::cli
