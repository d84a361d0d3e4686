#include "profiler/record/recorder_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/fault.h"
#include "base/process/program_output.h"

namespace shardlens::profiler {

namespace {

namespace fs = std::filesystem;

/// Returns the path, and throws if it is missing. It is for files that every recorder has or that
/// we find a recorder by.
fs::path require_existing(const fs::path& path) {
  if (fs::exists(path)) return path;
  throw std::runtime_error(fmt::format(
      "{} is missing; run make build, or install the wheel of Shardlens again", path.string()));
}

RecordFiles files_in(const fs::path& folder, const fs::path& stubs, const fs::path& record) {
  return {.library = require_existing(folder / "libshardlens_python.so"),
          .python = require_existing(record / "python"),
          .stubs = require_existing(stubs)};
}

/// Returns "2.10.0+cu128-f00ba4c0ffee-c0ffeef00ba4", which names the wheel and our sources.
std::string recorder_name(const PythonProgram& program, const fs::path& record) {
  std::ifstream file(require_existing(record / "sources.sha256"));
  std::string sources;
  file >> sources;
  return fmt::format("{}-{}-{}", program.torch_version, program.wheel, sources.substr(0, 12));
}

/// Returns the folder of built recorders and of receipts.
fs::path cache_in(const fs::path& record) { return record / "pytorch"; }

bool is_build(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / "CMakeCache.txt", ignored);
}

/// True if all users that can write to a folder with the status `one` can also write to `other`.
bool is_as_private_as(const struct stat& one, const fs::path& other) {
  struct stat found {};
  if (::stat(other.c_str(), &found) != 0) return false;
  const bool is_trusted = one.st_uid == found.st_uid || one.st_uid == 0;
  return is_trusted && (one.st_mode & 022 & ~found.st_mode) == 0;
}

/// Returns why other users may have written the contents of the cache, and what to do about it;
/// nothing if they cannot have, or if there is no cache. In an installation, users that can write
/// to `record`, from which the recorder for our own PyTorch is loaded, may also write to the cache.
Problem why_not_private(const fs::path& record) {
  const std::string path = cache_in(record).string();
  struct stat found {};
  if (::lstat(path.c_str(), &found) != 0) return std::nullopt;
  const bool is_installed = !is_build(record.parent_path());
  if (!S_ISDIR(found.st_mode)) return fmt::format("{0} is not a folder; run rm {0}", path);
  if (is_installed && is_as_private_as(found, record)) return std::nullopt;
  if (found.st_uid != ::geteuid() && !(is_installed && found.st_uid == 0)) {
    return fmt::format("{} belongs to user {}, not to you; build Shardlens in a folder of your own",
                       path, found.st_uid);
  }
  const mode_t mode = found.st_mode & 0777;
  if ((mode & 022) != 0) {
    return fmt::format("{} has mode {:04o}: others can write to it; {}", path, mode,
                       is_installed ? "install Shardlens again"
                                    : fmt::format("run rm -r {}, Shardlens makes it again", path));
  }
  if (is_installed || mode == 0700) return std::nullopt;
  return fmt::format("{0} has mode {1:04o}, not 0700; run chmod 700 {0}", path, mode);
}

fs::path stubs_of_build(const fs::path& record) { return record.parent_path() / "null_device"; }

/// Returns a file that exists once the stubs of the build were compared with this wheel. Returns ""
/// for other stubs, or if another user may have left the file.
fs::path receipt_of(const fs::path& stubs, const PythonProgram& program, const fs::path& record) {
  if (stubs != stubs_of_build(record) || why_not_private(record)) return {};
  return cache_in(record) / (recorder_name(program, record) + ".checked");
}

/// Writes the receipt. If the installation is another user's this fails, and each run compares
/// again.
void leave(const fs::path& receipt) {
  if (receipt.empty()) return;
  ::mkdir(receipt.parent_path().c_str(), 0700);
  std::ofstream{receipt};
}

/// True if the wheel has the version of the build's PyTorch and CUDA. Libraries of the same major
/// version of CUDA have the same names.
bool is_of_build(const PythonProgram& program) {
  const std::string_view own = SHARDLENS_TORCH_VERSION;
  const std::string_view minor = own.substr(0, own.rfind('.') + 1);  // "2.15."
  return program.torch_version.starts_with(minor) &&
         program.cuda_version.starts_with(SHARDLENS_CUDA_MAJOR ".");
}

/// Returns a text that names the calls of this wheel that the stubs lack, or nothing if they have
/// all.
Problem lack_in(const fs::path& stubs, const PythonProgram& program, const fs::path& record) {
  const fs::path receipt = receipt_of(stubs, program, record);
  std::error_code ignored;
  if (!receipt.empty() && fs::exists(receipt, ignored)) return std::nullopt;
  const fs::path make_stubs = require_existing(record / "make_stubs.py");
  const ProgramOutput said = output_of({program.interpreter, make_stubs.string(), "--check",
                                        program.torch.string(), stubs.string()});
  if (said.exit_code == 0) {
    leave(receipt);
    return std::nullopt;
  }
  const auto lines = lines_of(said.text);
  return lines.empty() ? "its calls cannot be compared with the null device's" : lines.back();
}

/// Returns the sources that a build folder was configured for, or "" if it is not a build folder.
fs::path sources_of(const fs::path& build) {
  constexpr std::string_view kEntry = "CMAKE_HOME_DIRECTORY:INTERNAL=";
  std::ifstream cache(build / "CMakeCache.txt");
  for (std::string line; std::getline(cache, line);) {
    if (line.starts_with(kEntry)) return line.substr(kEntry.size());
  }
  return {};
}

/// Builds the recorder. Returns why that failed and how to fix it; nothing if it succeeded.
Problem why_not_built(const PythonProgram& program, const fs::path& record,
                      const std::string& name) {
  const std::string none =
      fmt::format("there is no recorder for PyTorch {}", program.torch_version);
  const fs::path sources = sources_of(record.parent_path());
  const fs::path script = sources / ".setup" / "recorder";
  if (sources.empty() || !fs::exists(script)) {
    return fmt::format(
        "{} here, nor the sources to build it; record where Shardlens is built from its sources, "
        "with {}",
        none, program.interpreter);
  }
  const ProgramOutput said = output_of({script.string(), record.parent_path().string(),
                                        program.torch.string(), program.torch_version, name});
  if (said.exit_code == 0) return std::nullopt;
  const auto lines = lines_of(said.text);
  return fmt::format("{}: {}", none,
                     lines.empty() ? "its build ended without a message" : lines.back());
}

bool is_for_cuda_of(const PythonProgram& program, const fs::path& stubs) {
  const std::string major = program.cuda_version.substr(0, program.cuda_version.find('.'));
  std::error_code ignored;
  return fs::exists(stubs / ("libcudart.so." + major), ignored);
}

/// Returns the folders of complete recorders; the name of one being built begins with a dot.
std::vector<fs::path> kept_in(const fs::path& record) {
  std::vector<fs::path> all;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(cache_in(record), ignored)) {
    const bool is_whole = entry.path().filename().string().front() != '.';
    if (is_whole && entry.is_directory()) all.push_back(entry.path());
  }
  std::ranges::sort(all);
  return all;
}

/// Returns "2.10." for "2.10.0+cu128".
std::string minor_of(const std::string& torch_version) {
  return torch_version.substr(0, torch_version.find('.', torch_version.find('.') + 1) + 1);
}

/// Returns the recorder that an installation has for this wheel, or "". It cannot build one for
/// each wheel. There is one wheel of PyTorch for each Python, and the parts of its libraries that
/// the recorder uses are the same in all wheels of a version.
std::string recorder_of_installation(const PythonProgram& program, const fs::path& record,
                                     CudaProvider answers) {
  if (is_build(record.parent_path())) return {};
  for (const fs::path& kept : kept_in(record)) {
    const fs::path stubs = kept / "null_device";
    const std::string name = kept.filename().string();
    if (!name.starts_with(minor_of(program.torch_version))) continue;
    if (!is_for_cuda_of(program, stubs)) continue;
    if (answers == CudaProvider::gpu || !lack_in(stubs, program, record)) return name;
  }
  return {};
}

/// Returns the name of the recorder that this PyTorch has, or that is to be built for it.
std::string name_for(const PythonProgram& program, const fs::path& record, CudaProvider answers) {
  const std::string own = recorder_name(program, record);
  std::error_code ignored;
  if (fs::exists(cache_in(record) / own, ignored) || why_not_private(record)) return own;
  const std::string installed = recorder_of_installation(program, record, answers);
  return installed.empty() ? own : installed;
}

/// Returns nothing if the recorder exists or was built now; else why not.
Problem why_no_recorder(const PythonProgram& program, const fs::path& record,
                        const std::string& name) {
  if (const Problem why_not = why_not_private(record)) {
    return fmt::format("the recorder for PyTorch {} is not loaded: {}", program.torch_version,
                       *why_not);
  }
  std::error_code ignored;
  if (fs::exists(cache_in(record) / name, ignored)) return std::nullopt;
  return why_not_built(program, record, name);
}

// ---- without a recorder -------------------------------------------------------------------------

/// Returns the stubs for this CUDA, of the build and of the kept recorders. If there are none, it
/// returns the build's.
std::vector<fs::path> possible_stubs(const PythonProgram& program, const fs::path& record) {
  std::vector<fs::path> all = {stubs_of_build(record)};
  if (!why_not_private(record)) {
    for (const fs::path& kept : kept_in(record)) all.push_back(kept / "null_device");
  }
  std::vector<fs::path> possible;
  std::ranges::copy_if(all, std::back_inserter(possible),
                       [&](const fs::path& stubs) { return is_for_cuda_of(program, stubs); });
  return possible.empty() ? std::vector{all.front()} : possible;
}

/// Returns a folder of stubs that have all calls. Throws if there is none.
fs::path find_stubs(const PythonProgram& program, const fs::path& record, const std::string& why) {
  Problem lack;
  for (const fs::path& stubs : possible_stubs(program, record)) {
    const Problem other = lack_in(stubs, program, record);
    if (!other) return stubs;
    if (!lack) lack = other;
  }
  throw std::invalid_argument(fmt::format("PyTorch {} cannot run on a simulated GPU: {}; {}",
                                          program.torch_version, *lack, why));
}

RecordFiles history_files(const PythonProgram& program, const fs::path& record,
                          CudaProvider answers, const std::string& why) {
  return {.library = {},
          .python = require_existing(record / "python"),
          .stubs = answers == CudaProvider::gpu ? fs::path() : find_stubs(program, record, why),
          .doubt = fmt::format(
              "PyTorch's own memory history is recorded, which only identifies parameters, "
              "gradients and optimizer state, and is lost if a process is killed: {}",
              why)};
}

}  // namespace

RecordFiles recorder_for(const PythonProgram& program, const fs::path& record,
                         CudaProvider answers) {
  check_pytorch(program);
  const fs::path stubs = stubs_of_build(record);
  if (is_of_build(program) && (answers == CudaProvider::gpu || !lack_in(stubs, program, record))) {
    return files_in(record, stubs, record);
  }
  const std::string name = name_for(program, record, answers);
  const Problem why = why_no_recorder(program, record, name);
  if (why) return history_files(program, record, answers, *why);
  const fs::path folder = cache_in(record) / name;
  return files_in(folder, folder / "null_device", record);
}

}  // namespace shardlens::profiler
