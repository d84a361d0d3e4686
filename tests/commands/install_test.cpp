// Checks what `cmake --install` leaves: programs that find each other and what they load, and a
// package that a program outside of this tree is built against. All of this after the installed
// folder was moved.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <set>

#include "tests/support/process.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

void succeed(const std::vector<std::string>& command) {
  const ProcessEnd ended = run(command);
  CAPTURE(command, ended.out, ended.err);
  REQUIRE(ended.exit_code == 0);
}

/// Installed into one folder, which then moved to another.
std::string installed_in(const TemporaryFolder& folder) {
  succeed({"/usr/bin/env", "cmake", "--install", SHARDLENS_BUILD_DIR, "--prefix",
           folder.file("first")});
  fs::rename(folder.file("first"), folder.file("moved"));
  return folder.file("moved");
}

std::set<std::string> headers_of(const std::string& prefix) {
  std::set<std::string> headers;
  for (const auto& entry : fs::recursive_directory_iterator(prefix + "/include")) {
    if (entry.is_regular_file()) headers.insert(fs::relative(entry.path(), prefix).string());
  }
  return headers;
}

}  // namespace

TEST_CASE("installed programs find each other and the null device", "[install]") {
  const TemporaryFolder folder;
  const std::string prefix = installed_in(folder);
  const ProcessEnd planned =
      run({prefix + "/bin/shardlens", "plan", "--gpu", "h100", "--world", "8"});
  CHECK(planned.exit_code == 0);
  CHECK_THAT(planned.out, ContainsSubstring("fits"));
  const ProcessEnd trained =
      run({prefix + "/bin/shardlens", "train", "--device", "null:h200", "--steps", "2", "--data",
           "synthetic", "--storage", folder.file("runs")});
  CAPTURE(trained.out, trained.err);
  CHECK(trained.exit_code == 0);
  CHECK_THAT(trained.out, ContainsSubstring("the same to the byte"));
  const ProcessEnd recorded = run({prefix + "/bin/shardlens", "record", "--help"});
  CHECK(recorded.exit_code == 0);
}

TEST_CASE("a program outside the tree is built against the installed package", "[install]") {
  const TemporaryFolder folder;
  const std::string prefix = installed_in(folder);
  CHECK(headers_of(prefix) ==
        std::set<std::string>{
            "include/shardlens/base/check.h", "include/shardlens/base/choice.h",
            "include/shardlens/base/device.h", "include/shardlens/base/dtype.h",
            "include/shardlens/config/choice.h", "include/shardlens/config/strategy.h",
            "include/shardlens/models/input_use.h", "include/shardlens/models/model.h",
            "include/shardlens/models/own_data.h", "include/shardlens/models/spec.h",
            "include/shardlens/planner/config/choices.h",
            "include/shardlens/planner/config/config.h", "include/shardlens/runtime/runtime.h",
            "include/shardlens/runtime/train/forecast.h",
            "include/shardlens/runtime/train/own_training.h", "include/shardlens/train/runtime.h"});
  const fs::path examples = fs::path(SHARDLENS_SOURCE_DIR) / "tests/examples";
  fs::create_directory(folder.file("own"));
  for (const char* file : {"CMakeLists.txt", "own_model.cpp"}) {
    fs::copy_file(examples / file, fs::path(folder.file("own")) / file);
  }
  succeed({"/usr/bin/env", "cmake", "-S", folder.file("own"), "-B", folder.file("own/build"), "-D",
           "CMAKE_PREFIX_PATH=" + prefix});
  succeed({"/usr/bin/env", "cmake", "--build", folder.file("own/build")});
  const std::string program = folder.file("own/build/own_model");
  const ProcessEnd trained = run({program, "--workers", "2", "--epochs", "1", "--device", "cpu",
                                  "--storage", folder.file("runs"), "--name", "cpu"});
  CAPTURE(trained.out, trained.err);
  CHECK(trained.exit_code == 0);
  CHECK_THAT(trained.out, ContainsSubstring("on 2 ranks"));
  const ProcessEnd null =
      run({program, "--device", "null:h200", "--world", "16", "--solo-rank", "5", "--steps", "2",
           "--storage", folder.file("runs"), "--name", "null"});
  CAPTURE(null.out, null.err);
  CHECK(null.exit_code == 0);
  CHECK_THAT(null.out, ContainsSubstring("rank 5 alone"));
}
