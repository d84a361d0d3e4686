// Kills ranks at any operation on a checkpoint's files: files under a final name are whole, nothing
// that was published is lost, and the next start reaches the same bytes.
#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>

#include "base/durable_files.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/support/fault_log.h"
#include "tests/support/memory_folder.h"
#include "tests/support/process.h"
#include "tests/support/sample.h"

using namespace shardlens;
using tests::FileOperation;
namespace fs = std::filesystem;

namespace {

/// W ranks that write `steps` checkpoints and keep `keep`.
class Writers {
 public:
  Writers(int ranks, int64_t steps, int64_t keep) : ranks_(ranks), steps_(steps), keep_(keep) {}

  std::string folder() const { return folder_.file("checkpoints"); }
  std::string log() const { return folder_.file("log"); }
  tests::ProcessEnd run(const std::string& fault = "") const {
    return tests::run(tests::watched({SHARDLENS_WRITE_CHECKPOINTS, folder(), std::to_string(ranks_),
                                      std::to_string(steps_), std::to_string(keep_)},
                                     folder(), log(), fault));
  }

  /// Files by name, with their content.
  std::map<std::string, std::string> contents() const {
    std::map<std::string, std::string> files;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder())) {
      if (!entry.is_regular_file()) continue;
      files[fs::relative(entry.path(), folder()).string()] = read_whole_file(entry.path());
    }
    return files;
  }

 private:
  tests::MemoryFolder folder_;
  int ranks_;
  int64_t steps_;
  int64_t keep_;
};

/// The steps whose rename to the final name was done.
std::vector<int64_t> published(const Writers& writers) {
  std::vector<int64_t> steps;
  for (const FileOperation& done : tests::read_fault_log(writers.log(), "end")) {
    const auto step = runtime::step_of(done.path);
    if (done.name == "rename" && step) steps.push_back(*step);
  }
  return steps;
}

/// The conditions that must hold whenever all ranks have been killed.
void check_left(const Writers& writers, int64_t keep) {
  const runtime::CheckpointStore store(writers.folder());
  const auto newest = store.newest_checkpoint();
  CHECK(newest.damaged.empty());
  const std::vector<int64_t> steps = published(writers);
  if (steps.empty()) return;
  REQUIRE(newest.found.has_value());
  CHECK(newest.found->step >= steps.back());
  const auto left = store.list();
  CHECK(static_cast<int64_t>(left.size()) >= std::min(keep, static_cast<int64_t>(steps.size())));
  for (const auto& checkpoint : left) CHECK_FALSE(runtime::fault_of(checkpoint.path));
}

std::vector<std::string> kinds_of(const FileOperation& operation) {
  if (!operation.writes()) return {"kill"};
  return {"kill", "torn"};
}

/// Strikes once, then lets the ranks go on. Returns whether the ranks came to the operation: which
/// rank makes a folder that all need varies.
bool strike(const Writers& writers, const std::string& fault, int64_t keep) {
  const bool struck = writers.run(fault).exit_code != 0;
  check_left(writers, keep);
  const tests::ProcessEnd again = writers.run();
  CAPTURE(again.err);
  REQUIRE(again.exit_code == 0);
  return struck;
}

/// Strikes every rank at every operation, or at a sample; returns the number of cases.
int strike_everywhere(int ranks, int64_t steps, int64_t keep) {
  const Writers whole(ranks, steps, keep);
  REQUIRE(whole.run().exit_code == 0);
  const auto expected = whole.contents();
  tests::Sample sample;
  int cases = 0;
  for (const FileOperation& operation : tests::read_fault_log(whole.log(), "begin")) {
    for (const std::string& kind : kinds_of(operation)) {
      if (!sample.has_next()) continue;
      CAPTURE(ranks, kind, operation.text());
      const Writers writers(ranks, steps, keep);
      const bool struck = strike(writers, operation.fault(kind), keep);
      CHECK((struck || operation.name == "mkdir"));
      CHECK(writers.contents() == expected);
      cases += struck ? 1 : 0;
    }
  }
  return cases;
}

}  // namespace

TEST_CASE("ranks killed at any operation on a checkpoint lose none", "[checkpoint]") {
  const int cases = strike_everywhere(2, 2, 1);
  CHECK(cases > tests::sampled(60));
}

TEST_CASE("any number of ranks killed at any operation loses no checkpoint", "[checkpoint][long]") {
  int cases = 0;
  for (const int ranks : {1, 2, 3, 4}) {
    for (const int64_t keep : {1, 2}) cases += strike_everywhere(ranks, 4, keep);
  }
  CHECK(cases > 0);
}

namespace {

/// The files of ranks that were killed while they wrote step 3, with step 2 damaged on the disk.
void leave_damaged(const Writers& writers) {
  const FileOperation state{
      .rank = 0, .name = "rename", .path = ".tmp-step-00000003-g1/state.json"};
  REQUIRE(writers.run(state.fault("kill")).exit_code == 1);
  fs::resize_file(writers.folder() + "/step-00000002/state.json", 10);
  fs::remove(writers.log());
}

}  // namespace

TEST_CASE("a rank that is killed while it recovers is recovered from", "[checkpoint]") {
  const Writers whole(2, 3, 2);
  leave_damaged(whole);
  REQUIRE(whole.run().exit_code == 0);
  const auto expected = whole.contents();
  CHECK(expected.contains("damaged-step-00000002/state.json"));
  CHECK(expected.contains("step-00000003/state.json"));
  int cases = 0;
  for (const FileOperation& operation : tests::read_fault_log(whole.log(), "begin")) {
    if (operation.rank >= 0) continue;
    CAPTURE(operation.text());
    const Writers writers(2, 3, 2);
    leave_damaged(writers);
    REQUIRE(writers.run(operation.fault("kill")).signal == SIGKILL);
    REQUIRE(writers.run().exit_code == 0);
    CHECK(writers.contents() == expected);
    ++cases;
  }
  CHECK(cases > 15);
}

/// A file's last write comes before its last sync, and that before the folder is renamed.
TEST_CASE("all of a checkpoint is synced before it gets its name", "[checkpoint]") {
  const Writers writers(2, 1, 1);
  REQUIRE(writers.run().exit_code == 0);
  const auto operations = tests::read_fault_log(writers.log(), "end");
  std::map<std::string, int> unsynced;  // by rank and path: writes since the last sync
  bool is_published = false;
  for (const FileOperation& done : operations) {
    const std::string file = std::to_string(done.rank) + " " + done.path;
    if (fs::path(done.path).filename().string().starts_with("part-")) continue;  // receipts
    if (done.writes()) ++unsynced[file];
    if (done.name == "sync") unsynced[file] = 0;
    // The folder's entries that stay.
    const std::string folder = "0 " + fs::path(done.path).parent_path().string();
    if (done.name == "rename" || done.name == "remove") ++unsynced[folder];
    if (done.name != "rename" || !runtime::step_of(done.path)) continue;
    is_published = true;
    for (const auto& [path, count] : unsynced) {
      CAPTURE(path);
      if (path != "0 ") CHECK(count == 0);  // the name's own folder, which is synced afterwards
    }
  }
  CHECK(is_published);
}

TEST_CASE("a full disk ends the writing, and the previous checkpoint stays", "[checkpoint]") {
  const Writers whole(2, 2, 2);
  REQUIRE(whole.run().exit_code == 0);
  const auto operations = tests::read_fault_log(whole.log(), "begin");
  tests::Sample sample;
  int cases = 0;
  for (const FileOperation& operation : operations) {
    if (operation.name == "remove" || operation.rank < 0) continue;
    if (operation.name == "mkdir") continue;  // another rank may have made it
    if (!sample.has_next()) continue;
    CAPTURE(operation.text());
    const Writers writers(2, 2, 2);
    const tests::ProcessEnd ended = writers.run(operation.fault("full"));
    CAPTURE(ended.err);
    CHECK(ended.exit_code == 1);
    CHECK(ended.err.find("No space left on device") != std::string::npos);
    check_left(writers, 1);
    CHECK(writers.run().exit_code == 0);
    ++cases;
  }
  CHECK(cases > tests::sampled(40));
}

namespace {

bool is_stopped(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string id, name, state;
  return (stat >> id >> name >> state) && state == "T";
}

/// The rank of a launcher that is stopped; 0: none yet.
pid_t stopped_child(const tests::Process& launcher) {
  for (const pid_t pid : launcher.children()) {
    if (is_stopped(pid)) return pid;
  }
  return 0;
}

/// Stops rank 0 at an operation on step 2, lets another attempt begin, and lets rank 0 go on.
/// Returns whether rank 0 was kept from publishing.
bool overtake(const FileOperation& operation, bool takes_over) {
  const Writers writers(2, 2, 2);
  tests::Process old(tests::watched({SHARDLENS_WRITE_CHECKPOINTS, writers.folder(), "2", "2", "2"},
                                    writers.folder(), writers.log(), operation.fault("stop")));
  pid_t stopped = 0;
  REQUIRE(tests::wait_until([&] { return (stopped = stopped_child(old)) != 0; }));
  const fs::path folder = writers.folder();
  const runtime::CheckpointStore store(folder, runtime::Fence::begin(folder.parent_path()));
  const auto newest = store.newest_checkpoint();
  if (takes_over) store.take_over(newest, {.wanted = true, .keep = 2});
  const auto before = writers.contents();
  // If rank 1 has found that its folder is gone, the launcher has already killed the stopped rank.
  const int error = ::kill(stopped, SIGCONT) == 0 ? 0 : errno;
  REQUIRE((error == 0 || (takes_over && error == ESRCH)));
  const tests::ProcessEnd ended = old.wait();
  for (const auto& left : store.list()) CHECK_FALSE(runtime::fault_of(left.path));
  const bool was_before = newest.found->step == 1;
  // It has already checked, and nothing was taken over yet: then the checkpoint is published.
  const bool has_looked = operation.name == "rename" && runtime::step_of(operation.path);
  if (!was_before || (has_looked && !takes_over)) return false;
  INFO(ended.err);
  CHECK(ended.exit_code == 1);
  CHECK(ended.err.find(takes_over ? "rank " : "it writes nothing more") != std::string::npos);
  CHECK(store.newest_checkpoint().found->step == 1);
  if (!takes_over) return true;
  // A rank that had checked and not yet made its folder makes it now: under its own attempt's name,
  // which is never published and which the next attempt removes.
  store.take_over(store.newest_checkpoint(), {.wanted = true, .keep = 2});
  CHECK(writers.contents() == before);
  return true;
}

}  // namespace

TEST_CASE("a rank that is stopped during a restart neither publishes nor writes", "[checkpoint]") {
  const Writers whole(2, 2, 2);
  REQUIRE(whole.run().exit_code == 0);
  int cases = 0;
  for (const FileOperation& operation : tests::read_fault_log(whole.log(), "begin")) {
    const bool is_of_step = operation.path.find("step-00000002") != std::string::npos;
    if (operation.rank != 0 || !is_of_step || operation.name == "mkdir") continue;
    for (const bool takes_over : {false, true}) {
      CAPTURE(operation.text(), takes_over);
      cases += overtake(operation, takes_over) ? 1 : 0;
    }
  }
  CHECK(cases > 20);
}
