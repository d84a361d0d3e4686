#include "base/process/host_limits.h"

#include <catch2/catch_test_macros.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temporary_folder.h"

using shardlens::available_host_bytes;

namespace {

class Root {
 public:
  void write(const std::string& file, const std::string& text) const {
    const std::filesystem::path path = folder_.file(file);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::optional<int64_t> available() const { return available_host_bytes(folder_.file("")); }

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

TEST_CASE("this machine has memory left") { CHECK(available_host_bytes().value_or(0) > 1 << 20); }
