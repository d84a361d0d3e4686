// The entries of a zip archive that are stored as they are, as torch.save writes them; also beyond
// 4 GiB (zip64). Nothing is unpacked: an entry is a part of the archive's bytes.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace shardlens::runtime {

using ZipEntries = std::map<std::string, std::span<const std::byte>, std::less<>>;

/// By name, without the folder that PyTorch puts all of them in. Each is checked against its
/// CRC-32. Throws std::runtime_error with what is damaged, or of no kind that is read here.
ZipEntries read_zip(std::span<const std::byte> archive);

}  // namespace shardlens::runtime
