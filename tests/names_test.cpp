// Finds names that mean two things: a public type that two headers define, and functions that both
// backends of the interpreter have beside those that it calls; and types whose names are not nouns.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/function_scanner.h"
#include "tests/support/repository.h"

namespace {

using shardlens::tests::Blanker;
using shardlens::tests::lines_of;
using shardlens::tests::repository;
using shardlens::tests::SourceFile;

using Faults = std::vector<std::string>;
using Names = std::set<std::string, std::less<>>;

/// Returns the name of the type that a line defines for all code that includes it; else an empty
/// text. A namespace's contents are not indented, so a nested type does not count. Neither does an
/// alias of a type of the same name, as in `using Span = other::Span;`: it has that meaning.
std::string public_type_of(const std::string& line) {
  static const std::regex defined(R"(^(?:struct|class|union|enum class|enum) +)"
                                  R"((?:alignas\([^)]*\) *)?(\w+)(?: final)?(?: *[:{].*)?$)");
  static const std::regex alias(R"(^using (\w+) = (?:[\w:]+::)?(\w+).*$)");
  std::smatch found;
  if (std::regex_match(line, found, defined)) return found[1];
  if (!std::regex_match(line, found, alias) || found[1] == found[2]) return "";
  return found[1];
}

Faults type_faults(const std::vector<SourceFile>& files) {
  std::map<std::string, std::string> headers;
  Faults faults;
  for (const SourceFile& file : files) {
    if (!file.path.ends_with(".h") || file.path.starts_with("tests/")) continue;
    for (const std::string& line : lines_of(Blanker(file.text).run())) {
      const std::string name = public_type_of(line);
      if (name.empty()) continue;
      const std::string& first = headers.try_emplace(name, file.path).first->second;
      if (first != file.path) faults.push_back(name + " is in " + first + " and in " + file.path);
    }
  }
  return faults;
}

/// True if the last word of a type's name is a participle, as in Told or RanksWatched; WatchedRank
/// ends in a noun.
bool ends_in_participle(const std::string& name) {
  static const Names irregular = {"Begun", "Brought", "Built", "Chosen", "Done",    "Drawn",
                                  "Found", "Given",   "Held",  "Kept",   "Known",   "Left",
                                  "Lost",  "Made",    "Said",  "Seen",   "Sent",    "Shown",
                                  "Spent", "Taken",   "Told",  "Unseen", "Unknown", "Written"};
  static const Names nouns = {"Feed", "Need", "Seed", "Speed"};
  const size_t begin = name.find_last_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  if (begin == std::string::npos) return false;
  const std::string last = name.substr(begin);
  return irregular.contains(last) || (last.ends_with("ed") && !nouns.contains(last));
}

/// Finds types, also local and nested ones, whose names say a state in place of a thing.
Faults participle_faults(const SourceFile& file) {
  static const std::regex type(R"(^\s*(?:struct|class|enum class|enum|using) +(\w+)(?: final)?)"
                               R"(\s*(?:[:{=].*)?$)");
  Faults faults;
  for (const std::string& line : lines_of(Blanker(file.text).run())) {
    std::smatch found;
    if (std::regex_match(line, found, type) && ends_in_participle(found[1])) {
      faults.push_back(file.path + ": " + found[1].str() + " is not a noun");
    }
  }
  return faults;
}

Names all_matches(const std::string& text, const std::regex& pattern) {
  Names names;
  for (std::sregex_iterator it(text.begin(), text.end(), pattern), end; it != end; ++it) {
    names.insert((*it)[1]);
  }
  return names;
}

/// Returns the functions that a class of the text declares, which are indented by two blanks.
Names functions_of_class(const std::string& text, const std::string& name) {
  static const std::regex function(R"(\n  (?! )[^\n;={(]*?\b(\w+)\()");
  const std::string code = Blanker(text).run();
  const size_t begin = code.find("class " + name + " ");
  const size_t end = code.find("\n};", begin);
  if (begin == std::string::npos) return {};
  Names names = all_matches(code.substr(begin, end - begin), function);
  names.erase(name);
  return names;
}

/// Returns the functions that `first` and `second` both have though the interpreter calls neither:
/// what is done twice should be the interpreter's.
Names shared_in_vain(const Names& first, const Names& second, const std::string& interpreter) {
  Names asked = all_matches(Blanker(interpreter).run(), std::regex(R"(backend\(\)\.(\w+)\()"));
  asked.insert("run");  // each begins with its own scope and calls the interpreter's
  Names shared;
  for (const std::string& name : first) {
    if (second.contains(name) && !asked.contains(name)) shared.insert(name);
  }
  return shared;
}

std::string text_of(std::string_view path) {
  const auto file = std::ranges::find(repository(), path, &SourceFile::path);
  REQUIRE(file != repository().end());
  return file->text;
}

}  // namespace

TEST_CASE("no name of a public type has two meanings") {
  CHECK(type_faults(repository()) == Faults{});
}

TEST_CASE("two headers with one name of a type are a fault, but not an alias of the same type") {
  const auto faults_of = [](const std::string& a, const std::string& b) {
    return type_faults({{"a.h", a}, {"b.h", b}}).size();
  };
  CHECK(faults_of("struct Span {\n};\n", "enum class Span : uint8_t { a };\n") == 1);
  CHECK(faults_of("class Span final : public A {\n};\n", "using Span = std::pair<int, int>;\n") ==
        1);
  CHECK(faults_of("struct alignas(64) Span {\n};\n", "struct Span\n{\n};\n") == 1);
  CHECK(faults_of("struct Span {\n};\n", "using Span = other::Span;\nusing other::Span;\n") == 0);
  CHECK(faults_of("struct Span {\n};\n", "struct Span;\nstruct A {\n  struct Span {\n};\n") == 0);
  CHECK(faults_of("struct Span {\n};\n", "// Gives\nstruct Spans {\n};\n") == 0);
}

TEST_CASE("types are named by nouns") {
  Faults faults;
  for (const SourceFile& file : repository()) {
    if (!file.path.ends_with(".h") && !file.path.ends_with(".cpp")) continue;
    std::ranges::copy(participle_faults(file), std::back_inserter(faults));
  }
  CHECK(faults == Faults{});
  CHECK(participle_faults({"a.h", "struct Told {\n"}).size() == 1);
  CHECK(participle_faults({"a.cpp", "  enum class Asked : uint8_t { a };\n"}).size() == 1);
  CHECK(participle_faults({"a.cpp", "using RanksWatched = int;\n"}).size() == 1);
  CHECK(participle_faults({"a.h", "struct CheckFeed {\nstruct WatchedRank {\n"}).empty());
}

TEST_CASE("the two backends share the functions that the interpreter calls, and no other") {
  const Names executor = functions_of_class(text_of("runtime/execute/executor.h"), "Executor");
  const Names simulator = functions_of_class(text_of("planner/simulate/simulator.h"), "Simulator");
  const std::string interpreter = text_of("planner/step/interpreter.h");
  CHECK(executor.size() > 20);
  CHECK(simulator.size() > 15);
  CHECK(shared_in_vain(executor, simulator, interpreter) == Names{});
  const std::string a =
      "class A : B {\n  void enter(int a);\n  int forward() const { return 1; }\n};";
  CHECK(functions_of_class(a, "A") == Names{"enter", "forward"});
  CHECK(shared_in_vain({"enter", "forward"}, {"enter", "forward"}, "  backend().enter(1);") ==
        Names{"forward"});
}

TEST_CASE("a family of models is named in four files, the fourth of which is CMake's") {
  Names files;
  for (const SourceFile& file : repository()) {
    const bool is_product = !file.path.starts_with("tests/") && !file.path.starts_with("docs/");
    const bool is_named = file.text.find("MlpSizes") != std::string::npos ||
                          file.text.find("MlpUnit") != std::string::npos ||
                          file.text.find(" mlp.cpp") != std::string::npos;
    if (is_product && is_named) files.insert(file.path);
  }
  CHECK(files ==
        Names{"models/CMakeLists.txt", "models/families.h", "models/mlp.cpp", "models/mlp.h"});
}
