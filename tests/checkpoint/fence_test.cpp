#include "checkpoint/fence.h"

#include <catch2/catch_test_macros.hpp>

#include "base/fault.h"
#include "checkpoint/checkpoint_store.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using runtime::Fence;
namespace fs = std::filesystem;

TEST_CASE("only the newest attempt passes") {
  const test::TemporaryFolder folder;
  const Fence first = Fence::begin(folder.path());
  CHECK(first.generation() == 1);
  first.check();
  const Fence second = Fence::begin(folder.path());
  CHECK(second.generation() == 2);
  second.check();
  try {
    first.check();
    FAIL("the old one has passed");
  } catch (const runtime::Failure& failure) {
    CHECK(failure.fault() == runtime::Fault::overtaken);
    CHECK(std::string(failure.what()).find("attempt 1 of the run, the newest is 2") !=
          std::string::npos);
  }
  Fence().check();
}

TEST_CASE("an attempt's other hosts pass by its number, until the next one begins") {
  const test::TemporaryFolder folder;
  const Fence first = Fence::begin(folder.path());
  const Fence elsewhere = Fence::of(folder.path(), first.generation());
  elsewhere.check();
  CHECK(elsewhere.suffix() == first.suffix());
  Fence::begin(folder.path());
  CHECK_THROWS_AS(elsewhere.check(), runtime::Failure);
}

TEST_CASE("attempts do not write under one name, and what they leave is removed") {
  const test::TemporaryFolder folder;
  const fs::path checkpoints = folder.file("checkpoints");
  const runtime::CheckpointStore old(checkpoints, Fence::begin(folder.path()));
  const runtime::CheckpointStore now(checkpoints, Fence::begin(folder.path()));
  CHECK(old.unfinished(7).filename() == ".tmp-step-00000007-g1");
  CHECK(now.unfinished(7).filename() == ".tmp-step-00000007-g2");
  fs::create_directories(old.unfinished(7));
  fs::create_directories(checkpoints / ".tmp-step-00000007-gx");  // somebody else's
  fs::create_directories(checkpoints / ".tmp-step-00000007");
  now.take_over({}, {.wanted = true});
  CHECK_FALSE(fs::exists(old.unfinished(7)));
  CHECK_FALSE(fs::exists(checkpoints / ".tmp-step-00000007"));
  CHECK(fs::exists(checkpoints / ".tmp-step-00000007-gx"));
}
