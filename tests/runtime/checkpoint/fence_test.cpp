#include "runtime/checkpoint/fence.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <string>
#include <thread>
#include <vector>

#include "base/fault.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using runtime::Fence;
namespace fs = std::filesystem;

TEST_CASE("only the newest attempt passes") {
  const tests::TemporaryFolder folder;
  const Fence first = Fence::begin(folder.path());
  CHECK(first.generation() == 1);
  first.check();
  const Fence second = Fence::begin(folder.path());
  CHECK(second.generation() == 2);
  second.check();
  try {
    first.check();
    FAIL("the old one has passed");
  } catch (const Failure& failure) {
    CHECK(failure.fault() == Fault::overtaken);
    CHECK(std::string(failure.what()).find("attempt 1 of the run, but the newest is 2") !=
          std::string::npos);
  }
  Fence().check();
}

TEST_CASE("an attempt's other hosts pass by its number, until the next one begins") {
  const tests::TemporaryFolder folder;
  const Fence first = Fence::begin(folder.path());
  const Fence elsewhere = Fence::adopt(folder.path(), first.generation());
  elsewhere.check();
  CHECK(elsewhere.suffix() == first.suffix());
  Fence::begin(folder.path());
  CHECK_THROWS_AS(elsewhere.check(), Failure);
}

TEST_CASE("attempts do not write under one name, and their remains are removed") {
  const tests::TemporaryFolder folder;
  const fs::path checkpoints = folder.file("checkpoints");
  const runtime::CheckpointStore old(checkpoints, Fence::begin(folder.path()));
  const runtime::CheckpointStore now(checkpoints, Fence::begin(folder.path()));
  CHECK(old.unfinished_folder(7).filename() == ".tmp-step-00000007-g1");
  CHECK(now.unfinished_folder(7).filename() == ".tmp-step-00000007-g2");
  fs::create_directories(old.unfinished_folder(7));
  fs::create_directories(checkpoints / ".tmp-step-00000007-gx");  // another program's
  fs::create_directories(checkpoints / ".tmp-step-00000007");
  now.take_over({}, {.wanted = true});
  CHECK_FALSE(fs::exists(old.unfinished_folder(7)));
  CHECK_FALSE(fs::exists(checkpoints / ".tmp-step-00000007"));
  CHECK(fs::exists(checkpoints / ".tmp-step-00000007-gx"));
}

TEST_CASE("an attempt's remains of a model are removed, and no other files") {
  const tests::TemporaryFolder folder;
  const std::vector<std::string> left = {".tmp-model", ".tmp-model-g2", ".old-model-g1"};
  const std::vector<std::string> others = {".tmp-model-gx", ".tmp-models", ".old-model-2", "model"};
  for (const auto& names : {left, others}) {
    for (const std::string& name : names) {
      fs::create_directories(folder.file(name));
      tests::write_file(folder.file(name + "/weights"), "1");
    }
  }
  runtime::remove_unfinished_models(folder.file("model"));
  for (const std::string& name : left) CHECK_FALSE(fs::exists(folder.file(name)));
  for (const std::string& name : others) CHECK(fs::exists(folder.file(name + "/weights")));
}

namespace {

constexpr int kMostFiles = 20'000;

/// Creates one empty file after another until the folder is gone, as a rank of an earlier attempt
/// does that goes on writing.
void create_files(const fs::path& folder, std::atomic<int>& count) {
  while (count < kMostFiles) {
    const fs::path path = folder / std::to_string(count.load());
    const int file = ::open(path.c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    if (file < 0) return;
    ::close(file);
    ++count;
  }
}

}  // namespace

TEST_CASE("files that a rank of an earlier attempt is still writing are removed") {
  const tests::TemporaryFolder folder;
  const runtime::CheckpointStore old(folder.path(), Fence::begin(folder.path()));
  for (int round = 0; round < 20; ++round) {
    fs::create_directories(old.unfinished_folder(7));
    const runtime::CheckpointStore now(folder.path(), Fence::begin(folder.path()));
    std::atomic<int> files = 0;
    std::thread rank([&] { create_files(old.unfinished_folder(7), files); });
    while (files < 100) std::this_thread::yield();
    CHECK_NOTHROW(now.take_over({}, {.wanted = true}));
    rank.join();
    CHECK(files < kMostFiles);
    CHECK_FALSE(fs::exists(old.unfinished_folder(7)));
    now.take_over({}, {.wanted = true});  // removes a file whose creation had begun
    CHECK_FALSE(fs::exists(folder.file(".old-step-00000007-g1")));
  }
}
