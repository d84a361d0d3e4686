// A published checkpoint, opened: its state, and its tensors, as mapped bytes or to be copied.
//
// [Note: verified while it is read]
// A checkpoint of many GB should pass through memory once. The ranks of a run that goes on sum up
// what they copy; whatever their number, together they copy every tensor, so rank 0 can put the
// checksums of the files together from theirs (receipts.h) before it lets anybody take a step.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "input/input_file.h"
#include "models/safetensors.h"
#include "runtime/checkpoint.h"
#include "runtime/receipts.h"

namespace shardlens::runtime {

/// One of the ranks that read a checkpoint at once.
struct ReadingRank {
  int rank = 0;
  int world_size = 1;
  std::filesystem::path folder;  // to meet in; made where it is missing, removed at the end
  Patience patience;             // of rank 0
};

class CheckpointReader {
 public:
  /// Of a folder that was looked at (fault_of, verification.h). Throws std::runtime_error where a
  /// file is damaged.
  explicit CheckpointReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  /// Nothing of a model alone.
  const std::optional<CheckpointState>& state() const { return state_; }
  const std::vector<models::SafetensorsFile>& files() const { return files_; }

  /// nullptr where there is none of that name.
  const models::SafetensorsTensor* find(std::string_view name) const;

  /// Copies a tensor's bytes from its byte `begin_bytes` on. Throws Failure, damaged, where they
  /// cannot be read.
  void read(std::string_view tensor, int64_t begin_bytes, std::span<std::byte> into);

  /// Once this rank has read its part. Returns on rank 0 when all parts have made up the files that
  /// were written; throws Failure, damaged, where they do not. On others it returns at once.
  void verify(const ReadingRank& reading);

  /// Throws std::invalid_argument naming the first tensor that is missing, or has another shape
  /// or dtype, than `wanted` says: the checkpoint is of another model.
  void expect(const FileLayout& wanted) const;

 private:
  void expect(const PlacedTensor& wanted) const;
  void read_at(size_t file, int64_t offset_bytes, std::span<std::byte> into);
  void read_headers();
  void expect_as_written(size_t file, const JoinedRanges& read) const;
  [[noreturn]] void fail(const std::string& why) const;

  std::filesystem::path folder_;
  Manifest manifest_;
  std::optional<CheckpointState> state_;
  std::vector<models::SafetensorsFile> files_;
  std::vector<ManifestFile> written_;     // what the manifest says of these
  std::vector<input::InputFile> inputs_;  // the same files
  std::vector<SummedRange> read_;
};

}  // namespace shardlens::runtime
