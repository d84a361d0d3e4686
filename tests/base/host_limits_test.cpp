#include "base/process/host_limits.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

using shardlens::available_host_bytes;
using shardlens::host_processor;
using shardlens::MemoryKillWatch;

namespace {

class Root {
 public:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_.file(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<int64_t> available() const { return available_host_bytes(folder_.file("")); }
  std::string processor() const { return host_processor(folder_.file("")); }
  MemoryKillWatch watch() const { return MemoryKillWatch(folder_.file("")); }

 private:
  shardlens::tests::TemporaryFolder folder_;
};

}  // namespace

TEST_CASE("memory that is left is the kernel's figure, or less in a container") {
  const Root root;
  CHECK_FALSE(root.available());
  root.write("proc/meminfo", "MemTotal:  4000 kB\nMemFree: 10 kB\nMemAvailable:   3000 kB\n");
  CHECK(root.available() == 3000 * 1024);
  root.write("sys/fs/cgroup/memory.max", "max\n");
  root.write("sys/fs/cgroup/memory.current", "1000000\n");
  CHECK(root.available() == 3000 * 1024);
  root.write("sys/fs/cgroup/memory.max", "2000000\n");
  CHECK(root.available() == 1000000);
  root.write("sys/fs/cgroup/memory.stat", "anon 5\ninactive_file 250000\nactive_file 7\n");
  CHECK(root.available() == 1250000);
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "900000\n");
  root.write("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000000\n");
  CHECK(root.available() == 0);
}

TEST_CASE("processes that the kernel ends for lack of memory are counted by the job's cgroup") {
  const std::string text = "the kernel's out-of-memory killer has ended ";
  const std::string job = "sys/fs/cgroup/slurm/job_7/", step = job + "step_0/task_1/";
  const Root root;
  CHECK_FALSE(root.watch().kills());  // the kernel does not say
  root.write("proc/self/cgroup", "0::/slurm/job_7/step_0/task_1\n");
  root.write(step + "memory.events", "oom 0\noom_kill 0\n");
  root.write(step + "memory.max", "max\n");
  root.write(job + "memory.events", "oom 0\noom_kill 5\n");
  root.write(job + "memory.max", "1073741824\n");
  root.write("sys/fs/cgroup/slurm/memory.events", "oom_kill 100\n");
  const MemoryKillWatch watch = root.watch();
  CHECK_FALSE(watch.kills());
  root.write("sys/fs/cgroup/slurm/memory.events", "oom_kill 101\n");  // of another job
  CHECK_FALSE(watch.kills());
  root.write(job + "memory.events", "oom 1\noom_kill 7\n");  // of another task of this job
  CHECK(watch.kills().value_or("") ==
        text +
            "2 processes of this job's cgroup, whose limit is 1.00 GiB; give the job more host "
            "memory");
}

TEST_CASE("kills are read from version 1 of cgroups, also in a container") {
  const Root root;
  root.write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/pods/outside\n0::/\n");
  root.write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\noom_kill 1\n");
  root.write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryKillWatch watch = root.watch();
  root.write("sys/fs/cgroup/memory/memory.oom_control", "oom_kill_disable 0\noom_kill 2\n");
  CHECK(watch.kills().value_or("") ==
        "the kernel's out-of-memory killer has ended 1 process of this job's cgroup; give the job "
        "more host memory");
}

TEST_CASE("a processor is named as the kernel names it") {
  const Root root;
  CHECK(root.processor() == "unknown processor");
  root.write("proc/cpuinfo", "processor\t: 0\nmodel name\t: AMD EPYC 9654: 96\nflags\t\t: fpu\n");
  CHECK(root.processor() == "AMD EPYC 9654: 96");
}

TEST_CASE("this machine has memory left") { CHECK(available_host_bytes().value_or(0) > 1 << 20); }
