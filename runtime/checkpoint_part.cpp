#include "runtime/checkpoint_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <thread>

#include "profiler/file/crc32c.h"
#include "runtime/durable_files.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

/// A range that was written.
struct Written {
  int file = 0;
  int64_t offset_bytes = 0;
  int64_t bytes = 0;
  uint32_t crc32c = 0;
};

struct Receipt {
  std::vector<Written> written;
  RankProgress progress;
};

fs::path receipt_path(const fs::path& folder, int rank) {
  return folder / fmt::format("part-{}.json", rank);
}

std::string to_json(const Receipt& receipt) {
  Json ranges = Json::array();
  for (const Written& range : receipt.written) {
    ranges.push_back({range.file, range.offset_bytes, range.bytes, range.crc32c});
  }
  return Json{{"ranges", ranges}, {"progress", to_json(receipt.progress)}}.dump();
}

Receipt read_receipt(const fs::path& path) {
  const Json json = Json::parse(read_whole_file(path));
  Receipt receipt;
  for (const Json& range : json.at("ranges")) {
    receipt.written.push_back({range[0], range[1], range[2], range[3]});
  }
  receipt.progress = parse_rank_progress(json.at("progress").get<std::string>());
  return receipt;
}

/// Read by a living rank 0 alone, so it is not synced. Once it is there, rank 0 may rename the
/// folder: nothing may be done in it after that.
void leave(const fs::path& path, const std::string& text) {
  const fs::path temporary = path.string() + ".tmp";
  SharedFile(temporary, SharedFile::Content::drop).write_at(0, std::as_bytes(std::span(text)));
  fs::rename(temporary, path);
}

std::vector<FileRange> with_headers(const Part& part) {
  std::vector<FileRange> ranges = part.ranges;
  if (part.rank != 0) return ranges;
  for (size_t file = 0; file < part.layout.files.size(); ++file) {
    ranges.push_back(
        {static_cast<int>(file), 0, std::as_bytes(std::span(part.layout.files[file].header))});
  }
  return ranges;
}

/// By file, each in its order.
std::vector<std::vector<FileRange>> by_file(const Part& part) {
  std::vector<std::vector<FileRange>> files(part.layout.files.size());
  for (const FileRange& range : with_headers(part)) {
    if (!range.data.empty()) files[static_cast<size_t>(range.file)].push_back(range);
  }
  for (std::vector<FileRange>& ranges : files) {
    std::ranges::sort(ranges, {}, &FileRange::offset_bytes);
  }
  return files;
}

/// Returns the sum.
uint32_t write_range(const SharedFile& file, const FileRange& range) {
  uint32_t sum = 0;
  for (size_t at = 0; at < range.data.size(); at += profiler::kCrc32cPieceBytes) {
    const auto piece =
        range.data.subspan(at, std::min(profiler::kCrc32cPieceBytes, range.data.size() - at));
    sum = profiler::crc32c(piece, sum);
    file.write_at(range.offset_bytes + static_cast<int64_t>(at), piece);
  }
  return sum;
}

void write_ranges(const fs::path& path, const std::vector<FileRange>& ranges, Receipt& receipt) {
  const SharedFile file(path);
  for (const FileRange& range : ranges) {
    receipt.written.push_back({range.file, range.offset_bytes,
                               static_cast<int64_t>(range.data.size()), write_range(file, range)});
  }
  file.sync();
}

void wait_for_receipt(const fs::path& folder, int rank, const std::string& name,
                      const Patience& patience) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  const auto give_up = Clock::now() + patience.deadline;
  while (!fs::exists(receipt_path(folder, rank))) {
    if (patience.is_stopped && patience.is_stopped()) {
      throw std::runtime_error(fmt::format("{}: stopped while waiting for rank {}", name, rank));
    }
    if (Clock::now() > give_up) {
      throw Failure(
          Fault::hung,
          fmt::format("{}: rank {} has not written its part within {:.1f} s; give a larger "
                      "--timeout, or look "
                      "at the disk under {}",
                      name, rank, std::chrono::duration<double>(patience.deadline).count(),
                      folder.parent_path().string()),
          rank);
    }
    std::this_thread::sleep_for(kPause);
  }
}

/// From the checksums of all its ranges, which must fill it.
ManifestFile put_together(const PlannedFile& planned, std::vector<Written> ranges) {
  std::ranges::sort(ranges, {}, &Written::offset_bytes);
  ManifestFile file{.name = planned.name, .bytes = 0, .crc32c = 0};
  for (const Written& range : ranges) {
    if (range.offset_bytes != file.bytes) break;
    file.crc32c =
        profiler::crc32c_joined(file.crc32c, range.crc32c, static_cast<uint64_t>(range.bytes));
    file.bytes += range.bytes;
  }
  if (file.bytes != planned.bytes) {
    throw std::logic_error(
        fmt::format("{}: the parts of all ranks leave out byte {}, or have it twice", planned.name,
                    file.bytes));
  }
  return file;
}

}  // namespace

void write_part(const Part& part) {
  make_folders(part.folder);
  const std::vector<std::vector<FileRange>> files = by_file(part);
  Receipt receipt{.written = {}, .progress = part.progress};
  // Each rank begins with another file, since writes to one wait for each other.
  for (size_t i = 0; i < files.size(); ++i) {
    const size_t file = (i + static_cast<size_t>(part.rank)) % files.size();
    if (files[file].empty()) continue;
    write_ranges(part.folder / part.layout.files[file].name, files[file], receipt);
  }
  leave(receipt_path(part.folder, part.rank), to_json(receipt));
}

CollectedParts collect_parts(const FileLayout& layout, const fs::path& folder, int world_size,
                             const std::string& name, const Patience& patience) {
  CollectedParts parts;
  std::vector<std::vector<Written>> ranges(layout.files.size());
  for (int rank = 0; rank < world_size; ++rank) {
    wait_for_receipt(folder, rank, name, patience);
    Receipt receipt = read_receipt(receipt_path(folder, rank));
    for (const Written& range : receipt.written) {
      ranges[static_cast<size_t>(range.file)].push_back(range);
    }
    parts.ranks.push_back(std::move(receipt.progress));
  }
  for (size_t i = 0; i < ranges.size(); ++i) {
    parts.files.push_back(put_together(layout.files[i], std::move(ranges[i])));
  }
  for (int rank = 0; rank < world_size; ++rank) fs::remove(receipt_path(folder, rank));
  return parts;
}

}  // namespace shardlens::runtime
