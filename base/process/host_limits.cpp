#include "base/process/host_limits.h"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "base/units.h"

namespace shardlens {

namespace {

namespace fs = std::filesystem;

/// Returns the number that a file begins with, or nothing if there is none, as with "max".
std::optional<int64_t> number_in(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  if (!(file >> number)) return std::nullopt;
  return number;
}

/// Returns the number behind a key, in a file with one key a line.
std::optional<int64_t> number_of(std::string_view wanted, const fs::path& path) {
  std::ifstream file(path);
  std::string key;
  while (file >> key) {
    int64_t number = 0;
    if (key == wanted && file >> number) return number;
    std::getline(file, key);
  }
  return std::nullopt;
}

std::optional<int64_t> kernel_bytes(const fs::path& meminfo) {
  const std::optional<int64_t> kib = number_of("MemAvailable:", meminfo);
  return kib ? std::optional(*kib * 1024) : std::nullopt;
}

/// Returns what a container's limit leaves. Cached files that are not in use count as used, but are
/// dropped when memory is needed, so they are added back.
std::optional<int64_t> left_below(const fs::path& limit, const fs::path& used,
                                  std::optional<int64_t> cached_bytes) {
  const std::optional<int64_t> limit_bytes = number_in(limit);
  const std::optional<int64_t> used_bytes = number_in(used);
  if (!limit_bytes || !used_bytes) return std::nullopt;
  return std::max(*limit_bytes - *used_bytes + cached_bytes.value_or(0), int64_t{0});
}

/// Holds what a cgroup says about memory.
struct MemoryGroup {
  std::optional<int64_t> kills;  // nothing: it does not say
  std::optional<int64_t> limit_bytes;
};

/// The limit that version 1 shows if there is none is close to the largest number.
constexpr int64_t kNoLimit = int64_t{1} << 60;

/// Names the files of a version.
struct GroupFiles {
  const char* mount;
  const char* kills;
  const char* limit;
};
constexpr GroupFiles kVersion1 = {"sys/fs/cgroup/memory", "memory.oom_control",
                                  "memory.limit_in_bytes"};
constexpr GroupFiles kVersion2 = {"sys/fs/cgroup", "memory.events", "memory.max"};

MemoryGroup group_in(const fs::path& folder, const GroupFiles& files) {
  MemoryGroup group{.kills = number_of("oom_kill", folder / files.kills),
                    .limit_bytes = number_in(folder / files.limit)};
  if (group.limit_bytes.value_or(0) >= kNoLimit) group.limit_bytes.reset();
  return group;
}

/// Returns the innermost group with a limit, else the innermost that says anything. A container may
/// see its own group at the mount, under the path that it has outside.
MemoryGroup group_around(const fs::path& mount, const fs::path& inside, const GroupFiles& files) {
  MemoryGroup innermost;
  fs::path path = fs::path("/") / inside;
  for (;; path = path.parent_path()) {
    const MemoryGroup group = group_in(mount / path.relative_path(), files);
    if (group.kills && group.limit_bytes) return group;
    if (!innermost.kills) innermost = group;
    if (path == path.root_path()) return innermost;
  }
}

/// Returns the group of this process: version 1's if the kernel has its memory there.
MemoryGroup memory_group(const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  MemoryGroup second;
  for (std::string line; std::getline(groups, line);) {  // "4:memory:/job" or "0::/job"
    std::istringstream parts(line);
    std::string number, controllers, path;
    std::getline(parts, number, ':');
    std::getline(parts, controllers, ':');
    std::getline(parts, path);
    if (("," + controllers + ",").find(",memory,") != std::string::npos) {
      return group_around(root / kVersion1.mount, path, kVersion1);
    }
    if (controllers.empty()) second = group_around(root / kVersion2.mount, path, kVersion2);
  }
  return second;
}

}  // namespace

MemoryKillWatch::MemoryKillWatch(fs::path root)
    : root_(std::move(root)), before_(memory_group(root_).kills.value_or(0)) {}

Problem MemoryKillWatch::kills() const {
  const MemoryGroup now = memory_group(root_);
  const int64_t kills = now.kills.value_or(0) - before_;
  if (kills <= 0) return std::nullopt;
  const std::string limit =
      now.limit_bytes ? ", whose limit is " + bytes_text(*now.limit_bytes) : std::string();
  return "the kernel's out-of-memory killer has ended " + std::to_string(kills) +
         (kills == 1 ? " process" : " processes") + " of this job's cgroup" + limit +
         "; give the job more host memory";
}

std::string host_processor(const fs::path& root) {
  std::ifstream file(root / "proc" / "cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t name = line.find(": ");
    if (line.starts_with("model name") && name != std::string::npos) return line.substr(name + 2);
  }
  return "unknown processor";
}

std::optional<int64_t> available_host_bytes(const fs::path& root) {
  std::optional<int64_t> available = kernel_bytes(root / "proc/meminfo");
  const fs::path cgroup = root / "sys/fs/cgroup";
  const auto lower_to = [&](std::optional<int64_t> bytes) {
    if (bytes && available) available = std::min(*available, *bytes);
  };
  lower_to(left_below(cgroup / "memory.max", cgroup / "memory.current",
                      number_of("inactive_file", cgroup / "memory.stat")));
  const fs::path v1 = cgroup / "memory";
  lower_to(left_below(v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes",
                      number_of("total_inactive_file", v1 / "memory.stat")));
  return available;
}

}  // namespace shardlens
