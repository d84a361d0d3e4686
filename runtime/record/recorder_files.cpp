#include "runtime/record/recorder_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <stdexcept>
#include <string>

#include "input/program_output.h"

namespace shardlens::runtime {

namespace {

namespace fs = std::filesystem;

/// Of the files that every recorder has or is found by.
fs::path existing(const fs::path& path) {
  if (fs::exists(path)) return path;
  throw std::runtime_error(fmt::format("{} is missing; run make build", path.string()));
}

RecordFiles files_in(const fs::path& folder, const fs::path& stubs, const fs::path& record) {
  return {.library = existing(folder / "libshardlens_python.so"),
          .python = existing(record / "python"),
          .stubs = existing(stubs)};
}

/// "2.10.0+cu128-f00ba4c0ffee-c0ffeef00ba4": of which wheel it is, and of which sources of ours.
std::string recorder_name(const PythonProgram& program, const fs::path& record) {
  if (program.wheel.empty()) {
    throw std::invalid_argument(fmt::format(
        "PyTorch {} in {} has no RECORD, by which its recorder is kept; install it with pip",
        program.torch_version, program.torch.string()));
  }
  std::ifstream file(existing(record / "sources.sha256"));
  std::string sources;
  file >> sources;
  return fmt::format("{}-{}-{}", program.torch_version, program.wheel, sources.substr(0, 12));
}

/// Recorders that were built, and receipts.
fs::path cache_in(const fs::path& record) { return record / "pytorch"; }

bool is_build(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "CMakeCache.txt", ignored);
}

/// Why others than the user may have put into the cache what is there, and what to do; empty: they
/// cannot have, or there is none. One that was installed is its installer's, root's or the user's,
/// who alone can write to it.
std::string why_not_private(const fs::path& record) {
  const std::string path = cache_in(record).string();
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return {};
  const bool is_installed = !is_build(record.parent_path());
  if (!S_ISDIR(found.st_mode)) return fmt::format("{0} is no folder; run rm {0}", path);
  if (found.st_uid != ::geteuid() && !(is_installed && found.st_uid == 0)) {
    return fmt::format("{} belongs to user {}, not to you; build Shardlens in a folder of your own",
                       path, found.st_uid);
  }
  const mode_t mode = found.st_mode & 0777;
  if ((mode & 022) != 0) {
    return fmt::format("{} has mode {:04o}: others can write to it; {}", path, mode,
                       is_installed ? "install Shardlens again"
                                    : fmt::format("run rm -r {}, it is made again", path));
  }
  if (is_installed || mode == 0700) return {};
  return fmt::format("{0} has mode {1:04o}, not 0700; run chmod 700 {0}", path, mode);
}

/// Is there once the stubs were compared with this wheel; empty: nothing names the wheel, or others
/// may have left it.
fs::path receipt_of(const PythonProgram& program, const fs::path& record) {
  if (program.wheel.empty() || !why_not_private(record).empty()) return {};
  return cache_in(record) / (recorder_name(program, record) + ".checked");
}

/// Where the installation is another user's there is none, and each run compares again.
void leave(const fs::path& receipt) {
  if (receipt.empty()) return;
  ::mkdir(receipt.parent_path().c_str(), 0700);
  std::ofstream{receipt};
}

/// By its version and CUDA's: libraries of one major version of CUDA have the same names.
bool is_of_build(const PythonProgram& program) {
  const std::string_view own = SHARDLENS_TORCH_VERSION;
  const std::string_view minor = own.substr(0, own.rfind('.') + 1);  // "2.15."
  return program.torch_version.starts_with(minor) &&
         program.cuda_version.starts_with(SHARDLENS_CUDA_MAJOR ".");
}

/// The stubs have all that this wheel calls.
bool is_answered_by(const fs::path& stubs, const PythonProgram& program, const fs::path& record) {
  const fs::path receipt = receipt_of(program, record);
  std::error_code ignored;
  if (!receipt.empty() && fs::exists(receipt, ignored)) return true;
  const fs::path make_stubs = existing(record / "make_stubs.py");
  const input::ProgramOutput lacking =
      input::output_of({program.interpreter, make_stubs.string(), "--check", program.torch.string(),
                        stubs.string()});
  if (lacking.exit_code != 0) return false;
  leave(receipt);
  return true;
}

/// Of the sources that a build folder was configured for; empty: it is none.
fs::path sources_of(const fs::path& build) {
  constexpr std::string_view kEntry = "CMAKE_HOME_DIRECTORY:INTERNAL=";
  std::ifstream cache(build / "CMakeCache.txt");
  for (std::string line; std::getline(cache, line);) {
    if (line.starts_with(kEntry)) return line.substr(kEntry.size());
  }
  return {};
}

void build(const PythonProgram& program, const fs::path& record, const std::string& name) {
  const fs::path sources = sources_of(record.parent_path());
  const fs::path script = sources / ".setup" / "recorder";
  if (sources.empty() || !fs::exists(script)) {
    throw std::invalid_argument(fmt::format(
        "there is no recorder for PyTorch {} here, nor the sources to build it; run build/bin/"
        "shardlens record where Shardlens was built, with {}, and cmake --install again",
        program.torch_version, program.interpreter));
  }
  const input::ProgramOutput said =
      input::output_of({script.string(), record.parent_path().string(), program.torch.string(),
                        program.torch_version, name});
  if (said.exit_code == 0) return;
  const auto lines = input::lines_of(said.text);
  throw std::runtime_error(fmt::format("there is no recorder for PyTorch {}: {}",
                                       program.torch_version,
                                       lines.empty() ? "its build was ended" : lines.back()));
}

}  // namespace

RecordFiles recorder_for(const PythonProgram& program, const fs::path& record, Answers answers) {
  check_pytorch(program);
  const fs::path stubs = record.parent_path() / "null_device";
  if (is_of_build(program) && (answers == Answers::gpu || is_answered_by(stubs, program, record))) {
    return files_in(record, stubs, record);
  }
  const std::string name = recorder_name(program, record);
  const std::string why_not = why_not_private(record);
  if (!why_not.empty()) {
    throw std::invalid_argument(fmt::format("the recorder for PyTorch {} is not loaded: {}",
                                            program.torch_version, why_not));
  }
  const fs::path folder = cache_in(record) / name;
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) build(program, record, name);
  return files_in(folder, folder / "null_device", record);
}

}  // namespace shardlens::runtime
