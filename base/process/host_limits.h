// Reads how much memory of this host a process can still take, whether the kernel has ended
// processes because there was no more, and which processor the host has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "base/fault.h"

namespace shardlens {

/// Returns the smaller of what the kernel says is available and what a container's limit (cgroup v2
/// or v1) leaves, in bytes, or nothing if the kernel does not say. `root` holds proc/ and sys/.
std::optional<int64_t> available_host_bytes(const std::filesystem::path& root = "/");

/// Returns the name of this host's processor, or "unknown processor". `root` is as above.
std::string host_processor(const std::filesystem::path& root = "/");

/// Notices that the kernel's out-of-memory killer ends processes. It looks at the innermost cgroup
/// around this process that has a limit, which a container's or a job's processes share; without
/// a limit, at this process's own cgroup. Both versions of cgroups are read. `root` is as above.
class MemoryKillWatch {
 public:
  explicit MemoryKillWatch(std::filesystem::path root = "/");

  /// Returns a clause that says how many processes were ended since this was made. Returns nothing
  /// if there were none, or if the kernel does not say.
  Problem kills() const;

 private:
  std::filesystem::path root_;
  int64_t before_;
};

}  // namespace shardlens
