// How a command becomes a program: an error is one line, with the exit code of design and README.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>

namespace shardlens::profiler {

/// A file that grows beyond `ulimit -f` is then an error of the write, to be told, and not the end
/// of the process. A handler, unlike SIG_IGN, is not inherited by programs that this one starts.
inline void survive_file_size_limit() {
  std::signal(SIGXFSZ, [](int) {});
}

/// The exit code of what `command` returns or throws: 2 for wrong use (std::invalid_argument),
/// `failed` for anything else.
template <class Command>
int run_program(const char* name, const Command& command, int failed = 1) {
  const auto fail = [&](const std::exception& error, int exit_code) {
    std::string line = error.what();
    line.resize(std::min(line.find('\n'), line.size()));  // LibTorch's go on with a backtrace
    std::fprintf(stderr, "%s: %s\n", name, line.c_str());
    return exit_code;
  };
  survive_file_size_limit();
  try {
    return command();
  } catch (const std::invalid_argument& error) {
    return fail(error, 2);
  } catch (const std::exception& error) {
    return fail(error, failed);
  }
}

}  // namespace shardlens::profiler
