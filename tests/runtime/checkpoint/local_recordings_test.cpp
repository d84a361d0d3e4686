// Tests which recordings on a host's own disk are moved to the run's folder, and which must not be.
#include "runtime/checkpoint/local_recordings.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <chrono>
#include <memory>
#include <stdexcept>

#include "base/durable_files.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
namespace fs = std::filesystem;

namespace {

/// A run, its attempts, and a host's disk.
class Host {
 public:
  Host() : run_(open(false)) {}

  RunDirectory& run() { return *run_; }
  fs::path disk() const { return folder_.file("disk/deep"); }
  fs::path open_part(int rank) { return run().profile(rank).string() + ".open"; }

  void start_over() {
    run_.reset();
    run_ = open(true);
  }
  LocalRecordings next_attempt() { return {disk(), run(), run().begin_attempt()}; }

  /// The files that a rank had written, killed or not.
  static void record(const LocalRecordings& recordings, int rank, const std::string& text,
                     bool was_killed = false) {
    make_folders(recordings.file(rank).parent_path());
    write_file(recordings.file(rank), text);
    if (was_killed) write_file(recordings.file(rank).string() + ".open", text + " (open)");
  }
  /// No files of runs are left there.
  bool is_clean() const { return fs::is_empty(disk()); }

 private:
  std::unique_ptr<RunDirectory> open(bool fresh) const {
    planner::Config config;
    config.storage = folder_.file("runs");
    config.name = "r";
    config.fresh = fresh;
    return std::make_unique<RunDirectory>(RunDirectory::open(config));
  }

  tests::TemporaryFolder folder_;
  std::unique_ptr<RunDirectory> run_;
};

}  // namespace

TEST_CASE("without a folder on the host, ranks record in the run's", "[local_recordings]") {
  Host host;
  const LocalRecordings recordings("", host.run(), host.run().begin_attempt());
  CHECK(recordings.file(3) == host.run().profile(3));
  Host::record(recordings, 3, "here");
  recordings.collect(3);
  CHECK(recordings.collect_left().empty());
  CHECK(tests::read_file(host.run().profile(3)) == "here");
}

TEST_CASE("a rank's recording is moved with the remains of a killed rank", "[local_recordings]") {
  Host host;
  const LocalRecordings first = host.next_attempt();
  first.collect(0);  // there is none
  Host::record(first, 0, "first", true);
  Host::record(first, 1, "other");
  first.collect(0);
  CHECK(tests::read_file(host.run().profile(0)) == "first");
  CHECK(tests::read_file(host.open_part(0)) == "first (open)");
  CHECK_FALSE(fs::exists(host.run().profile(1)));
  first.collect(1);
  CHECK(host.is_clean());

  const LocalRecordings second = host.next_attempt();
  Host::record(second, 0, "second");
  second.collect(0);
  CHECK(tests::read_file(host.run().profile(0)) == "second");
  CHECK_FALSE(fs::exists(host.open_part(0)));  // belonged to the first one
  CHECK(host.is_clean());
  const auto files = fs::directory_iterator(host.run().profile(0).parent_path());
  CHECK(std::distance(fs::begin(files), fs::end(files)) == 2);
}

TEST_CASE("the next attempt collects what was left, and nothing newer", "[local_recordings]") {
  Host host;
  const LocalRecordings first = host.next_attempt();
  Host::record(first, 0, "old", true);
  Host::record(first, 2, "of a rank that has ended");
  const LocalRecordings second = host.next_attempt();
  Host::record(second, 0, "newer");
  const LocalRecordings third = host.next_attempt();
  Host::record(third, 1, "of now");

  const auto lines = third.collect_left();
  REQUIRE(lines.size() == 3);
  CHECK_THAT(lines[0], ContainsSubstring("collected ") && ContainsSubstring("rank0.slp"));
  CHECK(tests::read_file(host.run().profile(0)) == "newer");
  CHECK_FALSE(fs::exists(host.open_part(0)));
  CHECK(tests::read_file(host.run().profile(2)) == "of a rank that has ended");
  CHECK_FALSE(fs::exists(host.run().profile(1)));
  CHECK(tests::read_file(third.file(1)) == "of now");
  CHECK_FALSE(fs::exists(first.file(0).parent_path()));
}

TEST_CASE("old remains do not replace a later recording", "[local_recordings]") {
  Host host;
  const LocalRecordings first = host.next_attempt();
  Host::record(first, 0, "left behind", true);
  fs::last_write_time(first.file(0), fs::file_time_type::clock::now() - std::chrono::hours(1));
  write_file(host.run().profile(0), "of a later attempt on another host");
  CHECK(host.next_attempt().collect_left().empty());
  CHECK(tests::read_file(host.run().profile(0)) == "of a later attempt on another host");
  CHECK(host.is_clean());
}

TEST_CASE("a run that is started over gets nothing from the previous one", "[local_recordings]") {
  Host host;
  const LocalRecordings before = host.next_attempt();
  Host::record(before, 0, "of another run");
  host.start_over();
  CHECK(host.next_attempt().collect_left().empty());
  CHECK_FALSE(fs::exists(host.run().profile(0)));
  CHECK(fs::exists(before.file(0)));
}

TEST_CASE("a rank of an older attempt leaves its recording to a newer", "[local_recordings]") {
  Host host;
  const LocalRecordings old = host.next_attempt();
  Host::record(old, 0, "late");
  const LocalRecordings newer = host.next_attempt();
  try {
    old.collect(0);
    FAIL("it was collected");
  } catch (const Failure& error) {
    CHECK(error.fault() == Fault::overtaken);
  }
  CHECK_FALSE(fs::exists(host.run().profile(0)));
  CHECK(newer.collect_left().size() == 1);
  CHECK(tests::read_file(host.run().profile(0)) == "late");
}

TEST_CASE("a recording stays where it is while the run's disk fails", "[local_recordings]") {
  Host host;
  const LocalRecordings first = host.next_attempt();
  Host::record(first, 0, "kept");
  const fs::path profiles = host.run().profile(0).parent_path();
  fs::remove(profiles);
  write_file(profiles, "no folder");
  CHECK_THROWS_AS(first.collect(0), Failure);
  const auto lines = host.next_attempt().collect_left();
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0],
             ContainsSubstring("warning: ") && ContainsSubstring("rank0.slp was not moved"));
  CHECK(tests::read_file(first.file(0)) == "kept");
  fs::remove(profiles);
  fs::create_directory(profiles);
  CHECK(host.next_attempt().collect_left().size() == 1);
  CHECK(tests::read_file(host.run().profile(0)) == "kept");
}

TEST_CASE("a folder in which nothing can be made is refused", "[local_recordings]") {
  const tests::TemporaryFolder folder;
  write_file(folder.file("file"), "");
  LocalRecordings::check("");
  LocalRecordings::check(folder.file("not/yet/there"));
  CHECK_FALSE(fs::exists(folder.file("not")));
  CHECK_THROWS_MATCHES(
      LocalRecordings::check(folder.file("file/deep")), std::invalid_argument,
      MessageMatches(ContainsSubstring("--profile-dir ") && ContainsSubstring("Not a directory")));
}
