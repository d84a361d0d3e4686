// Shared by all harnesses: turns an input into files, and judges a command's answer.
//
// A harness takes any bytes and hands them, as untrusted files, to the part of the programs that
// reads such files. It is a function, so that a fuzzer (libfuzzer.cpp) and a test that replays
// inputs (replay_test.cpp) call the same code. It reports a finding by throwing or crashing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::fuzz {

/// The inputs, each in a file of its own name.
void checkpoint(std::string_view input);
void configuration(std::string_view input);
void images(std::string_view input);
void model(std::string_view input);
void plan(std::string_view input);
void recording(std::string_view input);
void safetensors(std::string_view input);
void schedule(std::string_view input);
void snapshot(std::string_view input);
void torch_file(std::string_view input);

/// A file of an input.
struct Part {
  std::string name;
  std::string bytes;
};

/// An input is one file, or several with a line "@@ NAME" before each: a mutation can then add and
/// drop files. The bytes before the first such line are called `first`. A name keeps its letters,
/// digits, '-' and '_', and any '.' that is not at its ends.
std::vector<Part> parts_of(std::string_view input, const std::string& first);

/// An empty folder, the same in every call; files of the call before are removed.
const std::string& empty_folder();

/// Writes them into the folder and returns the path of the first.
std::string write_parts(const std::vector<Part>& parts, const std::string& folder);

/// Throws std::logic_error.
void expect(bool holds, const std::string& what);

/// Does what a command would. Refusing its input is an answer (std::invalid_argument,
/// std::runtime_error) if it gives a reason that a person can read; any other exception is a
/// finding and passes through. Returns whether the command succeeded.
bool answers(const std::function<void()>& command);

}  // namespace shardlens::fuzz
