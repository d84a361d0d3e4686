#include "tests/fuzz/harness.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <regex>
#include <stdexcept>

#include "tests/support/temporary_folder.h"

namespace shardlens::fuzz {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kMark = "@@ ";
constexpr size_t kMostParts = 16;
constexpr size_t kLongestName = 40;
constexpr size_t kLongestReason = 4000;

std::string file_name(std::string_view words) {
  std::string name(words.substr(0, kLongestName));
  std::erase_if(name, [](unsigned char c) {
    return std::isalnum(c) == 0 && c != '-' && c != '_' && c != '.';
  });
  return name.find_first_not_of('.') == std::string::npos ? "file" : name;
}

/// Finds the first line at or after `from` that begins with the mark.
size_t find_mark(std::string_view input, size_t from) {
  for (size_t at = input.find(kMark, from); at < input.size(); at = input.find(kMark, at + 1)) {
    if (at == 0 || input[at - 1] == '\n') return at;
  }
  return input.size();
}

/// Programs escape characters that would move a cursor (run_program); a reason may contain any.
void expect_readable(const std::string& reason) {
  expect(!reason.empty(), "a refusal gives no reason");
  expect(reason.size() <= kLongestReason, "a refusal's reason is longer than a screen: " + reason);
  // Compared by number, too: an input that is quoted may contain the first words.
  static const std::regex of_library(R"(\[json\.exception\.[a-z_]+\.[0-9]{3}\])");
  expect(!std::regex_search(reason, of_library), "a refusal quotes a library: " + reason);
}

}  // namespace

std::vector<Part> parts_of(std::string_view input, const std::string& first) {
  std::vector<Part> parts;
  size_t mark = find_mark(input, 0);
  if (mark > 0) {
    // The newline before a mark belongs to the mark.
    const size_t end = mark < input.size() ? mark - 1 : mark;
    parts.push_back({first, std::string(input.substr(0, end))});
  }
  while (mark < input.size() && parts.size() < kMostParts) {
    const size_t name = mark + kMark.size();
    const size_t line_end = std::min(input.find('\n', name), input.size());
    const size_t begin = std::min(line_end + 1, input.size());
    mark = find_mark(input, begin);
    const size_t end = mark < input.size() && mark > begin ? mark - 1 : mark;
    parts.push_back({file_name(input.substr(name, line_end - name)),
                     std::string(input.substr(begin, end - begin))});
  }
  if (parts.empty()) parts.push_back({first, ""});
  return parts;
}

const std::string& empty_folder() {
  static const tests::TemporaryFolder folder;
  static const std::string path = folder.path();
  for (const fs::directory_entry& entry : fs::directory_iterator(path)) fs::remove_all(entry);
  return path;
}

std::string write_parts(const std::vector<Part>& parts, const std::string& folder) {
  for (const Part& part : parts) tests::write_file(folder + "/" + part.name, part.bytes);
  return folder + "/" + parts.front().name;
}

void expect(bool holds, const std::string& what) {
  if (!holds) throw std::logic_error(what);
}

bool answers(const std::function<void()>& command) {
  try {
    command();
    return true;
  } catch (const std::invalid_argument& refusal) {
    expect_readable(refusal.what());
  } catch (const std::runtime_error& refusal) {
    expect_readable(refusal.what());
  }
  return false;
}

}  // namespace shardlens::fuzz
