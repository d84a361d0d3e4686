// Opens a published checkpoint: its state, and its tensors, mapped or copied.
//
// [Note: verified while it is read]
// A checkpoint of many GB should pass through memory once. When a run resumes, its ranks compute
// checksums of what they copy; however many they are, together they copy every tensor, so rank 0
// can combine their checksums into those of the files (receipts.h) before any rank takes a step.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/input_file.h"
#include "models/weights/safetensors.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/receipts.h"

namespace shardlens::runtime {

/// Describes one of the ranks that read a checkpoint together.
struct ReadingRank {
  int rank = 0;
  int world_size = 1;
  std::filesystem::path folder;  // where ranks meet; made if missing, removed at the end
  Patience patience;             // of rank 0
};

class CheckpointReader {
 public:
  /// Opens a folder in which fault_of (verification.h) has found nothing wrong. Throws
  /// std::runtime_error if a file is damaged.
  explicit CheckpointReader(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  const Manifest& manifest() const { return manifest_; }
  /// Returns where training stood; empty if the folder holds only a model.
  const std::optional<CheckpointState>& state() const { return state_; }
  const std::vector<models::SafetensorsFile>& files() const { return files_; }

  /// Returns nullptr if no tensor has that name.
  const models::SafetensorsTensor* find(std::string_view name) const;

  /// Copies into.size() of the tensor's bytes, from its byte `begin_bytes` on. Throws Failure,
  /// damaged, if they cannot be read.
  void read(std::string_view tensor, int64_t begin_bytes, std::span<std::byte> into);

  /// Checks the checksums of everything that the ranks have read. A rank calls it after reading its
  /// part. On rank 0 it returns when the parts of all ranks make up the files that were written,
  /// and throws Failure, damaged, if they do not. On other ranks it returns at once.
  void verify(const ReadingRank& reading);

  /// Throws std::invalid_argument naming the first tensor that is missing, or differs in shape or
  /// dtype from `wanted`: then the checkpoint belongs to another model.
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
  std::vector<ManifestFile> written_;  // the entries of the manifest for `files_`
  std::vector<InputFile> inputs_;      // the same files
  std::vector<SummedRange> read_;
};

}  // namespace shardlens::runtime
