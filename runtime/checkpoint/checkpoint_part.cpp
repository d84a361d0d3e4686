#include "runtime/checkpoint/checkpoint_part.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/checksum/crc32c.h"
#include "base/durable_files.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

std::vector<FileRange> with_headers(const Part& part) {
  std::vector<FileRange> ranges = part.ranges;
  if (part.rank != 0) return ranges;
  for (size_t file = 0; file < part.layout.files.size(); ++file) {
    ranges.push_back(
        {static_cast<int>(file), 0, std::as_bytes(std::span(part.layout.files[file].header))});
  }
  return ranges;
}

/// Returns the ranges of each file, in the order of their offsets.
std::vector<std::vector<FileRange>> ranges_by_file(const Part& part) {
  std::vector<std::vector<FileRange>> files(part.layout.files.size());
  for (const FileRange& range : with_headers(part)) {
    check(range.file >= 0 && range.offset_bytes >= 0, "a part writes before a file's start");
    if (!range.data.empty()) files.at(static_cast<size_t>(range.file)).push_back(range);
  }
  for (std::vector<FileRange>& ranges : files) {
    std::ranges::sort(ranges, {}, &FileRange::offset_bytes);
    for (size_t i = 1; i < ranges.size(); ++i) {
      const int64_t end =
          ranges[i - 1].offset_bytes + static_cast<int64_t>(ranges[i - 1].data.size());
      check(end <= ranges[i].offset_bytes, "a rank writes the same bytes of a file twice");
    }
  }
  return files;
}

/// Writes the range, and returns its checksum.
uint32_t write_range(const SharedFile& file, const FileRange& range) {
  uint32_t sum = 0;
  for (size_t at = 0; at < range.data.size(); at += kCrc32cPieceBytes) {
    const auto piece = range.data.subspan(at, std::min(kCrc32cPieceBytes, range.data.size() - at));
    sum = crc32c(piece, sum);
    file.write_at(range.offset_bytes + static_cast<int64_t>(at), piece);
  }
  return sum;
}

void write_ranges(const fs::path& path, const std::vector<FileRange>& ranges, Receipt& receipt) {
  const SharedFile file(path);
  for (const FileRange& range : ranges) {
    receipt.ranges.push_back({range.file, range.offset_bytes,
                              static_cast<int64_t>(range.data.size()), write_range(file, range)});
  }
  file.sync();
}

}  // namespace

void write_part(const Part& part) {
  make_folders(part.folder);
  const std::vector<std::vector<FileRange>> files = ranges_by_file(part);
  Receipt receipt{.ranges = {}, .progress = part.progress};
  // Each rank begins with a different file, since writes to one file wait for each other.
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t file = (i + static_cast<size_t>(part.rank)) % files.size();
    if (files[file].empty()) continue;
    write_ranges(part.folder / part.layout.files[file].name, files[file], receipt);
  }
  leave_receipt(part.folder, part.rank, receipt);
}

CollectedParts collect_parts(const FileLayout& layout, const fs::path& folder, int world_size,
                             const std::string& name, const Patience& patience) {
  CollectedParts parts;
  std::vector<SummedRange> ranges;
  for (Receipt& receipt : take_receipts(folder, world_size, name, "written", patience)) {
    ranges.insert(ranges.end(), receipt.ranges.begin(), receipt.ranges.end());
    parts.ranks.push_back(std::move(receipt.progress));
  }
  const std::vector<JoinedRanges> joined = join(std::move(ranges), layout.files.size());
  check(joined.size() == layout.files.size(), "a file of the layout has no ranges");
  for (size_t i = 0; i < joined.size(); ++i) {
    const PlannedFile& planned = layout.files[i];
    check(joined[i].bytes == planned.bytes, [&] {
      return fmt::format("{}: the parts of all ranks leave out byte {}, or have it twice",
                         planned.name, joined[i].bytes);
    });
    parts.files.push_back(
        {.name = planned.name, .bytes = joined[i].bytes, .crc32c = joined[i].crc32c});
  }
  return parts;
}

}  // namespace shardlens::runtime
