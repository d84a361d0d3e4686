// Finds comments that a stranger cannot read alone: doc comments of C++, docstrings, and comments
// of Python and shell scripts that open with a word after which no sentence follows.

#include <catch2/catch_test_macros.hpp>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/repository.h"

namespace {

using shardlens::tests::repository;
using shardlens::tests::SourceFile;

using Words = std::set<std::string, std::less<>>;

/// The first word of a comment or docstring, and where it is.
struct Opening {
  int line = 0;  // from 1
  std::string word;
};

/// Says how a language marks its comments. A file of any other language has no mark.
struct Marks {
  std::string comment;
  bool has_docstrings = false;
};

Marks marks_of(const SourceFile& file) {
  const std::string_view path = file.path;
  const std::string first_line = file.text.substr(0, file.text.find('\n'));
  const bool is_script = first_line.starts_with("#!");
  if (path.ends_with(".cpp") || path.ends_with(".h")) return {"///"};
  if (path.ends_with(".py") || (is_script && first_line.find("python") != std::string::npos)) {
    return {"#", true};
  }
  if (path.ends_with(".sh") || (is_script && first_line.ends_with("sh"))) return {"#"};
  return {};
}

int count_quotes(std::string_view line) {
  int count = 0;
  for (size_t at = line.find("\"\"\""); at != std::string_view::npos;
       at = line.find("\"\"\"", at + 3)) {
    ++count;
  }
  return count;
}

/// Returns the openings of a file. A comment in the line after a comment goes on with it, and
/// `"""` opens a docstring only at the beginning of a line: elsewhere it is a value.
std::vector<Opening> openings_of(const SourceFile& file) {
  const Marks marks = marks_of(file);
  std::vector<Opening> openings;
  if (marks.comment.empty()) return openings;
  std::istringstream lines(file.text);
  std::string line, mark, word;
  bool in_comment = false;  // that began in an earlier line
  bool in_text = false;     // between `"""` and `"""`
  for (int number = 1; std::getline(lines, line); ++number) {
    std::istringstream words(line);
    mark.clear(), word.clear();
    words >> mark >> word;
    const bool is_comment = !in_text && mark == marks.comment;
    if (is_comment && !in_comment) openings.push_back({number, word});
    in_comment = is_comment;
    if (!marks.has_docstrings) continue;
    if (!in_text && mark.starts_with("\"\"\"")) openings.push_back({number, mark.substr(3)});
    in_text ^= count_quotes(line) % 2 == 1;
  }
  return openings;
}

/// Finds openings as in "Of all ranks.".
std::vector<std::string> comment_faults(const SourceFile& file) {
  static const Words kNoOpening = {"And",   "As",   "By",      "For",     "From",  "How",
                                   "In",    "Not",  "Nothing", "Of",      "That",  "Those",
                                   "Until", "What", "Where",   "Whether", "Which", "With"};
  std::vector<std::string> faults;
  for (const auto& [line, word] : openings_of(file)) {
    if (!kNoOpening.contains(word)) continue;
    faults.push_back(file.path + ":" + std::to_string(line) + ": a comment opens with " + word);
  }
  return faults;
}

}  // namespace

TEST_CASE("the repository's comments are sentences that stand alone") {
  std::string all;
  size_t openings = 0;
  for (const SourceFile& file : repository()) {
    if (file.path.starts_with("tests/") && marks_of(file).comment == "///") continue;
    openings += openings_of(file).size();
    for (const std::string& fault : comment_faults(file)) all += fault + "\n";
  }
  CHECK(all == "");
  CHECK(openings > 1000);
}

TEST_CASE("a comment opens once, and a docstring where a line begins with it") {
  const auto faults = [](const std::string& path, const std::string& text) {
    return comment_faults({path, text}).size();
  };
  CHECK(faults("a.h", "/// Of all ranks.\nint a;\n") == 1);
  CHECK(faults("a.h", "/// Sums over all ranks.\n/// In fp32.\nint a;\n") == 0);
  CHECK(faults("a.py", "\"\"\"What it takes.\"\"\"\n") == 1);
  CHECK(faults("a.py", "def f():\n  \"\"\"Sums over\n  ranks.\n  \"\"\"\n\n# Of all.\n") == 1);
  CHECK(faults("a.py", "\"\"\"Sums.\n# Of all.\n\"\"\"\na = \"\"\"Of all.\n\"\"\"\n") == 0);
  CHECK(faults("a.py", "# Sums over ranks.\n# In fp32.\n") == 0);
  CHECK(faults("run", "#!/usr/bin/env bash\n# Whether it runs.\n") == 1);
  CHECK(faults("run", "#!/usr/bin/env python3\n\"\"\"How it runs.\"\"\"\n") == 1);
  CHECK(faults("a.md", "# How it runs\n") == 0);
}
