// Reads how much memory of this host a process can still take.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace shardlens {

/// Returns the smaller of what the kernel says is available and what a container's limit (cgroup v2
/// or v1) leaves, in bytes, or nothing if the kernel does not say. `root` holds proc/ and sys/.
std::optional<int64_t> available_host_bytes(const std::filesystem::path& root = "/");

}  // namespace shardlens
