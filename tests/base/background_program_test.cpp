// Programs that run beside this one: what they get, how they end, and that they do not outlive it.

#include "base/process/background_program.h"

#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/process.h"
#include "tests/support/temporary_folder.h"

namespace shardlens {
namespace {

int end_of(BackgroundProgram& program) {
  while (!program.exit_code()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return *program.exit_code();
}

BackgroundProgram::Options shell(const tests::TemporaryFolder& folder, const std::string& script) {
  return {
      .command = {"/bin/sh", "-c", script}, .directory = folder.path(), .log = folder.file("log")};
}

bool is_alive(const std::string& process) { return ::kill(std::stoi(process), 0) == 0; }

}  // namespace

TEST_CASE("a background program has its folder, its variables and its log, and no input") {
  const tests::TemporaryFolder folder;
  auto options = shell(folder, "pwd; echo $NAME; echo error >&2; cat; exit 7");
  options.environment = {"NAME=value"};
  ::setenv("NAME", "another", 1);
  BackgroundProgram program(options);
  CHECK(end_of(program) == 7);
  CHECK(tests::read_file(folder.file("log")) == folder.path() + "\nvalue\nerror\n");
}

TEST_CASE("a background program that cannot be started ends, and says so by its exit code") {
  const tests::TemporaryFolder folder;
  auto options = shell(folder, "true");
  options.command = {folder.file("nothing")};
  BackgroundProgram missing(options);
  CHECK(end_of(missing) == 127);
  options = shell(folder, "true");
  options.directory = folder.file("nowhere");
  BackgroundProgram elsewhere(options);
  CHECK(end_of(elsewhere) == 127);
}

TEST_CASE("a background program is stopped, and when its owner goes") {
  const tests::TemporaryFolder folder;
  const auto has_begun = [&] {
    return std::filesystem::exists(folder.file("process")) &&
           tests::read_file(folder.file("process")).ends_with('\n');
  };
  const std::string waits = "echo $$ > process; exec sleep 1000";
  std::string process;
  {
    BackgroundProgram program(shell(folder, waits));
    REQUIRE(tests::wait_until(has_begun));
    CHECK_FALSE(program.exit_code());
    program.stop();
    CHECK(end_of(program) == 128 + SIGTERM);
    std::filesystem::remove(folder.file("process"));
    const BackgroundProgram other(shell(folder, waits));
    REQUIRE(tests::wait_until(has_begun));
    process = tests::read_file(folder.file("process"));
    CHECK(is_alive(process));
  }
  CHECK_FALSE(is_alive(process));
  // The thread that has started one ends without it.
  std::filesystem::remove(folder.file("process"));
  BackgroundProgram* left = nullptr;
  std::thread([&] {
    left = new BackgroundProgram(shell(folder, waits));
    REQUIRE(tests::wait_until(has_begun));
  }).join();
  CHECK(end_of(*left) == 128 + SIGTERM);
  delete left;
}

}  // namespace shardlens
