#include "profiler/null_device/driver/known_memory.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "profiler/null_device/driver/device_memory.h"
#include "profiler/null_device/null_device.h"

namespace shardlens::profiler {

namespace {

using Bytes = std::vector<char>;

bool is_wanted() {
  const char* const value = std::getenv(kNullKeepCopiesVariable);
  return value != nullptr && std::string_view(value) == "1";
}

/// Holds known bytes as pieces that do not overlap, by their first addresses.
class Pieces {
 public:
  size_t bytes() const { return bytes_; }

  bool cover(uint64_t address, size_t bytes) const {
    return visit(address, bytes, [](const char*, size_t) {});
  }

  bool read(char* target, uint64_t address, size_t bytes) const {
    if (!cover(address, bytes)) return false;
    visit(address, bytes, [&target](const char* part, size_t size) {
      std::memcpy(target, part, size);
      target += size;
    });
    return true;
  }

  void add(uint64_t address, const char* source, size_t bytes) {
    remove(address, bytes);
    by_address_[address].assign(source, source + bytes);
    bytes_ += bytes;
  }

  void remove(uint64_t address, size_t bytes) {
    const uint64_t end = address + bytes;
    for (auto piece = first_that_ends_after(address);
         piece != by_address_.end() && piece->first < end;) {
      const uint64_t piece_end = piece->first + piece->second.size();
      const auto next = std::next(piece);
      if (piece_end > end) keep_end(*piece, end);
      if (piece->first < address) {
        bytes_ -= piece_end - address;
        piece->second.resize(address - piece->first);
      } else {
        bytes_ -= piece->second.size();
        by_address_.erase(piece);
      }
      piece = next;
    }
  }

  /// Calls `look` for each aligned word of 8 bytes in the range that is within one piece.
  template <class Look>
  void each_word(uint64_t address, size_t bytes, Look look) const {
    const uint64_t end = address + bytes;
    for (auto piece = first_that_ends_after(address);
         piece != by_address_.end() && piece->first < end; ++piece) {
      const uint64_t last = std::min<uint64_t>(piece->first + piece->second.size(), end);
      uint64_t at = (std::max(piece->first, address) + 7) / 8 * 8;
      for (; at + 8 <= last; at += 8) {
        uint64_t word = 0;
        std::memcpy(&word, piece->second.data() + (at - piece->first), sizeof word);
        look(word);
      }
    }
  }

  void clear() {
    by_address_.clear();
    bytes_ = 0;
  }

 private:
  using PiecesByAddress = std::map<uint64_t, Bytes>;
  using Piece = PiecesByAddress::value_type;

  PiecesByAddress::const_iterator first_that_ends_after(uint64_t address) const {
    auto piece = by_address_.upper_bound(address);
    if (piece == by_address_.begin()) return piece;
    const auto before = std::prev(piece);
    return before->first + before->second.size() > address ? before : piece;
  }

  PiecesByAddress::iterator first_that_ends_after(uint64_t address) {
    const auto found = std::as_const(*this).first_that_ends_after(address);
    return by_address_.erase(found, found);  // the same place, for changes
  }

  /// Makes a separate piece of the bytes from `begin` on.
  void keep_end(const Piece& piece, uint64_t begin) {
    const Bytes& all = piece.second;
    const auto first = all.begin() + static_cast<std::ptrdiff_t>(begin - piece.first);
    const auto [made, _] = by_address_.emplace(begin, Bytes(first, all.end()));
    bytes_ += made->second.size();
  }

  /// Calls `look` for the parts of the range in order. Returns false if a byte is in no piece.
  template <class Look>
  bool visit(uint64_t address, size_t bytes, Look look) const {
    const uint64_t end = address + bytes;
    auto piece = first_that_ends_after(address);
    while (address < end) {
      if (piece == by_address_.end() || piece->first > address) return false;
      const size_t skipped = address - piece->first;
      const size_t size = std::min<size_t>(piece->second.size() - skipped, end - address);
      look(piece->second.data() + skipped, size);
      address += size;
      ++piece;
    }
    return true;
  }

  PiecesByAddress by_address_;
  size_t bytes_ = 0;
};

thread_local uint64_t unknown_reads_of_thread = 0;

class Table final : public KnownMemory {
 public:
  bool read(void* target, uint64_t address, size_t bytes) override {
    const std::lock_guard lock(mutex_);
    return pieces_.read(static_cast<char*>(target), address, bytes);
  }

  bool knows(uint64_t address, size_t bytes) override {
    if (is_empty_) return false;
    const std::lock_guard lock(mutex_);
    return pieces_.cover(address, bytes);
  }

  void know(uint64_t address, const void* source, size_t bytes) override {
    if (bytes > kMostBytesOfWideRange) return forget(address, bytes);
    return_holes(bytes);
    const std::lock_guard lock(mutex_);
    if (pieces_.bytes() + bytes > kMostKnownBytes) {
      if (bytes > kMostBytesOfRange) return pieces_.remove(address, bytes);
      pieces_.clear();
    }
    pieces_.add(address, static_cast<const char*>(source), bytes);
    is_empty_ = false;
  }

  void forget(uint64_t address, size_t bytes) override {
    if (is_empty_ || bytes == 0) return;
    const std::lock_guard lock(mutex_);
    pieces_.remove(address, bytes);
    is_empty_ = pieces_.bytes() == 0;
  }

  void forget_all() override {
    if (is_empty_) return;
    const std::lock_guard lock(mutex_);
    pieces_.clear();
    is_empty_ = true;
  }

  std::vector<uint64_t> addresses_in(uint64_t address, size_t bytes) override {
    std::vector<uint64_t> found;
    if (is_empty_) return found;
    const std::lock_guard lock(mutex_);
    pieces_.each_word(address, bytes, [&](uint64_t word) {
      if (DeviceMemory::is_device_address(word)) found.push_back(word);
    });
    return found;
  }

  void observe(KernelObserver& observer) override { observer_ = &observer; }

  void note_launch() {
    KernelObserver* const observer = observer_;
    if (observer == nullptr) return forget_all();
    observer->note_launch();
  }

  void note_launch_with(const uint64_t* addresses, size_t count) {
    KernelObserver* const observer = observer_;
    if (observer == nullptr) return forget_all();
    observer->note_launch_with(addresses, count);
  }

  bool answer(void* target, size_t bytes) {
    KernelObserver* const observer = observer_;
    if (observer != nullptr && observer->answer(target, bytes)) return true;
    ++unknown_reads_of_thread;
    return false;
  }

 private:
  /// Returns the heap's empty pages to the system each time that another 64 MiB have become known.
  /// Forgotten pieces and buffers that values were computed in leave holes in the heap; small
  /// allocations of the program settle there, and then no later buffer of that size fits. Without
  /// this, a program that keeps 3,000 tensors of 1 MiB takes 3 GiB of host memory.
  void return_holes(size_t new_bytes) {
    constexpr size_t kOnceForBytes = size_t{64} << 20;
    const size_t before = all_bytes_.fetch_add(new_bytes);
    if (before / kOnceForBytes != (before + new_bytes) / kOnceForBytes) ::malloc_trim(0);
  }

  std::mutex mutex_;
  Pieces pieces_;
  std::atomic<size_t> all_bytes_ = 0;  // that were ever made known
  std::atomic<bool> is_empty_ = true;
  std::atomic<KernelObserver*> observer_ = nullptr;
};

/// Returns null if no values are to be kept. The table is never destroyed: a program's last frees
/// come after static objects are gone.
Table* table() {
  static Table* const only = is_wanted() ? new Table : nullptr;
  return only;
}

}  // namespace

}  // namespace shardlens::profiler

using shardlens::profiler::table;

shardlens::profiler::KnownMemory* shardlens_null_known_memory() { return table(); }

uint64_t shardlens_null_unknown_reads() { return shardlens::profiler::unknown_reads_of_thread; }

void shardlens_null_launched() {
  if (auto* const known = table()) known->note_launch();
}

void shardlens_null_launched_with(const uint64_t* addresses, size_t count) {
  if (auto* const known = table()) known->note_launch_with(addresses, count);
}

bool shardlens_null_answer(void* target, size_t bytes) {
  auto* const known = table();
  return known != nullptr && known->answer(target, bytes);
}
