// Limits how much memory reading a file may take. A pickle can refer to one dict, one text or one
// storage any number of times, for two bytes each. So every copy of a part counts, and the sum may
// be at most a fixed multiple of the file's size.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace shardlens::runtime {

/// Reports a saved file that its reader cannot read; every reader gives up in this way. Throws
/// std::runtime_error. `why` is a clause about the file, to which the caller adds the file's name.
[[noreturn]] inline void throw_damaged(const std::string& why) { throw std::runtime_error(why); }

class Allowance {
 public:
  explicit Allowance(uint64_t file_bytes) : left_(kTimes * file_bytes + kFreeBytes) {}

  /// Counts `bytes` of memory made from the file. Throws std::runtime_error if that exceeds the
  /// allowance.
  void spend(uint64_t bytes) {
    if (bytes > left_) {
      throw std::runtime_error("it repeats its contents so often that reading it takes more than " +
                               std::to_string(kTimes) + " times its size");
    }
    left_ -= bytes;
  }
  /// Counts a copy of a text in a list.
  void spend_text(const std::string& text) { spend(text.size() + sizeof text); }

 private:
  static constexpr uint64_t kTimes = 16;
  static constexpr uint64_t kFreeBytes = uint64_t{1} << 20;

  uint64_t left_;
};

}  // namespace shardlens::runtime
