#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <string>

#include "base/process/command_line.h"
#include "base/process/installation.h"
#include "base/process/program.h"
#include "runtime/doctor/doctor.h"
#include "runtime/doctor/facts.h"

namespace {

using namespace shardlens;
using namespace shardlens::runtime;

/// Returns the path of the program beside this one that trains, or "" if this build has none.
std::string trainer() {
  const auto program = own_program().parent_path() / "shardlens-train";
  return std::filesystem::exists(program) ? program.string() : "";
}

struct Version {
  int major = 0, minor = 0, patch = 0;
};

Version version_of(const char* text) {
  Version version;
  std::sscanf(text, "%d.%d.%d", &version.major, &version.minor, &version.patch);
  return version;
}

/// Returns 13020 for "13.2.86".
int cuda_number(const Version& cuda) { return cuda.major * 1000 + cuda.minor * 10; }

/// Returns 22809 for "2.28.9".
int nccl_number(const Version& nccl) { return nccl.major * 10000 + nccl.minor * 100 + nccl.patch; }

int examine(const DoctorOptions& options, bool as_json) {
  const auto findings = findings_of(collect_facts(options));
  print_output(as_json ? to_json(findings) : to_text(findings));
  return is_well(findings) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  DoctorOptions options{.trainer = trainer(),
                        .torch_version = SHARDLENS_TORCH_VERSION,
                        .expected_cuda = cuda_number(version_of(SHARDLENS_CUDA_VERSION)),
                        .expected_nccl = nccl_number(version_of(SHARDLENS_NCCL_VERSION))};
  bool as_json = false;
  CLI::App app("Reports what this machine has for training, and what is wrong with it.",
               "shardlens doctor");
  app.add_option("--workers", options.workers, "also time a sum over this many CPU ranks, 1 to 512")
      ->option_text("N")
      ->check(CLI::Range(1, 512));
  app.add_option("--seconds", options.collective_s,
                 "most seconds that this sum may take, 0.1 to 10; default: 10")
      ->option_text("S")
      ->check(CLI::Range(0.1, 10.0));
  app.add_option("--storage", options.storage,
                 "folder to which runs will be written; default: runs");
  app.add_option("--data", options.data, "data to train on; default: fashion-mnist");
  app.add_flag("--json", as_json, "print JSON");
  return run_program("shardlens doctor", [&] {
    const std::string help = parse_program(app, {argv + 1, argv + argc});
    if (!help.empty()) return fmt::print("{}", help), 0;
    return examine(options, as_json);
  });
}
