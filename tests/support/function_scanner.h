// Finds the functions of a C++ file with their lengths, and the names that its namespaces declare,
// without a compiler: tidy_test.cpp has rules for both. It reads braces and relies on clang-format:
// a body's brace follows a space, the brace of an initialised member follows its name.
#pragma once

#include <algorithm>
#include <cctype>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::tests {

/// The text with comments, literals and preprocessor lines blanked out; line numbers stay.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : text_(text), result_(text) {}

  std::string run() {
    while (at_ < text_.size()) step();
    return result_;
  }

 private:
  bool starts(std::string_view what) const { return text_.compare(at_, what.size(), what) == 0; }

  void step() {
    if (text_[at_] == '\n') line_is_empty_ = true;
    if (starts("//") || (line_is_empty_ && text_[at_] == '#')) {
      blank_until(text_.find('\n', at_));
    } else if (starts("/*")) {
      blank_until(position_after("*/", at_ + 2));
    } else if (starts("R\"")) {
      const std::string tag = text_.substr(at_ + 2, text_.find('(', at_) - at_ - 2);
      blank_until(position_after(")" + tag + "\"", at_));
    } else if (text_[at_] == '"' || (text_[at_] == '\'' && !is_digit_separator())) {
      blank_until(end_of_literal());
    } else {
      if (!std::isspace(static_cast<unsigned char>(text_[at_]))) line_is_empty_ = false;
      ++at_;
    }
  }

  bool is_digit_separator() const {
    return at_ > 0 && std::isxdigit(static_cast<unsigned char>(text_[at_ - 1]));
  }

  size_t position_after(const std::string& what, size_t from) const {
    const size_t found = text_.find(what, from);
    return found == std::string::npos ? found : found + what.size();
  }

  size_t end_of_literal() const {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != text_[at_]) end += text_[end] == '\\' ? 2 : 1;
    return end + 1;
  }

  void blank_until(size_t end) {
    for (end = std::min(end, text_.size()); at_ < end; ++at_) {
      if (text_[at_] != '\n') result_[at_] = ' ';
    }
  }

  const std::string& text_;
  std::string result_;
  size_t at_ = 0;
  bool line_is_empty_ = true;
};

struct Function {
  std::string head;
  int line = 0;  // of the head, from 1
  int lines = 0;
};

/// A function, type or object that a namespace declares.
struct Declaration {
  std::string enclosing;  // the named namespaces around it, as in "shardlens::runtime"
  std::string name;
  bool is_local = false;  // no other file sees it: it is static or in an unnamed namespace
  int line = 0;           // from 1
};

/// Returns the name that the head of a declaration in a namespace gives: "twice" for "template
/// <class T> T twice(T)". Empty for declarations that may be repeated (an alias), operators and
/// class members (A::A).
inline std::string declared_name(std::string head) {
  static const std::regex unread(
      R"(<[^<>]*>|\[\[[^\]]*\]\]|\b(alignas|__attribute__)\b[^)]*\)+|^ *template )");
  static const std::regex nameless(
      R"(^ *(using|typedef|namespace|static_assert|catch)\b|\boperator\b)");
  static const std::regex type(
      R"(^ *(?:class|struct|union|enum class|enum) +(\w+) *(final|[:;]|$))");
  static const std::regex object(R"(([\w:]+) *([(=\[{;]|$))");  // or a function
  while (std::regex_search(head, unread)) head = std::regex_replace(head, unread, "");
  std::smatch found;
  if (std::regex_search(head, nameless)) return "";
  if (!std::regex_search(head, found, type) && !std::regex_search(head, found, object)) return "";
  const std::string name = found[1];
  return name.find(':') == std::string::npos ? name : "";
}

class FileScanner {
 public:
  explicit FileScanner(const std::string& text) : text_(Blanker(text).run()) {}

  FileScanner& run() {
    for (size_t at = 0; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '\n') ++line_;
      if (c == '{') {
        open(at);
      } else if (c == '}') {
        close();
      } else if (in_scope()) {
        read_head(c);
      }
    }
    return *this;
  }

  const std::vector<Function>& functions() const { return functions_; }
  const std::vector<Declaration>& declared() const { return declared_; }

 private:
  enum class Kind { scope, function, other };  // scope: namespace or class
  struct Brace {
    Kind kind;
    std::string head;
    int head_line;
  };

  bool in_scope() const { return braces_.empty() || braces_.back().kind == Kind::scope; }

  void read_head(char c) {
    const bool space = std::isspace(static_cast<unsigned char>(c)) != 0;
    if (head_.empty() && space) return;
    if (head_.empty()) head_line_ = line_;
    head_ += space ? ' ' : c;
    static const std::set<std::string> labels = {"public:", "private:", "protected:"};
    if (c == ';') keep_name();
    if (c == ';' || labels.contains(head_)) head_.clear();
  }

  /// Keeps the name that the head declares, if only namespaces enclose it.
  void keep_name() {
    Declaration made;
    made.name = declared_name(head_);
    made.line = head_line_;
    made.is_local = head_.find("static ") != std::string::npos;
    for (const Brace& brace : braces_) {
      std::istringstream stream(brace.head);
      std::string word, name;
      stream >> word >> name;
      if (word != "namespace") return;
      if (name.empty()) made.is_local = true;
      made.enclosing += (made.enclosing.empty() || name.empty() ? "" : "::") + name;
    }
    if (!made.name.empty()) declared_.push_back(made);
  }

  /// True for the head of a namespace, a class or the like.
  static bool is_scope_head(std::string head) {
    if (head.starts_with("template")) {  // to the first '>': clang-format splits nested ones
      head = head.substr(std::min(head.size(), head.find('>') + 1));
    }
    std::istringstream stream(head);
    std::string word;
    stream >> word;
    if (word == "inline") stream >> word;
    static const std::set<std::string> words = {"namespace", "extern", "class",
                                                "struct",    "union",  "enum"};
    return words.contains(word);
  }

  /// A body follows a head with parameters; a value follows "=", "(" or ",", or directly its name.
  static bool is_function_head(const std::string& head, char before_brace) {
    const size_t last = head.find_last_not_of(' ');
    return last != std::string::npos && head.find('(') != std::string::npos &&
           std::string_view("=(,").find(head[last]) == std::string_view::npos &&
           (before_brace == ' ' || before_brace == '\n');
  }

  Kind kind_of_brace(size_t at) const {
    if (!in_scope()) return Kind::other;
    if (is_scope_head(head_)) return Kind::scope;
    return is_function_head(head_, at > 0 ? text_[at - 1] : '\n') ? Kind::function : Kind::other;
  }

  void open(size_t at) {
    const Kind kind = kind_of_brace(at);
    if (kind != Kind::other) keep_name();
    braces_.push_back({kind, head_, head_line_});
    head_.clear();
  }

  void close() {
    if (braces_.empty()) return;
    const Brace brace = braces_.back();
    braces_.pop_back();
    head_.clear();
    if (brace.kind == Kind::function) {
      functions_.push_back({brace.head, brace.head_line, line_ - brace.head_line + 1});
    } else if (brace.kind == Kind::other && in_scope()) {
      head_ = brace.head + "{}";  // an initialised member: the head continues
      head_line_ = brace.head_line;
    }
  }

  std::string text_;
  std::vector<Brace> braces_;
  std::vector<Function> functions_;
  std::vector<Declaration> declared_;
  std::string head_;
  int head_line_ = 1;
  int line_ = 1;
};

inline std::vector<Function> functions_of(const std::string& text) {
  return FileScanner(text).run().functions();
}

inline std::vector<Declaration> declared_in(const std::string& text) {
  return FileScanner(text).run().declared();
}

}  // namespace shardlens::tests
