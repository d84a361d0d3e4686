// A wheel's shardlens-train and shardlens-infer: finds LibTorch, which a wheel lacks, and becomes
// the program of that name that links LibTorch (installation.h).
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

#include "base/process/installation.h"
#include "base/process/program.h"

namespace {

/// "shardlens train" for .../shardlens-train.
std::string command_of(const std::string& program) {
  return fmt::format("shardlens {}", program.substr(program.rfind('-') + 1));
}

int exec_program(const std::string& program, char** argv) {
  const auto torch = shardlens::find_torch(SHARDLENS_TORCH_VERSION);
  shardlens::put_first("LD_LIBRARY_PATH", shardlens::libtorch_folders(torch));
  argv[0] = const_cast<char*>(program.c_str());
  ::execv(program.c_str(), argv);
  throw std::runtime_error(fmt::format("{} cannot be started: {}", program, std::strerror(errno)));
}

}  // namespace

int main(int, char** argv) {
  const std::string program = shardlens::program_with_libtorch().string();
  const std::string command = command_of(program);
  return shardlens::run_program(command.c_str(), [&] { return exec_program(program, argv); });
}
