#include "profiler/record/python_program.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>

#include "base/input_file.h"
#include "base/process/installation.h"
#include "base/process/program_output.h"
#include "base/shown.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// Names the versions that tests/profiler/record was run with: the beginnings of PyTorch's version
/// and of its CUDA's.
struct TriedVersion {
  std::string_view torch;
  std::string_view cuda;
};
constexpr std::array<TriedVersion, 7> kTried = {{{"2.9.", "12.8"},
                                                 {"2.10.", "12.8"},
                                                 {"2.11.", "13."},
                                                 {"2.12.", "13."},
                                                 {"2.13.", "13."},
                                                 {"2.14.", "13."},
                                                 {"2.15.", "13."}}};

/// Prints which Python it is, and the fields of PythonProgram, one line each. Without a RECORD, the
/// contents of the files would tell most, but they are gigabytes, and every recording asks.
/// Building or installing PyTorch again writes its files again, which changes their times. If a
/// package manager sets all times to the same value, the sizes of a hundred libraries differ, or
/// the folder does.
constexpr const char* kQuestion = R"(
import glob, hashlib, importlib.util as util, os, sys
def files_of(folder):
    for part in ("lib", "include"):
        for place, _, names in os.walk(os.path.join(folder, part), followlinks=True):
            yield from (os.path.join(place, name) for name in names)
def line_of(path):
    found = os.stat(path)
    return f"{path} {found.st_size} {found.st_mtime_ns}\n"
spec = util.find_spec("torch")
if spec and spec.submodule_search_locations:
    folder, facts = spec.submodule_search_locations[0], {}
    exec(open(folder + "/version.py").read(), facts)
    records = glob.glob(glob.escape(folder) + "/../torch-*.dist-info/RECORD")
    parts = sorted(line for record in records for line in open(record)
                   if line.startswith(("torch/lib/", "torch/include/")))
    parts = parts or sorted(line_of(path) for path in files_of(folder) if os.path.exists(path))
    wheel = hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
    without_cuda = "ROCm" if facts.get("hip") else "none"
    print(sys.executable, folder, facts["__version__"], facts["cuda"] or without_cuda, wheel,
          sep="\n", flush=True)
)";

/// Ends the Python that has answered. It follows the question's last line, which runs only if
/// PyTorch was found: a runner may start other Pythons before the program's, to build packages.
constexpr const char* kEnd = "    os._exit(0)\n";

}  // namespace

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

namespace {

bool is_python(const std::string& program) {
  return fs::path(program).filename().string().starts_with("python");
}

/// Parses "#!/usr/bin/env python3 -u" into {"python3", "-u"}: the Python that the first line of a
/// script names, and its flags. Returns no words if it names none.
Words first_line_of(const fs::path& script) {
  constexpr uint64_t kMostBytes = 4096;
  const InputFile file(script);
  std::string line(std::min(file.bytes(), kMostBytes), '\0');
  if (!file.read_at(0, std::as_writable_bytes(std::span(line)))) return {};
  line.resize(std::min(line.find('\n'), line.size()));
  if (!line.starts_with("#!")) return {};
  std::istringstream stream(line.substr(2));
  Words words{std::istream_iterator<std::string>(stream), {}};
  words.erase(words.begin(), std::ranges::find_if(words, is_python));
  return words;
}

std::optional<fs::path> interpreter_in(const fs::path& script) {
  const Words words = first_line_of(script);
  return words.empty() ? std::nullopt : find_program(words.front());
}

/// Names the programs whose `run` starts a command in an environment that they find or make. Only
/// they know which Python that is, even if they are written in Python themselves.
struct Runner {
  std::string_view name;
  std::string_view adds;  // the command that adds PyTorch to the environment
};
constexpr std::array<Runner, 10> kRunners = {{{"uv", "uv add torch"},
                                              {"poetry", "poetry add torch"},
                                              {"pdm", "pdm add torch"},
                                              {"pipenv", "pipenv install torch"},
                                              {"hatch", "hatch run pip install torch"},
                                              {"rye", "rye add torch"},
                                              {"pixi", "pixi add --pypi torch"},
                                              {"conda", "conda run pip install torch"},
                                              {"mamba", "mamba run pip install torch"},
                                              {"micromamba", "micromamba run pip install torch"}}};

/// Returns the runner of `uv run ...`; null if the command starts none.
const Runner* runner_of(const fs::path& program, const Words& command) {
  if (std::ranges::count(command, "run") == 0) return nullptr;
  const auto found = std::ranges::find(kRunners, program.filename().string(), &Runner::name);
  return found == kRunners.end() ? nullptr : &*found;
}

/// Returns a command line that starts the command so that its first Python with PyTorch answers the
/// question and ends (profiler/record/python/sitecustomize.py).
Words question_to(const Runner& runner, const Words& command) {
  const char* const before = std::getenv("PYTHONPATH");
  const std::string ours = (support_folder("record") / "python").string();
  Words words = {"env", fmt::format("PYTHONPATH={}:{}", ours, before == nullptr ? "" : before),
                 fmt::format("SHARDLENS_RUNNER={}", runner.name),
                 fmt::format("SHARDLENS_QUESTION={}{}", kQuestion, kEnd)};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

/// Reads an answer from the last lines, since the user's own sitecustomize may print lines first.
/// Returns nothing if there is no answer.
std::optional<PythonProgram> program_in(const ProgramOutput& answer) {
  const Words lines = lines_of(answer.text);
  if (answer.exit_code != 0 || lines.size() < 5) return std::nullopt;
  const auto last = lines.end();
  return PythonProgram{.interpreter = last[-5],
                       .torch = last[-4],
                       .torch_version = last[-3],
                       .cuda_version = last[-2],
                       .wheel = last[-1]};
}

PythonProgram python_of(const Runner& runner, const Words& command) {
  const auto program = program_in(output_of(question_to(runner, command)));
  if (program) return *program;
  throw std::invalid_argument(
      fmt::format("{} run: the Python that it starts has no PyTorch; run {}, or give the python of "
                  "an environment that has it",
                  runner.name, runner.adds));
}

bool is_digit(char c) { return '0' <= c && c <= '9'; }

/// True for a version such as "2.15.0+cu130", "2.16.0.dev20261120", "2.11.0a0+git1234567".
bool is_version(std::string_view text) {
  const auto is_part = [](char c) {
    return is_digit(c) || ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || c == '.' ||
           c == '+' || c == '-' || c == '_';
  };
  return !text.empty() && is_digit(text.front()) && text.size() <= 100 &&
         std::ranges::all_of(text, is_part);
}

/// Returns the isolating flag among the flags that follow a Python, or "".
std::string isolating_flag_in(const Words& words) {
  for (size_t i = 1; i < words.size() && words[i].size() > 1 && words[i][0] == '-'; ++i) {
    if (words[i].starts_with("--")) continue;
    for (size_t letter = 1; letter < words[i].size(); ++letter) {
      const char flag = words[i][letter];
      if (flag == 'I' || flag == 'E' || flag == 'S') return {'-', flag};
      if (flag == 'c' || flag == 'm') return {};  // the program follows
      if (flag != 'W' && flag != 'X') continue;
      if (letter + 1 == words[i].size()) ++i;  // its value is the next word
      break;
    }
  }
  return {};
}

}  // namespace

PythonProgram find_python(const Words& command) {
  const auto program = find_program(command.front());
  if (!program) {
    throw std::invalid_argument(
        fmt::format("{}: no such command; give one that can be run, such as -- python train.py",
                    command.front()));
  }
  if (const Runner* const runner = runner_of(*program, command)) {
    return python_of(*runner, command);
  }
  const auto named = is_python(program->string()) ? program : interpreter_in(*program);
  const auto interpreter = named ? named : find_program("python3");
  if (!interpreter) {
    throw std::invalid_argument(fmt::format(
        "{}: names no Python, and there is no python3; start it with python", program->string()));
  }
  auto found = program_in(output_of({interpreter->string(), "-c", kQuestion}));
  if (!found) {
    throw std::invalid_argument(
        fmt::format("{}: has no PyTorch; activate the environment that has it, or give its python",
                    interpreter->string()));
  }
  found->interpreter = interpreter->string();
  return *found;
}

std::string isolating_flag(const Words& command) {
  const auto program = find_program(command.front());
  if (!program) return {};
  return isolating_flag_in(is_python(program->string()) ? command : first_line_of(*program));
}

void check_pytorch(const PythonProgram& program) {
  // The version also names a folder of ours, so it must be safe as a name.
  if (!is_version(program.torch_version)) {
    throw std::invalid_argument(fmt::format(
        "PyTorch of {} calls itself version '{}', which is not a version; install it again",
        program.interpreter, shown(program.torch_version)));
  }
  if (is_version(program.cuda_version)) return;
  throw std::invalid_argument(fmt::format(
      "PyTorch {} of {} is built {}; record with one that is built for CUDA, such as pip install "
      "torch provides",
      program.torch_version, program.interpreter,
      program.cuda_version == "ROCm" ? "for ROCm" : "without CUDA"));
}

std::vector<std::string> doubts_of(const PythonProgram& program) {
  const bool is_tried = std::ranges::any_of(kTried, [&](const TriedVersion& tried) {
    return program.torch_version.starts_with(tried.torch) &&
           program.cuda_version.starts_with(tried.cuda);
  });
  if (is_tried) return {};
  return {fmt::format(
      "PyTorch {} (CUDA {}) was not tried: nobody has compared its recordings with its own "
      "counters",
      program.torch_version, program.cuda_version)};
}

}  // namespace shardlens::profiler
