// The rules of the tree, as a test: which room may include which, how long functions, lines and
// files are, and what no file may contain. Each rule is a function from a file to its faults, and
// is also tried on text that breaks it.

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <cctype>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/function_scanner.h"
#include "tests/support/repository.h"

namespace {

using shardlens::tests::Function;
using shardlens::tests::functions_of;
using shardlens::tests::lines_of;
using shardlens::tests::repository;
using shardlens::tests::SourceFile;

constexpr int kMaxFileLines = 600;
constexpr int kMaxLineColumns = 100;
constexpr int kMaxFunctionLines = 70;
constexpr int kMaxFunctionLinesP95 = 40;
constexpr int kMaxArchitectureLines = 120;
constexpr int kMaxFolderFiles = 30;
constexpr int kMaxReadmeWords = 900;

using Faults = std::vector<std::string>;
using Names = std::set<std::string, std::less<>>;

std::string module_of(std::string_view path) { return std::string(path.substr(0, path.find('/'))); }

bool is_cpp(std::string_view path) { return path.ends_with(".cpp") || path.ends_with(".h"); }

// --- include edges -------------------------------------------------------------------------------

/// Headers that say what things are; they include the standard library and each other.
const Names kNouns = {"base/check.h",
                      "base/choice.h",
                      "base/device.h",
                      "base/dtype.h",
                      "base/gpus.h",
                      "base/step_range.h",
                      "base/units.h",
                      "models/spec.h",
                      "planner/config/choices.h",
                      "planner/config/config.h",
                      "planner/config/strategy.h",
                      "planner/schedule/schedule.h",
                      "profiler/recording/blocks.h",
                      "profiler/recording/judgement.h",
                      "profiler/recording/profile.h",
                      "profiler/recording/work.h"};

/// The room of the programs, which use all other rooms.
constexpr std::string_view kPrograms = "commands";

/// A room, and the rooms whose headers it may include besides its own. A row only names rooms above
/// it, so there are no cycles.
struct Room {
  std::string_view name;
  std::vector<std::string_view> below;
};

const std::vector<Room> kRooms = {
    {"base", {}},
    {"models", {"base"}},
    {"profiler", {"base"}},
    {"planner", {"base", "models", "profiler"}},
    {"runtime", {"base", "models", "profiler", "planner"}},
    {"viewer", {"base", "profiler", "planner"}},
};

/// The folders of a room as floors, lowest first: a folder includes its own headers and those on
/// lower floors. An empty name stands for the room's own files.
struct Floors {
  std::string_view room;
  std::vector<std::vector<std::string_view>> floors;
};

const std::vector<Floors> kFloors = {
    {"base", {{""}, {"checksum", "document", "process"}}},
    {"profiler",
     {{"recording"},
      {"null_device"},
      {"file", "program"},
      {"report"},
      {"compare", "exchange", "recorder"},
      {"commands", "record"}}},
    {"planner",
     {{"config", "time"}, {"schedule"}, {"cost", "step"}, {"simulate"}, {"pytorch"}, {""}}},
    {"runtime",
     {{"checkpoint", "comm"}, {"doctor", "execute"}, {"train"}, {"launch"}, {"", "infer"}}},
    {"viewer", {{"model"}, {"state"}, {"paint"}, {"scene"}, {"page"}, {"figure"}, {"ui"}, {"app"}}},
};

/// Libraries that only some files may include; all others are free. All are prefixes.
struct RestrictedLibrary {
  std::string name;
  std::vector<std::string> headers;
  std::vector<std::string> allowed;  // paths, besides tests/
  std::vector<std::string> except;   // among the allowed
};

const std::vector<RestrictedLibrary> kRestricted = {
    // The transport comes first, since its headers also look like LibTorch's.
    {"a transport",
     {"gloo/", "nccl", "torch/csrc/distributed/"},
     {"runtime/comm/", "profiler/record/known/collectives", "profiler/recorder/work_recorder"},
     {}},
    {"LibTorch",
     {"ATen/", "c10/", "torch/", "caffe2/"},
     {"models/", "profiler/recorder/", "profiler/record/known/", "runtime/"},
     {"models/data/", "models/spec", "runtime/checkpoint/", "runtime/doctor/"}},
    {"CUDA",
     {"cuda", "cupti", "cublas", "cudnn", "driver_types"},
     {"profiler/recorder/", "profiler/null_device/", "runtime/comm/", "runtime/execute/"},
     {}},
    {"the window libraries", {"imgui", "GLFW/", "GL/", "EGL/"}, {"viewer/"}, {}},
};

bool starts_with_any(const std::string& text, const std::vector<std::string>& prefixes) {
  return std::ranges::any_of(prefixes, [&](const auto& p) { return text.starts_with(p); });
}

Faults library_faults(const SourceFile& file, const std::string& header) {
  const bool standard = header.find_first_of("./") == std::string::npos;
  if (kNouns.contains(file.path) && !standard) {
    return {file.path + " is a noun: it may not include <" + header + ">"};
  }
  for (const RestrictedLibrary& library : kRestricted) {
    if (!starts_with_any(header, library.headers)) continue;
    const bool allowed =
        module_of(file.path) == "tests" || (starts_with_any(file.path, library.allowed) &&
                                            !starts_with_any(file.path, library.except));
    if (allowed) return {};
    return {file.path + " may not include " + library.name + ": <" + header + ">"};
  }
  return {};
}

/// The folder of a room that contains a file; empty for the room's own files.
std::string folder_of(std::string_view path) {
  const std::string_view inside = path.substr(path.find('/') + 1);
  return inside.find('/') == std::string_view::npos ? "" : module_of(inside);
}

/// The floor of a folder; -1 if the table lacks it.
int floor_of(const Floors& room, const std::string& folder) {
  const auto has_folder = [&](const auto& floor) {
    return std::ranges::find(floor, folder) != floor.end();
  };
  const auto floor = std::ranges::find_if(room.floors, has_folder);
  return floor == room.floors.end() ? -1 : static_cast<int>(floor - room.floors.begin());
}

bool may_include_within(const std::string& path, const std::string& header) {
  const auto room = std::ranges::find(kFloors, module_of(path), &Floors::room);
  if (room == kFloors.end() || folder_of(path) == folder_of(header)) return true;
  const int own = floor_of(*room, folder_of(path));
  const int other = floor_of(*room, folder_of(header));
  return other >= 0 && other < own;
}

bool may_include(const std::string& path, const std::string& header) {
  const std::string room = module_of(path);
  const std::string other = module_of(header);
  if (room == "tests") return true;
  if (kNouns.contains(path) && !kNouns.contains(header)) return false;
  if (other == room) return may_include_within(path, header);
  if (other == kPrograms) return false;
  if (room == kPrograms) return true;
  const auto row = std::ranges::find(kRooms, room, &Room::name);
  return row != kRooms.end() && std::ranges::find(row->below, other) != row->below.end();
}

/// The word after '#', and the text after it; empty for lines that are not directives.
std::pair<std::string, std::string> directive_of(const std::string& line) {
  std::istringstream stream(line);
  char hash = 0;
  std::string word;
  std::string rest;
  if (!(stream >> hash) || hash != '#') return {};
  stream >> word >> std::ws;
  std::getline(stream, rest);
  return {word, rest};
}

/// A project header is written in quotes from the root; a library's in <>.
Faults include_faults(const SourceFile& file, const Names& project_files) {
  Faults faults;
  for (const std::string& line : lines_of(file.text)) {
    const auto [word, operand] = directive_of(line);
    if (word != "include") continue;
    const bool in_angles = operand.starts_with('<');
    const std::string header = operand.substr(1, operand.find(in_angles ? '>' : '"', 1) - 1);
    if (in_angles) {
      std::ranges::copy(library_faults(file, header), std::back_inserter(faults));
    } else if (!project_files.contains(header)) {
      faults.push_back(file.path + ": no file \"" + header + "\" from the root");
    } else if (!may_include(file.path, header)) {
      faults.push_back(file.path + " may not include \"" + header + "\"");
    }
  }
  return faults;
}

// --- functions -----------------------------------------------------------------------------------

Faults function_faults(const SourceFile& file) {
  Faults faults;
  for (const Function& function : functions_of(file.text)) {
    if (function.lines <= kMaxFunctionLines) continue;
    faults.push_back(file.path + ":" + std::to_string(function.line) + ": " +
                     std::to_string(function.lines) + " lines in " + function.head);
  }
  return faults;
}

/// The length that 95 of 100 functions do not exceed.
int p95(std::vector<int> lengths) {
  std::ranges::sort(lengths);
  return lengths.empty() ? 0 : lengths[(lengths.size() - 1) * 95 / 100];
}

// --- text ----------------------------------------------------------------------------------------

int columns_of(const std::string& line) {
  const auto starts_character = [](unsigned char c) { return (c & 0xC0) != 0x80; };  // UTF-8
  return static_cast<int>(std::ranges::count_if(line, starts_character));
}

int words_of(const std::string& text) {
  std::istringstream words(text);
  return static_cast<int>(std::distance(std::istream_iterator<std::string>(words), {}));
}

Faults size_faults(const SourceFile& file) {
  Faults faults;
  if (file.path == "README.md" && words_of(file.text) > kMaxReadmeWords) {
    faults.push_back(file.path + " has " + std::to_string(words_of(file.text)) + " words");
  }
  const std::vector<std::string> lines = lines_of(file.text);
  const int limit = file.path == "ARCHITECTURE.md" ? kMaxArchitectureLines : kMaxFileLines;
  if (static_cast<int>(lines.size()) > limit) {
    faults.push_back(file.path + " has " + std::to_string(lines.size()) + " lines");
  }
  if (!is_cpp(file.path)) return faults;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (columns_of(lines[i]) > kMaxLineColumns) {
      faults.push_back(file.path + ":" + std::to_string(i + 1) + ": over 100 columns");
    }
  }
  return faults;
}

/// Finds folders with too many entries to read at a glance. Subfolders count for themselves.
Faults folder_faults(const std::vector<SourceFile>& files) {
  std::map<std::string, int, std::less<>> counts;
  for (const SourceFile& file : files) {
    const size_t end = file.path.rfind('/');
    if (end != std::string::npos) ++counts[file.path.substr(0, end)];
  }
  Faults faults;
  for (const auto& [folder, count] : counts) {
    if (count > kMaxFolderFiles)
      faults.push_back(folder + " has " + std::to_string(count) + " files");
  }
  return faults;
}

/// The words of a text that is written with '~' inside words, so that this file does not contain
/// the phrases that it forbids.
std::vector<std::string> unmasked(std::string text) {
  std::erase(text, '~');
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

const std::vector<std::string> kForbiddenWords = unmasked("TO~DO FIX~ME XX~X HA~CK");
const std::vector<std::string> kForbiddenParts =
    unmasked("/wo~rk/ /tmp/ba~sh_jobs /ro~ot/ pypi.~org python~hosted deb.~debian");

bool has_word(const std::string& line, const std::string& word) {
  const auto in_word = [&](size_t i) {
    return i < line.size() && (std::isalnum(static_cast<unsigned char>(line[i])) || line[i] == '_');
  };
  for (size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
    if ((at == 0 || !in_word(at - 1)) && !in_word(at + word.size())) return true;
  }
  return false;
}

bool is_forbidden(const std::string& line) {
  return std::ranges::any_of(kForbiddenWords, [&](const auto& w) { return has_word(line, w); }) ||
         std::ranges::any_of(kForbiddenParts,
                             [&](const auto& p) { return line.find(p) != std::string::npos; });
}

/// Files that choose by the preprocessor, each with its reason. Elsewhere a missing part is a
/// separate file.
const std::map<std::string, std::string, std::less<>> kConditional = {
    {"runtime/comm/board/futex_word.cpp", "the processor's pause instruction has no portable name"},
};

bool is_condition(const SourceFile& file, const std::string& line) {
  static const Names words = {"if", "ifdef", "ifndef", "elif", "else", "endif"};
  return is_cpp(file.path) && !kConditional.contains(file.path) &&
         words.contains(directive_of(line).first);
}

Faults text_faults(const SourceFile& file) {
  Faults faults;
  const std::vector<std::string> lines = lines_of(file.text);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (is_condition(file, lines[i]) || is_forbidden(lines[i])) {
      faults.push_back(file.path + ":" + std::to_string(i + 1) + ": forbidden: " + lines[i]);
    }
  }
  if (file.path.ends_with(".h") && file.text.find("#pragma once") == std::string::npos) {
    faults.push_back(file.path + ": no #pragma once");
  }
  return faults;
}

/// The name of a Python constant that the line gives a value, as in "LAYERS = 8"; else "".
std::string constant_set_by(const std::string& line) {
  const size_t end = line.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");
  const bool is_set = end != std::string::npos && end > 0 && line.substr(end).starts_with(" = ");
  return is_set ? line.substr(0, end) : "";
}

/// A constant that is set again changes what every function above it reads.
Faults constant_faults(const SourceFile& file) {
  if (!file.path.ends_with(".py")) return {};
  Faults faults;
  Names names;
  for (const std::string& line : lines_of(file.text)) {
    const std::string name = constant_set_by(line);
    if (!name.empty() && !names.insert(name).second) {
      faults.push_back(file.path + ": " + name + " is set twice");
    }
  }
  return faults;
}

template <typename Rule>
std::string faults_of_repository(const Rule& rule) {
  std::string all;
  for (const SourceFile& file : repository()) {
    for (const std::string& fault : rule(file)) all += fault + "\n";
  }
  return all;
}

Faults edge_faults(const std::string& path, const std::string& include_line) {
  Names files = kNouns;
  files.insert({"commands/shell_completion.h", "runtime/execute/executor.h", "models/model.h",
                "planner/planner.h", "planner/schedule/builders.h", "runtime/runtime.h",
                "viewer/app/viewer.h"});
  return include_faults({path, include_line + "\n"}, files);
}

bool allows(const std::string& path, const std::string& include_line) {
  return edge_faults(path, include_line).empty();
}

std::string function_with_lines(int lines) {
  std::string text = "void long_one(int a) {\n";
  for (int i = 2; i < lines; ++i) text += "  f(a);\n";
  return text + "}\n";
}

}  // namespace

TEST_CASE("the repository keeps to the table of includes") {
  Names files;
  for (const SourceFile& file : repository()) files.insert(file.path);
  REQUIRE(files.contains("models/spec.h"));
  CHECK(faults_of_repository([&](const SourceFile& file) {
          return is_cpp(file.path) ? include_faults(file, files) : Faults{};
        }) == "");
}

TEST_CASE("the repository's functions are short") {
  CHECK(faults_of_repository([](const SourceFile& file) {
          return is_cpp(file.path) ? function_faults(file) : Faults{};
        }) == "");
  std::vector<int> lengths;
  for (const SourceFile& file : repository()) {
    if (!is_cpp(file.path)) continue;
    for (const Function& function : functions_of(file.text)) lengths.push_back(function.lines);
  }
  CHECK(lengths.size() > 50);
  CHECK(p95(lengths) <= kMaxFunctionLinesP95);
}

TEST_CASE("the repository's files and lines are short") {
  CHECK(faults_of_repository(size_faults) == "");
}

TEST_CASE("the repository's folders are small") {
  CHECK(folder_faults(repository()) == Faults{});
  CHECK(folder_faults(std::vector<SourceFile>(30, {"a/b/c.h", ""})).empty());
  CHECK(folder_faults(std::vector<SourceFile>(31, {"a/b/c.h", ""})).size() == 1);
}

TEST_CASE("the repository holds nothing unfinished, conditional or tied to one machine") {
  CHECK(faults_of_repository(text_faults) == "");
}

TEST_CASE("the repository's Python constants are set once") {
  CHECK(faults_of_repository(constant_faults) == "");
  CHECK(constant_faults({"a.py", "A = 1\nB = 2\nif A:\n    A = 3\n"}).empty());
  CHECK(constant_faults({"a.py", "A = 1\nA = 2\n"}).size() == 1);
}

TEST_CASE("an include edge outside the table is a fault") {
  CHECK(allows("runtime/execute/executor.cpp", "#include \"planner/schedule/schedule.h\""));
  CHECK(allows("runtime/execute/executor.cpp", "#include \"runtime/execute/executor.h\""));
  CHECK(allows("tests/runtime/execute/executor_test.cpp", "#include \"planner/planner.h\""));
  CHECK_FALSE(allows("runtime/execute/executor.cpp", "#include \"viewer/app/viewer.h\""));
  CHECK_FALSE(allows("runtime/execute/executor.cpp", "#include \"runtime/runtime.h\""));
  CHECK_FALSE(allows("planner/schedule/schedule.cpp", "  #  include \"planner/planner.h\""));
  CHECK_FALSE(allows("models/model.cpp", "#include \"planner/schedule/schedule.h\""));
  CHECK_FALSE(allows("viewer/app/viewer.cpp", "#include \"runtime/runtime.h\""));
  CHECK_FALSE(allows("runtime/execute/executor.cpp", "#include \"executor.h\""));
  CHECK_FALSE(allows("unknown/a.cpp", "#include \"base/units.h\""));
}

TEST_CASE("within a room an include goes to a lower floor") {
  CHECK(allows("planner/schedule/schedule.cpp", "#include \"planner/config/strategy.h\""));
  CHECK(allows("planner/planner.cpp", "#include \"planner/schedule/schedule.h\""));
  CHECK_FALSE(allows("planner/schedule/schedule.cpp", "#include \"planner/planner.h\""));
  CHECK_FALSE(allows("planner/config/strategy.cpp", "#include \"planner/schedule/schedule.h\""));
  CHECK_FALSE(allows("runtime/execute/executor.cpp", "#include \"runtime/runtime.h\""));
  CHECK_FALSE(allows("planner/unknown/a.cpp", "#include \"planner/planner.h\""));
}

TEST_CASE("every folder of a room has a floor") {
  Faults faults;
  for (const SourceFile& file : repository()) {
    const auto room = std::ranges::find(kFloors, module_of(file.path), &Floors::room);
    if (room == kFloors.end() || !is_cpp(file.path)) continue;
    if (floor_of(*room, folder_of(file.path)) < 0) faults.push_back(file.path);
  }
  CHECK(faults == Faults{});
}

TEST_CASE("programs may include all rooms, and no room includes programs") {
  CHECK(allows("commands/main_train.cpp", "#include \"planner/planner.h\""));
  CHECK(allows("commands/main_train.cpp", "#include \"runtime/runtime.h\""));
  CHECK_FALSE(allows("planner/planner.cpp", "#include \"commands/shell_completion.h\""));
}

TEST_CASE("the table of rooms has no cycles, and allows no more than is used") {
  std::set<std::pair<std::string, std::string>> used;
  for (const SourceFile& file : repository()) {
    if (!is_cpp(file.path)) continue;
    for (const std::string& line : lines_of(file.text)) {
      const auto [word, operand] = directive_of(line);
      if (word == "include") used.emplace(module_of(file.path), module_of(operand.substr(1)));
    }
  }
  Names above;
  Faults faults;
  for (const Room& room : kRooms) {
    for (const std::string_view below : room.below) {
      const std::string edge = std::string(room.name) + " -> " + std::string(below);
      if (!above.contains(below)) faults.push_back(edge + " leads back");
      if (!used.contains({std::string(room.name), std::string(below)})) {
        faults.push_back("nobody uses " + edge);
      }
    }
    above.emplace(room.name);
  }
  CHECK(faults == Faults{});
}

TEST_CASE("libraries are included only where the table allows") {
  CHECK(allows("models/model.h", "#include <torch/torch.h>"));
  CHECK(allows("runtime/comm/gloo.cpp", "#include <gloo/config.h>"));
  CHECK(allows("planner/config/arguments.cpp", "#include <CLI/CLI.hpp>"));
  CHECK_FALSE(allows("planner/planner.cpp", "#include <ATen/ATen.h>"));
  CHECK_FALSE(allows("planner/simulate/simulator.cpp", "#include <ATen/ATen.h>"));
  CHECK_FALSE(allows("runtime/checkpoint/checkpoint.cpp", "#include <ATen/ATen.h>"));
  CHECK_FALSE(allows("models/spec.cpp", "#include <c10/util/Exception.h>"));
  CHECK_FALSE(allows("profiler/file/reader.cpp", "#include <cupti.h>"));
  CHECK_FALSE(allows("viewer/app/viewer.cpp", "#include <cuda_runtime_api.h>"));
  CHECK_FALSE(allows("runtime/execute/executor.cpp",
                     "#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>"));
  CHECK_FALSE(allows("runtime/train/progress.cpp", "#include <imgui.h>"));
}

TEST_CASE("headers of nouns only include the standard library and each other") {
  CHECK(allows("planner/schedule/schedule.h", "#include <string_view>"));
  CHECK(allows("planner/schedule/schedule.h", "#include \"models/spec.h\""));
  CHECK_FALSE(allows("planner/schedule/schedule.h", "#include <nlohmann/json.hpp>"));
  CHECK_FALSE(allows("planner/schedule/schedule.h", "#include <unistd.h>"));
  CHECK_FALSE(allows("planner/schedule/schedule.h", "#include \"planner/schedule/builders.h\""));
}

TEST_CASE("the length of a function runs from its head to its closing brace") {
  CHECK(function_faults({"a.cpp", function_with_lines(70)}).empty());
  CHECK(function_faults({"a.cpp", function_with_lines(71)}).size() == 1);
  const std::string in_class = "class A {\n public:\n" + function_with_lines(71) + "};\n";
  CHECK(function_faults({"a.cpp", "namespace n {\n" + in_class + "}\n"}).size() == 1);
}

TEST_CASE("p95 is the length that 95 of 100 do not exceed") {
  std::vector<int> lengths(100, 10);
  std::fill_n(lengths.begin(), 5, 90);
  CHECK(p95(lengths) == 10);
  std::fill_n(lengths.begin(), 6, 90);
  CHECK(p95(lengths) == 90);
}

TEST_CASE("long files, long lines and forbidden text are faults") {
  const auto words = [](int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += " |";
    return text;
  };
  CHECK(size_faults({"a.cpp", std::string(600, '\n')}).empty());
  CHECK(size_faults({"a.cpp", std::string(601, '\n')}).size() == 1);
  CHECK(size_faults({"ARCHITECTURE.md", std::string(121, '\n')}).size() == 1);
  CHECK(size_faults({"README.md", words(900)}).empty());
  CHECK(size_faults({"README.md", words(901)}).size() == 1);
  CHECK(size_faults({"a.cpp", std::string(100, 'x')}).empty());
  CHECK(size_faults({"a.cpp", std::string(101, 'x')}).size() == 1);
  CHECK(text_faults({"a.cpp", "int todo = 0;  // ends here\n"}).empty());
  CHECK(text_faults({"a.cpp", std::string("// TO") + "DO: later\n"}).size() == 1);
  CHECK(text_faults({"a.py", std::string("x = '/wo") + "rk/main'\n"}).size() == 1);
  CHECK(text_faults({"a.cpp", "  #ifdef USE_CUDA\n"}).size() == 1);
  CHECK(text_faults({"a.h", "int a;\n"}).size() == 1);
}
