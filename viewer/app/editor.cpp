#include "viewer/app/editor.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/shown.h"

namespace shardlens::viewer {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kFile = "{file}";
constexpr std::string_view kLine = "{line}";

/// Cuts a command into words at blanks that are not between quotes of one kind.
std::vector<std::string> words_of_command(const std::string& command) {
  std::vector<std::string> words;
  std::string word;
  bool has_word = false;
  char quote = '\0';
  for (const char c : command) {
    const bool is_quote = quote == '\0' ? c == '"' || c == '\'' : c == quote;
    if (is_quote) {
      quote = quote == '\0' ? c : '\0';
      has_word = true;  // also an empty one
    } else if (quote == '\0' && (c == ' ' || c == '\t')) {
      if (has_word) words.push_back(std::exchange(word, {}));
      has_word = false;
    } else {
      word += c;
      has_word = true;
    }
  }
  if (quote != '\0') {
    throw std::invalid_argument(fmt::format(
        "--editor {}: a {} is not closed; give a command such as 'code -g {{file}}:{{line}}'",
        command, quote));
  }
  if (has_word) words.push_back(word);
  return words;
}

/// Puts a file and a line into a word, in one pass: a placeholder in the file's own name stays as
/// it is.
std::string filled(const std::string& word, const std::string& file, uint32_t line) {
  std::string text;
  for (size_t i = 0; i < word.size();) {
    const std::string_view rest = std::string_view(word).substr(i);
    if (rest.starts_with(kFile)) {
      text += file;
      i += kFile.size();
    } else if (rest.starts_with(kLine)) {
      text += std::to_string(line);
      i += kLine.size();
    } else {
      text += word[i++];
    }
  }
  return text;
}

}  // namespace

Editor::Editor(const std::string& command) : words_(words_of_command(command)) {
  if (words_.empty() || command.find(kFile) != std::string::npos) return;
  throw std::invalid_argument(fmt::format(
      "--editor {}: lacks {{file}}; give a command such as 'code -g {{file}}:{{line}}'", command));
}

std::vector<std::string> Editor::words_for(const std::string& file, uint32_t line) const {
  std::vector<std::string> words;
  for (const std::string& word : words_) words.push_back(filled(word, file, line));
  return words;
}

void Editor::forget_ended() {
  std::erase_if(started_, [](pid_t pid) { return waitpid(pid, nullptr, WNOHANG) != 0; });
}

std::string Editor::open(const profiler::TreePlace& call) {
  forget_ended();
  if (words_.empty()) {
    return "no editor is set: start with --editor 'code -g {file}:{line}', or set SHARDLENS_EDITOR";
  }
  std::error_code error;
  // An absolute path cannot be mistaken for an option.
  const std::string file = fs::absolute(call.file, error).lexically_normal().string();
  if (error || !fs::is_regular_file(file, error)) {
    return fmt::format("{}: this machine has no such file; the recording was made elsewhere",
                       shown(call.file));
  }
  std::vector<std::string> words = words_for(file, call.line);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, argv.front(), nullptr, nullptr, argv.data(), environ);
  if (failed != 0) {
    return fmt::format("{}: cannot be started: {}; change --editor", words.front(),
                       std::strerror(failed));
  }
  started_.push_back(pid);
  return fmt::format("opened {}:{}", shown(file), call.line);
}

}  // namespace shardlens::viewer
