#include "profiler/program/callers.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "profiler/recording/python_rules.h"

namespace shardlens::profiler {

namespace {

std::string_view after_last(std::string_view text, char separator) {
  const size_t at = text.rfind(separator);
  return at == std::string_view::npos ? text : text.substr(at + 1);
}

/// True for a file of Python's own library, such as copy.py.
bool is_of_python(std::string_view file) {
  return file.find("/lib/python3.") != std::string_view::npos &&
         file.find("-packages/") == std::string_view::npos;
}

/// True for a frame of PyTorch's own C++ in a snapshot's stacks.
bool is_native(std::string_view file) {
  constexpr std::array<std::string_view, 8> kEndings = {".cpp", ".cc",  ".cxx", ".c",
                                                        ".h",   ".hpp", ".cu",  ".cuh"};
  return file == "??" || std::ranges::any_of(kEndings, [&](std::string_view ending) {
           return file.ends_with(ending);
         });
}

}  // namespace

const std::string& Callers::text(uint32_t string) const {
  static const std::string nothing;
  return string < strings_.size() ? strings_[string] : nothing;
}

bool Callers::is_forward_frame(uint32_t frame) const {
  const StackFrame& at = stacks_.frames[frame];
  return at.file != 0 && is_forward(after_last(text(at.function), '.'));
}

bool Callers::is_in_forward(uint32_t label) const {
  for (uint32_t frame = stacks_.innermost_frame(label); frame != 0;
       frame = stacks_.frames[frame].caller) {
    if (is_forward_frame(frame)) return true;
  }
  return false;
}

std::string Callers::operator_of(uint32_t label) const {
  const uint32_t innermost = stacks_.innermost_frame(label);
  if (innermost == 0 || stacks_.frames[innermost].file != 0) return {};
  return text(stacks_.frames[innermost].function);
}

std::string Callers::caller_of(uint32_t label) const {
  bool has_maker = false;  // seen: the program's innermost frame, which the label names
  uint32_t caller = 0;
  for (uint32_t frame = stacks_.innermost_frame(label); frame != 0;
       frame = stacks_.frames[frame].caller) {
    const StackFrame& at = stacks_.frames[frame];
    const bool is_of_program_or_python =
        at.file != 0 && is_of_program(text(at.file)) && !is_native(text(at.file));
    if (is_forward_frame(frame)) {
      caller = 0;  // it is further out
    } else if (is_of_program_or_python && has_maker && caller == 0 &&
               !is_of_python(text(at.file))) {
      caller = frame;
    }
    has_maker = has_maker || is_of_program_or_python;
  }
  if (caller == 0) return {};
  const StackFrame& at = stacks_.frames[caller];
  return fmt::format("{}:{} {}", after_last(text(at.file), '/'), at.line,
                     after_last(text(at.function), '.'));
}

}  // namespace shardlens::profiler
