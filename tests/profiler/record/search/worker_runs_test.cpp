#include "profiler/record/worker_runs.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/setting.h"
#include "tests/support/temporary_folder.h"

namespace shardlens::profiler {

namespace {

constexpr std::chrono::seconds kPatience{20};

std::array<int, 2> connected_sockets() {
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) == 0);
  return ends;
}

/// Plays the Python process that has the executor.
struct Parent {
  Workers workers() const {
    const tests::Setting given("SHARDLENS_WORKERS", std::to_string(ends[1]));
    return *Workers::of_parent();
  }
  std::array<int, 2> ends = connected_sockets();
  LineSocket own{ends[0]};
};

RecordOptions options_in(const std::string& folder) {
  RecordOptions options = parse_record_options({"--device", "null:l4", "--world", "4", "--steps",
                                                "3", "--time", "--with", "recompute", "--timeout",
                                                "60", "--out", folder, "--", "python", "train.py"});
  options.log = folder + "/log.txt";
  return options;
}

RecordedRun ended_run() {
  RecordedRun run;
  run.end = {.exit_code = 7, .how = "it was tired"};
  run.recordings = {"elsewhere/profiles/rank0.slp"};
  run.accounts.told = {{.process = 5, .time_s = 0.5, .what = "raised", .text = "\"odd\"\n\xff"}};
  run.host_bytes = int64_t{5} << 30;
  return run;
}

}  // namespace

TEST_CASE("a process without a parent that has an executor has no workers") {
  CHECK_FALSE(Workers::of_parent());
  for (const char* wrong : {"", "x", "-1", "99999"}) {
    const tests::Setting given("SHARDLENS_WORKERS", wrong);
    CHECK_THROWS_AS(Workers::of_parent(), std::invalid_argument);
  }
}

TEST_CASE("workers end programs in any order, each as it ended") {
  const tests::TemporaryFolder folder;
  Parent parent;
  Workers workers = parent.workers();
  const std::vector<RecordOptions> all = {
      options_in(folder.file("a")), options_in(folder.file("b")), options_in(folder.file("c"))};
  std::thread python([&] {
    std::vector<nlohmann::json> asked;
    for (size_t i = 0; i < all.size(); ++i) {
      asked.push_back(nlohmann::json::parse(*parent.own.receive(kPatience)));
    }
    {
      const tests::Setting worker("SHARDLENS_AS_A_WORKER", "1");
      keep_run_of_worker(all[2], ended_run());
    }
    for (const int run : {2, 0, 1}) {  // the second left nothing
      const std::string error = run == 0 ? "its node is gone" : "";
      parent.own.send(nlohmann::json{{"run", run}, {"error", error}}.dump());
    }
    const std::vector<std::string> words = asked[1].at("words");
    const RecordOptions parsed = parse_record_options({words.begin() + 1, words.end()});
    CHECK(parsed.out == all[1].out);
    CHECK(parsed.world_size == 4);
    CHECK(parsed.steps == 3);
    CHECK(parsed.timeout_s == 60);
    CHECK(parsed.traces_work);
    CHECK(levers_text(parsed.levers) == levers_text(all[1].levers));
    CHECK(parsed.command == all[1].command);
  });
  std::map<std::string, RecordedRun> ended;
  CHECK(workers.run(
      all, [&](const RecordOptions& one, const RecordedRun& run) { ended[one.out] = run; }));
  python.join();
  const RecordedRun& whole = ended.at(all[2].out);
  CHECK(whole.end.exit_code == 7);
  CHECK(whole.end.how == "it was tired");
  CHECK(whole.host_bytes == int64_t{5} << 30);
  CHECK(whole.recordings.at(0) == all[2].out + "/profiles/rank0.slp");
  CHECK(whole.accounts.told.at(0).what == "raised");
  CHECK(ended.at(all[0].out).end.how == "no worker could run it: its node is gone");
  CHECK(ended.at(all[0].out).end.is_failure());
  CHECK(ended.at(all[1].out).end.how.starts_with("its worker left no "));
}

TEST_CASE("a search whose parent has ended is interrupted") {
  const tests::TemporaryFolder folder;
  auto parent = std::make_unique<Parent>();
  Workers workers = parent->workers();
  std::thread python([&] {
    parent->own.receive(kPatience);
    ::close(parent->ends[1]);
    parent.reset();
  });
  CHECK_FALSE(
      workers.run({options_in(folder.file("a"))}, [](const auto&, const auto&) { FAIL(); }));
  python.join();
}

TEST_CASE("a recording that nobody asked for as a worker keeps no file") {
  const tests::TemporaryFolder folder;
  keep_run_of_worker(options_in(folder.file("")), ended_run());
  CHECK_FALSE(std::filesystem::exists(folder.file("run.json")));
}

}  // namespace shardlens::profiler
