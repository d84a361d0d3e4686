#include "runtime/record/python_program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>

namespace shardlens::runtime {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

constexpr std::string_view kTriedTorch = "2.11.";
constexpr std::string_view kTriedCuda = "13.";

/// Prints folder, version and CUDA's version of PyTorch, a line each.
constexpr const char* kQuestion = R"(
import importlib.util as util
spec = util.find_spec("torch")
if spec and spec.submodule_search_locations:
    folder, facts = spec.submodule_search_locations[0], {}
    exec(open(folder + "/version.py").read(), facts)
    print(folder, facts["__version__"], facts["cuda"], sep="\n")
)";

struct Output {
  int exit_code = 0;
  std::string text;  // of stdout
};

Output output_of(const Words& command) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe could be made");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = 0;
  const int failure = ::posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  Output output{.exit_code = 127, .text = {}};
  std::array<char, 4096> part{};
  for (ssize_t n = 0; (n = ::read(ends[0], part.data(), part.size())) > 0;) {
    output.text.append(part.data(), static_cast<size_t>(n));
  }
  ::close(ends[0]);
  int status = 0;
  if (failure == 0 && ::waitpid(child, &status, 0) == child && WIFEXITED(status)) {
    output.exit_code = WEXITSTATUS(status);
  }
  return output;
}

std::optional<fs::path> find_program(const std::string& name) {
  const auto is_program = [](const fs::path& path) {
    return ::access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path);
  };
  if (name.find('/') != std::string::npos) {
    return is_program(name) ? std::optional<fs::path>(name) : std::nullopt;
  }
  const char* const paths = std::getenv("PATH");
  std::istringstream folders(paths == nullptr ? "" : paths);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (is_program(fs::path(folder) / name)) return fs::path(folder) / name;
  }
  return std::nullopt;
}

Words lines_of(const std::string& text) {
  Words lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

bool is_python(const fs::path& program) {
  return program.filename().string().starts_with("python");
}

/// What "#!/usr/bin/env python3" or "#!/opt/venv/bin/python" in the first line names.
std::optional<fs::path> interpreter_in(const fs::path& script) {
  std::ifstream file(script, std::ios::binary);
  std::string line;
  if (!std::getline(file, line) || !line.starts_with("#!")) return std::nullopt;
  std::istringstream words(line.substr(2));
  for (std::string word; words >> word;) {
    if (is_python(word)) return find_program(word);
  }
  return std::nullopt;
}

}  // namespace

PythonProgram find_python(const Words& command) {
  const auto program = find_program(command.front());
  if (!program) {
    throw std::invalid_argument(
        fmt::format("{}: no such command; give one that can be run, such as -- python train.py",
                    command.front()));
  }
  const auto named = is_python(*program) ? program : interpreter_in(*program);
  const auto interpreter = named ? named : find_program("python3");
  if (!interpreter) {
    throw std::invalid_argument(fmt::format(
        "{}: it names no Python and there is no python3; start it with python", program->string()));
  }
  const Output answer = output_of({interpreter->string(), "-c", kQuestion});
  // What the user's own sitecustomize prints comes first.
  const Words lines = lines_of(answer.text);
  if (answer.exit_code != 0 || lines.size() < 3) {
    throw std::invalid_argument(
        fmt::format("{}: has no PyTorch; activate the environment that has it, or give its python",
                    interpreter->string()));
  }
  const auto last = lines.end();
  return {.interpreter = interpreter->string(),
          .torch = last[-3],
          .torch_version = last[-2],
          .cuda_version = last[-1]};
}

void check_pytorch(const PythonProgram& program) {
  const bool is_tried = program.torch_version.starts_with(kTriedTorch) &&
                        program.cuda_version.starts_with(kTriedCuda);
  if (is_tried) return;
  throw std::invalid_argument(fmt::format(
      "PyTorch {} (CUDA {}) of {} was not tried; record with PyTorch {}x for CUDA {}x",
      program.torch_version, program.cuda_version, program.interpreter, kTriedTorch, kTriedCuda));
}

void check_stubs(const PythonProgram& program, const fs::path& make_stubs, const fs::path& stubs) {
  const Output lacking = output_of({program.interpreter, make_stubs.string(), "--check",
                                    program.torch.string(), stubs.string()});
  if (lacking.exit_code == 0) return;
  throw std::invalid_argument(fmt::format("PyTorch {} of {} was not tried: {}",
                                          program.torch_version, program.interpreter,
                                          lacking.text.substr(0, lacking.text.find('\n'))));
}

}  // namespace shardlens::runtime
