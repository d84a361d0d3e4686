// Reads the entries of a zip archive that are stored uncompressed, as torch.save writes them, even
// beyond 4 GiB (zip64). An entry is a part of the archive's bytes, not a copy.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>

namespace shardlens::runtime {

using ZipEntries = std::map<std::string, std::span<const std::byte>, std::less<>>;

/// Returns the entries by name, without the folder that PyTorch puts all of them in. Each is
/// checked against its CRC-32. Throws std::runtime_error that says what is damaged or not
/// supported.
ZipEntries read_zip(std::span<const std::byte> archive);

}  // namespace shardlens::runtime
