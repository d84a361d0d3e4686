// Runs a command as a program. An error becomes one line on stderr and an exit code, and no foreign
// text that the command prints can move a terminal's cursor.
#pragma once

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <string>
#include <string_view>

#include "base/shown.h"

namespace shardlens {

/// Returns the first of several lines, since LibTorch's errors go on with advice and a backtrace.
inline std::string error_line(std::string_view text) {
  return shown(text.substr(0, std::min(text.find('\n'), text.size())));
}

/// Prints the output of a command after escaping it, since some parts may come from foreign files.
/// Throws std::runtime_error if it cannot be written.
inline void print_output(std::string_view text, std::FILE* stream = stdout) {
  const std::string shown = shown_lines(text);
  const size_t written = std::fwrite(shown.data(), 1, shown.size(), stream);
  if (written == shown.size() && std::fflush(stream) == 0) return;
  throw std::runtime_error("the output cannot be written; is its disk full?");
}

/// Makes a file that grows beyond `ulimit -f` an error of the write, which can be reported, instead
/// of the end of the process. A handler, unlike SIG_IGN, is not inherited by programs that this one
/// starts.
inline void survive_file_size_limit() {
  std::signal(SIGXFSZ, [](int) {});
}

/// Runs `command` and returns its exit code, or that of the exception it throws: 2 for wrong use
/// (std::invalid_argument), `failed` for anything else.
template <class Command>
int run_program(const char* name, const Command& command, int failed = 1) {
  const auto fail = [&](const std::string& line, int exit_code) {
    std::fprintf(stderr, "%s: %s\n", name, line.c_str());
    return exit_code;
  };
  survive_file_size_limit();
  try {
    const int exit_code = command();
    if (std::fflush(stdout) != 0) throw std::runtime_error("its output cannot be written");
    return exit_code;
  } catch (const std::invalid_argument& error) {
    return fail(shown(error.what()), 2);  // ours: a name in it may have a newline
  } catch (const std::exception& error) {
    return fail(error_line(error.what()), failed);
  }
}

}  // namespace shardlens
