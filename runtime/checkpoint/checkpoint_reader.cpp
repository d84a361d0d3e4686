#include "runtime/checkpoint/checkpoint_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "base/checksum/crc32c.h"
#include "base/durable_files.h"

namespace shardlens::runtime {

namespace fs = std::filesystem;

namespace {

[[noreturn]] void refuse_checkpoint(const fs::path& folder, const std::string& why) {
  throw std::invalid_argument(
      fmt::format("{}: a checkpoint of another model: {}; give another --name, or --fresh to start "
                  "over",
                  folder.string(), why));
}

}  // namespace

CheckpointReader::CheckpointReader(const fs::path& folder)
    : folder_(folder), manifest_(parse_manifest(read_whole_file(folder / "manifest.json"))) {
  for (const ManifestFile& file : manifest_.files) {
    if (holds_tensors(file)) {
      files_.emplace_back((folder / file.name).string());
      inputs_.emplace_back(folder / file.name);
      written_.push_back(file);
    }
    if (file.name == "state.json") state_ = parse_state(read_whole_file(folder / file.name));
  }
}

const models::SafetensorsTensor* CheckpointReader::find(std::string_view name) const {
  for (const models::SafetensorsFile& file : files_) {
    if (const models::SafetensorsTensor* tensor = file.find(name)) return tensor;
  }
  return nullptr;
}

void CheckpointReader::expect(const PlacedTensor& wanted) const {
  const models::SafetensorsTensor* const found = find(wanted.name);
  if (found == nullptr) refuse_checkpoint(folder_, fmt::format("it has no tensor {}", wanted.name));
  if (found->shape == wanted.shape && found->dtype == "F32") return;
  refuse_checkpoint(folder_,
                    fmt::format("{} is {} [{}], not F32 [{}]", wanted.name, found->dtype,
                                fmt::join(found->shape, ", "), fmt::join(wanted.shape, ", ")));
}

void CheckpointReader::expect(const FileLayout& wanted) const {
  size_t count = 0;
  for (const std::vector<PlacedTensor>& tensors : wanted.parameters) {
    for (const PlacedTensor& tensor : tensors) expect(tensor);
    count += tensors.size();
  }
  size_t found = 0;
  for (const models::SafetensorsFile& file : files_) found += file.tensors().size();
  if (found != count)
    refuse_checkpoint(folder_, fmt::format("it has {} tensors, not {}", found, count));
}

void CheckpointReader::fail(const std::string& why) const {
  throw Failure(Fault::damaged, fmt::format("{}: {}", folder_.string(), why));
}

void CheckpointReader::read(std::string_view tensor, int64_t begin_bytes,
                            std::span<std::byte> into) {
  for (size_t file = 0; file < files_.size(); ++file) {
    const models::SafetensorsTensor* const found = files_[file].find(tensor);
    if (found == nullptr) continue;
    return read_at(file, files_[file].offset_bytes(*found) + begin_bytes, into);
  }
  fail(fmt::format("it has no tensor {}", tensor));
}

void CheckpointReader::read_at(size_t file, int64_t offset_bytes, std::span<std::byte> into) {
  SummedRange range{.file = static_cast<int>(file), .offset_bytes = offset_bytes};
  inputs_[file].announce(offset_bytes, static_cast<int64_t>(into.size()));
  while (!into.empty()) {
    const auto piece = into.first(std::min(into.size(), kCrc32cPieceBytes));
    if (!inputs_[file].read_at(offset_bytes + range.bytes, piece)) {
      fail(fmt::format("{} cannot be read", written_[file].name));
    }
    range.crc32c = crc32c(piece, range.crc32c);
    range.bytes += static_cast<int64_t>(piece.size());
    into = into.subspan(piece.size());
  }
  read_.push_back(range);
}

/// Reads the headers, which precede the tensors.
void CheckpointReader::read_headers() {
  for (size_t file = 0; file < files_.size(); ++file) {
    const auto& tensors = files_[file].tensors();
    const int64_t bytes =
        tensors.empty() ? written_[file].bytes : files_[file].offset_bytes(tensors.front());
    std::vector<std::byte> header(static_cast<size_t>(bytes));
    read_at(file, 0, header);
  }
}

void CheckpointReader::verify(const ReadingRank& reading) {
  make_folders(reading.folder);
  if (reading.rank == 0) read_headers();
  leave_receipt(reading.folder, reading.rank, {.ranges = std::move(read_), .progress = {}});
  if (reading.rank != 0) return;
  std::vector<SummedRange> read;
  for (const Receipt& receipt : take_receipts(reading.folder, reading.world_size, folder_.string(),
                                              "read", reading.patience)) {
    read.insert(read.end(), receipt.ranges.begin(), receipt.ranges.end());
  }
  std::filesystem::remove(reading.folder);
  // Ranks that hold equal copies have read the same ranges.
  std::ranges::sort(read);
  read.erase(std::unique(read.begin(), read.end()), read.end());
  const std::vector<JoinedRanges> joined = join(std::move(read), files_.size());
  for (size_t file = 0; file < files_.size(); ++file) expect_as_written(file, joined[file]);
}

void CheckpointReader::expect_as_written(size_t file, const JoinedRanges& read) const {
  const ManifestFile& written = written_[file];
  if (read.bytes != written.bytes) {
    fail(fmt::format("{}: no rank has read byte {}, or two have read it differently", written.name,
                     read.bytes));
  }
  if (const Problem fault = checksum_fault(written, read.crc32c)) fail(*fault);
}

}  // namespace shardlens::runtime
