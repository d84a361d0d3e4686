// Finds names that two sources of one batch share. A batch is a set of sources that presets with
// CMAKE_UNITY_BUILD compile as one.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/function_scanner.h"
#include "tests/support/repository.h"

namespace {

using shardlens::tests::Declaration;
using shardlens::tests::declared_in;
using shardlens::tests::repository;
using shardlens::tests::SourceFile;

using Faults = std::vector<std::string>;
using Names = std::set<std::string, std::less<>>;

/// Returns the sources that CMAKE_UNITY_BUILD compiles as one: those of each folder of a library,
/// and of each program, of a CMakeLists.txt.
std::vector<Names> batches_of(const SourceFile& cmake) {
  static const std::regex comment("#[^\n]*"), command(R"((\w+)\(([^()]*)\))");
  const std::string text = std::regex_replace(cmake.text, comment, "");
  if (text.find("set(CMAKE_UNITY_BUILD OFF)") != std::string::npos) return {};
  const std::string folder = cmake.path.substr(0, cmake.path.rfind('/') + 1);
  std::map<std::pair<std::ptrdiff_t, std::string>, Names> batches;  // by target and folder
  Names alone;
  for (std::sregex_iterator it(text.begin(), text.end(), command), end; it != end; ++it) {
    const bool is_target = (*it)[1] == "shardlens_library" || (*it)[1] == "add_executable";
    const bool is_alone = (*it).str().find("SKIP_UNITY_BUILD_INCLUSION") != std::string::npos;
    std::istringstream words((*it)[2]);
    for (std::string word; words >> word;) {
      if (!word.ends_with(".cpp")) continue;
      const std::string path = folder + word;
      if (is_target) batches[{it->position(), path.substr(0, path.rfind('/'))}].insert(path);
      if (is_alone) alone.insert(path);
    }
  }
  std::vector<Names> all;
  for (auto& [target, batch] : batches) {
    std::erase_if(batch, [&](const std::string& path) { return alone.contains(path); });
    all.push_back(std::move(batch));
  }
  return all;
}

/// Finds names that two files of one batch share. To the compiler the two are one file: a function
/// of one takes calls from the other whose arguments fit it better, without a warning.
Faults batch_faults(const std::vector<SourceFile>& batch) {
  struct FirstDeclaration {
    std::string path;
    bool is_local = false;
  };
  std::map<std::pair<std::string, std::string>, FirstDeclaration> names;
  Faults faults;
  for (const SourceFile& file : batch) {
    for (const Declaration& made : declared_in(file.text)) {
      if (made.name == "choice_words") continue;  // one overload for each enumeration
      FirstDeclaration& first =
          names.try_emplace({made.enclosing, made.name}, file.path).first->second;
      const bool is_same = first.path == file.path;
      first.is_local |= is_same && made.is_local;
      if (is_same || (!first.is_local && !made.is_local)) continue;
      faults.push_back(file.path + ":" + std::to_string(made.line) + ": " + made.name +
                       " is also in " + first.path + "; name one by what is different");
    }
  }
  return faults;
}

}  // namespace

TEST_CASE("no two files that are compiled as one share a name") {
  size_t batched = 0;
  Faults faults;
  for (const SourceFile& cmake : repository()) {
    if (!cmake.path.ends_with("/CMakeLists.txt")) continue;
    for (const Names& paths : batches_of(cmake)) {
      std::vector<SourceFile> batch;
      std::ranges::copy_if(repository(), std::back_inserter(batch),
                           [&](const auto& file) { return paths.contains(file.path); });
      std::ranges::copy(batch_faults(batch), std::back_inserter(faults));
      batched += batch.size();
    }
  }
  CHECK(faults == Faults{});
  CHECK(batched > 200);
}

TEST_CASE("a library's sources of one folder are a batch, except those that are compiled alone") {
  const std::string text =
      "shardlens_library(\n  a\n  x.cpp  # (new.cpp)\n  v.cpp in/y.cpp ${z})\n"
      "add_executable(b main.cpp)\n";
  const std::vector<Names> three = {{"m/x.cpp", "m/v.cpp"}, {"m/in/y.cpp"}, {"m/main.cpp"}};
  CHECK(batches_of({"m/CMakeLists.txt", text}) == three);
  const std::string alone =
      "set_source_files_properties(v.cpp PROPERTIES "
      "SKIP_UNITY_BUILD_INCLUSION ON)\n";
  CHECK(batches_of({"m/CMakeLists.txt", alone + text})[0] == Names{"m/x.cpp"});
  CHECK(batches_of({"m/CMakeLists.txt", "set(CMAKE_UNITY_BUILD OFF)\n" + text}).empty());
}

TEST_CASE("a name that two files of a batch share is a fault") {
  const auto faults = [](const std::string& a, const std::string& b) {
    return batch_faults({{"a.cpp", a}, {"b.cpp", b}}).size();
  };
  const std::string local = "namespace n {\nnamespace {\nvoid f(int) {}\n}\n}\n";
  CHECK(faults(local, "namespace n {\nnamespace {\nvoid f(long) {}\n}\n}\n") == 1);
  CHECK(faults(local, "namespace n {\nvoid f(long) {}\n}\n") == 1);
  CHECK(faults("namespace n {\nstatic void f(long) {}\n}\n", local) == 1);
  CHECK(faults(local, "namespace m {\nnamespace {\nvoid f(long) {}\n}\n}\n") == 0);
  CHECK(faults(local, "namespace n {\nvoid A::f(long) {}\nvoid g() { f(1); }\n}\n") == 0);
  CHECK(faults("void f(int) {}\n", "void f(long) {}\n") == 0);
}
