// The kernel's out-of-memory killer is told from a crash, under our own launcher and under others.
// The test stands for the kernel: it kills a rank and counts that in files of its own, which a
// mount namespace shows to the ranks as those of their cgroup.
#include <signal.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runtime/launch/events.h"
#include "tests/support/free_port.h"
#include "tests/support/launched_runs.h"

using namespace shardlens;
using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

/// A cgroup with a limit, as a container sees its own.
class Cgroup {
 public:
  Cgroup() {
    fs::create_directory(files_.file("mount"));
    write_file(files_.file("names"), "0::/\n");
    write_file(files_.file("mount/memory.max"), "4294967296\n");
    count_kills(3);  // those of before do not count
  }
  void count_kills(int kills) const {
    write_file(files_.file("mount/memory.events"),
               "low 0\noom 1\noom_kill " + std::to_string(kills) + "\n");
  }
  /// The command, in this cgroup.
  Words around(const Words& command) const {
    const std::string script = "mount --bind " + files_.file("mount") +
                               " /sys/fs/cgroup && mount --bind " + files_.file("names") +
                               " /proc/$$/cgroup && exec \"$@\"";
    return Words{"/usr/bin/unshare", "--mount", "/bin/bash", "-c", script, "bash"} + command;
  }

 private:
  TemporaryFolder files_;
};

const std::string kSaid =
    "the kernel's out-of-memory killer has ended 1 process of this job's cgroup, whose limit is "
    "4.00 GiB";

#define SKIP_WITHOUT_MOUNTS(cgroup)                       \
  if (run((cgroup).around({"/bin/true"})).exit_code != 0) \
  SKIP("root and mount namespaces are needed")

}  // namespace

TEST_CASE("a rank that the kernel kills for lack of memory is told from a crash", "[host_memory]") {
  const Cgroup cgroup;
  SKIP_WITHOUT_MOUNTS(cgroup);
  for (const bool for_memory : {true, false}) {
    const TrainBench bench;
    Process launcher(cgroup.around(bench.command(kLong + Words{"--workers", "2"})));
    REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
    if (for_memory) cgroup.count_kills(4);
    ::kill(launcher.children().at(1), SIGKILL);
    const ProcessEnd ended = launcher.wait();
    CAPTURE(for_memory, ended.err);
    CHECK(ended.exit_code == 1);
    CHECK_THAT(ended.err, ContainsSubstring("rank 1 was killed by signal 9"));
    CHECK((ended.err.find(kSaid) != std::string::npos) == for_memory);
    const Words expected = for_memory ? Words{"1 started", "1 host_out_of_memory", "1 killed"}
                                      : Words{"1 started", "1 killed"};
    CHECK(told_by_attempt(bench) == expected);
  }
}

TEST_CASE("ranks of another launcher say what the kernel did on their host", "[host_memory]") {
  const Cgroup cgroup;
  SKIP_WITHOUT_MOUNTS(cgroup);
  const TrainBench bench;
  const std::string port = std::to_string(free_port());
  std::vector<std::unique_ptr<Process>> ranks;
  for (const std::string rank : {"0", "1", "2"}) {
    const Words variables = {"/usr/bin/env",       "RANK=" + rank,       "WORLD_SIZE=3",
                             "LOCAL_RANK=" + rank, "LOCAL_WORLD_SIZE=3", "MASTER_ADDR=127.0.0.1",
                             "MASTER_PORT=" + port};
    ranks.push_back(std::make_unique<Process>(cgroup.around(variables + bench.command(kLong))));
  }
  REQUIRE(wait_until([&] { return has_checkpoint(bench); }));
  cgroup.count_kills(4);
  ::kill(ranks[1]->pid(), SIGKILL);
  for (const int rank : {0, 2}) {
    const ProcessEnd ended = ranks[rank]->wait();
    CHECK(ended.exit_code == 1);
    CHECK_THAT(ended.err,
               ContainsSubstring("rank 1 no longer responds") && ContainsSubstring(kSaid));
  }
  CHECK(told_by_attempt(bench) == Words{"1 started", "1 host_out_of_memory", "1 lost"});
}
