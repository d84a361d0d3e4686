// A caching allocator that leaves PyTorch's memory snapshots, and knows what was true at every
// entry of their history. Every question is answered by walking through all blocks. Sizes are
// written out, not taken from the code under test.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace shardlens::tests {

class SnapshotAllocator {
 public:
  enum class Use : uint8_t { none, tensor, pending };
  struct Block {
    int64_t bytes = 0;
    int64_t asked = 0;
    Use use = Use::none;
  };
  using Blocks = std::map<uint64_t, Block>;
  /// Blocks of an expandable segment may have holes between them, where nothing is mapped.
  struct Segment {
    int64_t stream = 0;
    bool small = false;
    Blocks blocks;
  };
  using Segments = std::map<uint64_t, Segment>;
  struct Totals {
    int64_t asked = 0, allocated = 0, pending = 0, reserved = 0;
  };

  /// The history of the snapshot begins with the entry number `cut` of all.
  SnapshotAllocator(uint64_t seed, bool expandable, size_t cut)
      : engine_(seed), expandable_(expandable), cut_(cut) {}

  void run(int steps) {
    for (int i = 0; i < steps; ++i) step();
  }

  const Segments& start() const { return all_ <= cut_ ? segments_ : start_; }
  const Segments& end() const { return segments_; }
  const std::vector<Totals>& after_entries() const { return after_entries_; }
  static Totals totals_of(const Segments& segments) {
    Totals totals;
    for (const auto& [key, segment] : segments) {
      for (const auto& [address, block] : segment.blocks) {
        totals.reserved += block.bytes;
        if (block.use == Use::pending) totals.pending += block.bytes;
        if (block.use != Use::tensor) continue;
        totals.asked += block.asked;
        totals.allocated += block.bytes;
      }
    }
    return totals;
  }

  /// Returns the snapshot. The entries' times count from 1.
  nlohmann::json snapshot() const {
    nlohmann::json segments = nlohmann::json::array();
    for (const auto& [key, segment] : segments_) add_runs(segments, segment);
    return {{"device_traces", nlohmann::json::array({trace_})}, {"segments", segments}};
  }

 private:
  static constexpr int64_t kMiB = 1 << 20;

  uint64_t random_below(uint64_t limit) { return engine_() % limit; }

  template <class Change>
  void enter(const char* action, uint64_t address, int64_t bytes, int64_t stream, Change change) {
    if (all_ == cut_) start_ = segments_;
    change();
    if (all_++ < cut_) return;
    after_entries_.push_back(totals_of(segments_));
    trace_.push_back({{"action", action},
                      {"addr", address},
                      {"size", bytes},
                      {"stream", stream},
                      {"time_us", after_entries_.size()}});
  }

  void step() {
    const uint64_t choice = random_below(100);
    if (choice == 0) return empty_cache();
    if (choice < 4) return complete_some();
    // The probability rises and falls, so that a peak is followed by others.
    const bool falls = ++steps_ / 150 % 2 == 1;
    if (live_.empty() || random_below(100) < (falls ? 42U : 58U)) return alloc();
    std::swap(live_[random_below(live_.size())], live_.back());
    const uint64_t address = live_.back();
    live_.pop_back();
    free(address);
  }

  int64_t random_request() {
    const uint64_t kind = random_below(10);
    if (kind < 4) return static_cast<int64_t>(random_below(kMiB + 1));
    if (kind < 8) return static_cast<int64_t>(random_below(9 * kMiB)) + kMiB;
    return static_cast<int64_t>(random_below(40 * kMiB)) + kMiB;
  }

  void alloc() {
    const int64_t asked = random_request();
    const int64_t rounded = asked < 512 ? 512 : (asked + 511) / 512 * 512;
    const bool small = rounded <= kMiB;
    const auto stream = static_cast<int64_t>(7 * random_below(2));
    auto [segment, address] = best_fit(rounded, small, stream);
    if (segment == nullptr) {
      grow(rounded, small, stream);
      std::tie(segment, address) = best_fit(rounded, small, stream);
    }
    live_.push_back(address);
    enter("alloc", address, asked, stream, [&, blocks = segment, at = address] {
      Block& block = blocks->at(at);
      const int64_t rest = block.bytes - rounded;
      if (expandable_ || small ? rest >= 512 : rest > kMiB) {
        block.bytes = rounded;
        blocks->emplace(at + static_cast<uint64_t>(rounded), Block{.bytes = rest});
      }
      block.use = Use::tensor;
      block.asked = asked;
    });
  }

  void free(uint64_t address) {
    auto& [stream, small, blocks] = segment_of(address);
    enter("free_requested", address, blocks.at(address).asked, stream,
          [&] { blocks.at(address).use = Use::pending; });
    if (random_below(8) == 0) {
      pending_.push_back(address);
    } else {
      complete(address);
    }
  }

  void complete_some() {
    while (!pending_.empty() && random_below(3) != 0) {
      complete(pending_.back());
      pending_.pop_back();
    }
  }

  void complete(uint64_t address) {
    auto& [stream, small, blocks] = segment_of(address);
    enter("free_completed", address, blocks.at(address).asked, stream, [&] {
      blocks.at(address).use = Use::none;
      merge(blocks);
    });
  }

  Segment& segment_of(uint64_t address) {
    return std::prev(segments_.upper_bound(address))->second;
  }

  std::pair<Blocks*, uint64_t> best_fit(int64_t bytes, bool small, int64_t stream) {
    std::pair<Blocks*, uint64_t> best{nullptr, 0};
    int64_t best_bytes = INT64_MAX;
    for (auto& [key, segment] : segments_) {
      if (segment.stream != stream || segment.small != small) continue;
      for (const auto& [address, block] : segment.blocks) {
        if (block.use != Use::none || block.bytes < bytes || block.bytes >= best_bytes) continue;
        best = {&segment.blocks, address};
        best_bytes = block.bytes;
      }
    }
    return best;
  }

  // --- segments ----------------------------------------------------------------------------------

  void grow(int64_t bytes, bool small, int64_t stream) {
    if (expandable_) return expand(bytes, small, stream);
    int64_t size = small ? 2 * kMiB : 20 * kMiB;
    if (bytes >= 10 * kMiB) size = (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB);
    uint64_t address = 0;
    do {
      address = (uint64_t{1} << 40) + random_below(4096) * 64 * kMiB;
    } while (segments_.contains(address));
    // Some end where the next place begins: neighbours in address are not one segment.
    if (random_below(2) == 0) address += 64 * kMiB - static_cast<uint64_t>(size);
    if (!is_free(address, size)) return grow(bytes, small, stream);
    enter("segment_alloc", address, size, stream, [&] {
      segments_[address] = {stream, small, {{address, Block{.bytes = size}}}};
    });
  }

  bool is_free(uint64_t address, int64_t bytes) const {
    const auto after = segments_.lower_bound(address + static_cast<uint64_t>(bytes));
    return after == segments_.begin() || end_of(std::prev(after)->second) <= address;
  }

  static uint64_t end_of(const Segment& segment) {
    const auto& [address, block] = *segment.blocks.rbegin();
    return address + static_cast<uint64_t>(block.bytes);
  }

  void expand(int64_t bytes, bool small, int64_t stream) {
    const uint64_t key =
        (uint64_t{1} << 44) + (static_cast<uint64_t>(stream) << 41) + (uint64_t{small} << 40);
    Segment& segment = segments_.try_emplace(key, Segment{stream, small, {}}).first->second;
    const uint64_t end = segment.blocks.empty() ? key : end_of(segment);
    int64_t wanted = bytes;
    if (!segment.blocks.empty() && segment.blocks.rbegin()->second.use == Use::none) {
      wanted -= segment.blocks.rbegin()->second.bytes;
    }
    const int64_t size = (wanted + page(small) - 1) / page(small) * page(small);
    enter("segment_map", end, size, stream, [&] {
      segment.blocks[end] = {.bytes = size};
      merge(segment.blocks);
    });
  }

  static int64_t page(bool small) { return small ? 2 * kMiB : 20 * kMiB; }

  /// Returns free memory to the driver: whole segments, and all whole pages of expandable ones.
  void empty_cache() {
    if (expandable_) {
      for (auto& [key, segment] : segments_) unmap(key, segment);
      std::erase_if(segments_, [](const auto& one) { return one.second.blocks.empty(); });
      return;
    }
    for (auto it = segments_.begin(); it != segments_.end();) {
      const auto [address, segment] = *it++;
      const Block& first = segment.blocks.begin()->second;
      if (segment.blocks.size() > 1 || first.use != Use::none) continue;
      enter("segment_free", address, first.bytes, segment.stream,
            [&, at = address] { segments_.erase(at); });
    }
  }

  void unmap(uint64_t key, Segment& segment) {
    const Blocks blocks = segment.blocks;
    const auto bytes = static_cast<uint64_t>(page(segment.small));
    for (const auto& [address, block] : blocks) {
      const uint64_t end = address + static_cast<uint64_t>(block.bytes);
      const uint64_t first = key + (address - key + bytes - 1) / bytes * bytes;
      const uint64_t last = key + (end - key) / bytes * bytes;
      if (block.use != Use::none || first >= last) continue;
      enter("segment_unmap", first, static_cast<int64_t>(last - first), segment.stream,
            [&, from = address] {
              segment.blocks.erase(from);
              if (from < first)
                segment.blocks[from] = {.bytes = static_cast<int64_t>(first - from)};
              if (last < end) segment.blocks[last] = {.bytes = static_cast<int64_t>(end - last)};
            });
    }
  }

  static void merge(Blocks& blocks) {
    for (auto it = blocks.begin(); it != blocks.end();) {
      const auto next = std::next(it);
      if (next == blocks.end()) return;
      const bool touch = it->first + static_cast<uint64_t>(it->second.bytes) == next->first;
      if (it->second.use != Use::none || next->second.use != Use::none || !touch) {
        it = next;
        continue;
      }
      it->second.bytes += next->second.bytes;
      blocks.erase(next);
    }
  }

  // --- the snapshot ------------------------------------------------------------------------------

  /// Adds a segment for every run of blocks without a hole.
  void add_runs(nlohmann::json& segments, const Segment& segment) const {
    uint64_t end = 0;
    for (const auto& [address, block] : segment.blocks) {
      if (address != end) {
        segments.push_back({{"device", 0},
                            {"address", address},
                            {"total_size", 0},
                            {"stream", segment.stream},
                            {"segment_type", segment.small ? "small" : "large"},
                            {"is_expandable", expandable_},
                            {"blocks", nlohmann::json::array()}});
      }
      end = address + static_cast<uint64_t>(block.bytes);
      auto& run = segments.back();
      run["total_size"] = run["total_size"].get<int64_t>() + block.bytes;
      run["blocks"].push_back({{"address", address},
                               {"size", block.bytes},
                               {"requested_size", block.asked},
                               {"state", state_of(block.use)}});
    }
  }

  static const char* state_of(Use use) {
    if (use == Use::none) return "inactive";
    return use == Use::tensor ? "active_allocated" : "active_awaiting_free";
  }

  std::mt19937_64 engine_;
  bool expandable_;
  size_t cut_;
  size_t all_ = 0;  // entries so far, the forgotten ones included
  int steps_ = 0;
  Segments segments_;
  Segments start_;
  std::vector<uint64_t> live_;
  std::vector<uint64_t> pending_;
  nlohmann::json trace_ = nlohmann::json::array();
  std::vector<Totals> after_entries_;
};

}  // namespace shardlens::tests
