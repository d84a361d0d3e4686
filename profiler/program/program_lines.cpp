#include "profiler/program/program_lines.h"

#include <fmt/format.h>

#include "profiler/recording/python_rules.h"

namespace shardlens::profiler {

namespace {

std::string tail(const std::string& text, char separator) {
  const size_t at = text.rfind(separator);
  return at == std::string::npos ? text : text.substr(at + 1);
}

}  // namespace

ProgramLines program_lines(const std::vector<std::string>& strings, const Stacks& stacks) {
  ProgramLines found;
  for (const std::string& label : strings) {
    if (label.find(':') != std::string::npos) found.lines.insert(label);
  }
  const auto text = [&strings](uint32_t string) {
    return string < strings.size() ? strings[string] : std::string();
  };
  for (const StackFrame& frame : stacks.frames) {
    if (frame.file == 0 || !is_of_program(text(frame.file))) continue;
    found.lines.insert(fmt::format("{}:{} {}", tail(text(frame.file), '/'), frame.line,
                                   tail(text(frame.function), '.')));
  }
  return found;
}

}  // namespace shardlens::profiler
