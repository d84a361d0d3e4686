// Follows which blocks PyTorch's allocator has handed out, so that the block around an address can
// be found; which of them hold chosen experts; and which hold one answer for all numbers of a
// tensor. Standard library only.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace shardlens::profiler {

/// Holds the blocks that PyTorch's allocator has handed out. All threads may call.
class GivenBlocks {
 public:
  void add(uint64_t address, size_t bytes) {
    const std::lock_guard lock(mutex_);
    blocks_[address] = {.bytes = bytes, .is_marked = false, .answer = {}};
  }

  void remove(uint64_t address) {
    const std::lock_guard lock(mutex_);
    blocks_.erase(address);
  }

  /// Marks the block around an address, until it is removed or added again.
  void mark(uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    if (block == blocks_.end()) return;
    block->second.is_marked = true;
    has_marks_ = true;
  }

  bool has_marks() const { return has_marks_; }

  bool is_marked(uint64_t address) {
    if (!has_marks_) return false;
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    return block != blocks_.end() && block->second.is_marked;
  }

  /// Notes that all elements in the block around an address are true, or all false, until it is
  /// written or removed.
  void note_answer(uint64_t address, bool answer) {
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    if (block == blocks_.end()) return;
    block->second.answer = answer;
    has_answers_ = true;
  }

  bool has_answers() const { return has_answers_; }

  void note_written(uint64_t address) {
    if (!has_answers_) return;
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    if (block != blocks_.end()) block->second.answer.reset();
  }

  std::optional<bool> answer_in(uint64_t address) {
    if (!has_answers_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    return block == blocks_.end() ? std::nullopt : block->second.answer;
  }

  /// Returns the first address and the bytes of the block around an address, if there is one.
  std::optional<std::pair<uint64_t, size_t>> block_around(uint64_t address) {
    const std::lock_guard lock(mutex_);
    const auto block = find(address);
    if (block == blocks_.end()) return std::nullopt;
    return std::pair(block->first, block->second.bytes);
  }

 private:
  struct Block {
    size_t bytes = 0;
    bool is_marked = false;
    std::optional<bool> answer;
  };
  using Blocks = std::map<uint64_t, Block>;  // by first address

  Blocks::iterator find(uint64_t address) {
    auto block = blocks_.upper_bound(address);
    if (block == blocks_.begin()) return blocks_.end();
    --block;
    return address - block->first < block->second.bytes ? block : blocks_.end();
  }

  std::mutex mutex_;
  Blocks blocks_;
  std::atomic<bool> has_marks_ = false;    // now or earlier
  std::atomic<bool> has_answers_ = false;  // now or earlier
};

}  // namespace shardlens::profiler
