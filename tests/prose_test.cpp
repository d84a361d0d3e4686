// Finds English that a stranger stumbles over: phrases that a table bans, each with what to write
// instead, and comments and docstrings that open with a word after which no sentence follows.

#include <re2/re2.h>

#include <algorithm>
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

struct BannedPhrase {
  std::string_view pattern;  // RE2's syntax; upper and lower case are alike
  std::string_view better;
};

constexpr BannedPhrase kBannedPhrases[] = {
    {R"(\b(is|are|was|were) not there\b)", "is missing, is not supported, or: a simulated ..."},
    {R"(\bto be had\b)", "supported, available"},
    {R"(\bso (many|much)\b)", "N, that many, as many as"},
    {R"(\banew\b)", "again"},
    {R"(\b(has|have) not([.,;:)]|$))", "lacks, does not have"},
    {R"(\S+ (is|are) none (of|that|which)\b)", "is not one of, has no"},
    {R"(\bof it\b)", "the thing's name, or: including"},
    {R"(\S+ (is|are|was|were) no [a-z]+)", "is not a ..."},
    {R"(\bone (likes|wants|wishes)\b|\bwished\b)", "if you want"},
    {R"(\bamong themselves\b)", "with each other"},
    {R"(\bdoes the same\b)", "what it does: 'Overload that ...'"},
    {R"(\bwhoever\b|\bthose who\b)", "the subject: code that, readers that"},
    {R"((^|[.?:;}] +)who [a-z]+s\b)", "the subject: the process that"},
    {R"(\bin earnest\b)", "really"},
    {R"(\b(its|the|at) begin\b)", "the beginning, the start"},
    {R"(\b(has|have|not) got\b)", "has, does not have"},
    {R"(\b(is|are) told of\b)", "learns of, receives"},
    {R"(\b(lest|thereof|therein|thereby|hence|whence|thither|hither)\b)", "so, from there"},
};

/// A file's text in one line, without the marks of comments and strings that a phrase may run over.
class JoinedText {
 public:
  explicit JoinedText(const std::string& text) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      begins_.push_back(text_.size());
      text_ += without_marks(line);
      text_ += ' ';
    }
  }

  const std::string& text() const { return text_; }

  /// Returns the number of the line, from 1, that has the character at this place.
  int line_at(size_t place) const {
    return static_cast<int>(std::ranges::upper_bound(begins_, place) - begins_.begin());
  }

 private:
  static std::string_view without_marks(std::string_view line) {
    const auto strip = [&](std::string_view characters) {
      const size_t first = line.find_first_not_of(characters);
      line.remove_prefix(first == std::string_view::npos ? line.size() : first);
    };
    strip(" \t");
    strip("/#*\"");
    strip(" \t");
    while (line.ends_with(' ') || line.ends_with('"')) line.remove_suffix(1);
    return line;
  }

  std::string text_;
  std::vector<size_t> begins_;  // by line
};

/// True where "is no" is right, as in "there is no file" and "is no longer".
bool is_allowed(std::string_view phrase) {
  static const RE2 allowed(R"((?i).*\bthere (is|are|was|were) no(ne)? .*)"
                           R"(|.* no ([a-z]+er|more|less))");
  return RE2::FullMatch(phrase, allowed);
}

/// Finds the phrases of the table above.
std::vector<std::string> phrase_faults(const SourceFile& file) {
  const JoinedText joined(file.text);
  std::vector<std::string> faults;
  for (const auto& [pattern, better] : kBannedPhrases) {
    const RE2 phrase("(?i)(" + std::string(pattern) + ")");
    re2::StringPiece rest(joined.text());
    for (std::string found; RE2::FindAndConsume(&rest, phrase, &found);) {
      if (is_allowed(found)) continue;
      const int line = joined.line_at(static_cast<size_t>(rest.data() - joined.text().data()) - 1);
      faults.push_back(file.path + ":" + std::to_string(line) + ": '" + found + "'; write " +
                       std::string(better));
    }
  }
  return faults;
}

}  // namespace

TEST_CASE("the repository has no phrase that is banned") {
  std::string all;
  for (const SourceFile& file : repository()) {
    if (file.path == "tests/prose_test.cpp") continue;
    for (const std::string& fault : phrase_faults(file)) all += fault + "\n";
  }
  CHECK(all == "");
}

TEST_CASE("a phrase is banned wherever its words are") {
  const auto faults = [](const std::string& text) { return phrase_faults({"a.h", text}); };
  CHECK(faults("// On a GPU that is not there.\n").size() == 1);
  CHECK(faults("// On a GPU that is not\n// there.\n").size() == 1);
  CHECK(faults("fail(\"amsgrad is not to be \"\n     \"had\");\n").size() == 1);
  CHECK(faults("// A folder is no file.\n").size() == 1);
  CHECK(faults("// There is no file, and this is no longer one.\n").empty());
  CHECK(faults("// Who reads it.\n").size() == 1);
  CHECK(faults("// A caller who reads the file.\n").empty());
  CHECK(faults("// What the null device has not.\n").size() == 1);
  CHECK(faults("// It has not begun.\n").empty());
  CHECK(faults("int a;\n\n// Begins anew.\n").front() == "a.h:3: 'anew'; write again");
}

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
