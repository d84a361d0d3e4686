#include "runtime/checkpoint/receipts.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <thread>

#include "base/check.h"
#include "base/checksum/crc32c.h"
#include "base/durable_files.h"
#include "base/strict_json.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

fs::path receipt_path(const fs::path& folder, int rank) {
  return folder / fmt::format("part-{}.json", rank);
}

std::string receipt_json(const Receipt& receipt) {
  nlohmann::json ranges = nlohmann::json::array();
  for (const SummedRange& range : receipt.ranges) {
    ranges.push_back({range.file, range.offset_bytes, range.bytes, range.crc32c});
  }
  return nlohmann::json{{"ranges", ranges}, {"progress", to_json(receipt.progress)}}.dump();
}

Receipt read_receipt(const fs::path& path) {
  const nlohmann::json json = parse_strict_json(read_whole_file(path));
  Receipt receipt;
  for (const nlohmann::json& range : json.at("ranges")) {
    receipt.ranges.push_back({range[0], range[1], range[2], range[3]});
  }
  receipt.progress = parse_rank_progress(json.at("progress").get<std::string>());
  return receipt;
}

void wait_for_receipt(const fs::path& folder, int rank, const std::string& name,
                      const std::string& done, const Patience& patience) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  const auto last_moment = Clock::now() + patience.deadline;
  while (!fs::exists(receipt_path(folder, rank))) {
    if (patience.is_stopped && patience.is_stopped()) {
      throw std::runtime_error(fmt::format("{}: stopped while waiting for rank {}", name, rank));
    }
    if (Clock::now() > last_moment) {
      throw Failure(
          Fault::hung,
          fmt::format("{}: rank {} has not {} its part within {:.1f} s; give a larger "
                      "--timeout, or check the disk under {}",
                      name, rank, done, std::chrono::duration<double>(patience.deadline).count(),
                      folder.parent_path().string()),
          rank);
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

/// Writes a receipt. Only a live rank 0 reads it, so it is not synced. Once it exists, rank 0 may
/// rename the folder, so the rank must not touch the folder after that.
void leave_receipt(const fs::path& folder, int rank, const Receipt& receipt) {
  for (const SummedRange& range : receipt.ranges) {
    check(range.file >= 0 && range.offset_bytes >= 0 && range.bytes >= 0,
          "a receipt names a range that lies in no file");
  }
  const fs::path path = receipt_path(folder, rank);
  const fs::path temporary = path.string() + ".tmp";
  const std::string text = receipt_json(receipt);
  SharedFile(temporary, SharedFile::Content::drop).write_at(0, std::as_bytes(std::span(text)));
  fs::rename(temporary, path);
}

std::vector<Receipt> take_receipts(const fs::path& folder, int world_size, const std::string& name,
                                   const std::string& done, const Patience& patience) {
  std::vector<Receipt> receipts;
  for (int rank = 0; rank < world_size; ++rank) {
    wait_for_receipt(folder, rank, name, done, patience);
    receipts.push_back(read_receipt(receipt_path(folder, rank)));
  }
  check(static_cast<int>(receipts.size()) == world_size, "a rank has left no receipt");
  for (int rank = 0; rank < world_size; ++rank) fs::remove(receipt_path(folder, rank));
  return receipts;
}

std::vector<JoinedRanges> join(std::vector<SummedRange> ranges, size_t count) {
  std::ranges::sort(ranges);
  std::vector<JoinedRanges> files(count);
  std::vector<bool> ended(count);
  for (const SummedRange& range : ranges) {
    const auto index = static_cast<size_t>(range.file);
    check(range.file >= 0 && index < count, "a range of a file that is not in the layout");
    JoinedRanges& file = files[index];
    if (ended[index]) continue;
    ended[index] = range.offset_bytes != file.bytes;
    if (ended[index]) {
      file.bytes = std::min(file.bytes, range.offset_bytes);
      continue;
    }
    file.crc32c = crc32c_joined(file.crc32c, range.crc32c, static_cast<uint64_t>(range.bytes));
    file.bytes += range.bytes;
  }
  return files;
}

}  // namespace shardlens::runtime
