#include "base/process/host_limits.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

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

}  // namespace

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
