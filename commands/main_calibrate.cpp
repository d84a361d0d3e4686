// Runs the Python program that measures a GPU, which knows nothing of this one.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

#include "base/gpus.h"
#include "base/output_file.h"
#include "base/process/command_line.h"
#include "base/process/installation.h"
#include "base/process/program.h"

namespace {

using namespace shardlens;

constexpr const char* kHelp =
    "usage: shardlens calibrate [flags]\n\n"
    "Measures how fast this machine's GPU is, which takes minutes: matrix products, kernels that\n"
    "move memory, copies, attention and, if there are several GPUs, NCCL's collectives. With\n"
    "--calibration FILE other commands predict step times from what it measured.\n\n"
    "  --python PYTHON    a Python with PyTorch; default: python3\n"
    "  --out FILE         gets the times as JSON, without paths, names of hosts or of people;\n"
    "                     default: calibration.json\n\n"
    "The first GPU is measured, and nothing else should use it meanwhile.\n\n"
    "Exit code: 0 if FILE was written, 1 if a measurement failed, 2 for wrong use, without a GPU\n"
    "or on a simulated one.\n";

struct CalibrateOptions {
  bool help = false;
  std::string python = "python3";
  std::string out = "calibration.json";
};

CalibrateOptions parse(const std::vector<std::string>& arguments) {
  CalibrateOptions options;
  CLI::App app;
  app.set_help_flag();
  app.add_flag("--help,-h", options.help);
  app.add_option("--python", options.python);
  app.add_option("--out", options.out);
  parse_flags(app, arguments);
  return options;
}

/// Replaces this process with the program.
int become(const CalibrateOptions& options) {
  std::vector<std::string> words = {
      options.python, (support_folder("plan") / "calibrate.py").string(), "--out", options.out};
  for (const Gpu& gpu : gpus()) {
    words.emplace_back("--known");
    words.emplace_back(gpu.display_name);
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  throw std::invalid_argument(fmt::format("--python {}: cannot be started ({})", options.python,
                                          std::generic_category().message(errno)));
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens calibrate", [&] {
    const CalibrateOptions options = parse({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", kHelp), 0;
    expect_writable(options.out);
    return become(options);
  });
}
