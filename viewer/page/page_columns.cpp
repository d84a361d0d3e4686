#include "viewer/page/page_columns.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <stdexcept>
#include <tuple>

namespace shardlens::viewer {

namespace {

class Varints {
 public:
  void add(uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>(value | 0x80);
    text_ += static_cast<char>(value);
  }
  void add_signed(int64_t value) {
    const auto bits = static_cast<uint64_t>(value);
    add(bits << 1 ^ (value < 0 ? ~uint64_t{0} : 0));
  }
  void append(const Varints& others) { text_ += others.text_; }
  std::string finish() { return std::move(text_); }

 private:
  std::string text_;
};

/// Guesses the kind and life of the next block: [Note: columns of a page].
class Guesses {
 public:
  Guesses() : last_(size_t{1} << kTableBits, kNone) {}

  int64_t kind() const { return at_ == kNone ? -1 : kinds_[at_]; }
  int64_t life() const { return at_ == kNone ? 0 : lives_[at_]; }

  void take(uint32_t kind, int64_t life) {
    const bool is_right = this->kind() == kind;
    kinds_.push_back(kind);
    lives_.push_back(life);
    at_ = is_right ? at_ + 1 : kNone;
    if (kinds_.size() < kContext) return;
    uint32_t hash = 0;
    for (size_t i = kinds_.size() - kContext; i < kinds_.size(); ++i) {
      hash = (hash ^ kinds_[i]) * 0x9E3779B1U;
    }
    uint32_t& last = last_[hash >> (32 - kTableBits)];
    if (at_ == kNone) at_ = last;
    last = static_cast<uint32_t>(kinds_.size());
  }

 private:
  static constexpr size_t kContext = 6;
  static constexpr int kTableBits = 18;
  static constexpr uint32_t kNone = UINT32_MAX;

  std::vector<uint32_t> kinds_;
  std::vector<int64_t> lives_;
  std::vector<uint32_t> last_;  // by a hash of kContext kinds: what came after them
  uint32_t at_ = kNone;
};

void add_times(const Lane& lane, Varints& out) {
  int64_t last = 0;
  for (const int64_t time_ns : lane.arrays().times_ns) {
    const int64_t now = std::max(last, time_ns / kNsPerUs);
    out.add(static_cast<uint64_t>(now - last));
    last = now;
  }
}

void add_blocks(const Lane& lane, const LaneKinds& kinds, Varints& out) {
  Guesses guesses;
  Varints lives;
  const auto& blocks = lane.arrays().blocks;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const Block& block = blocks[i];
    const uint32_t kind = kinds.of_block[i];
    const int64_t life = block.died == kNeverFreed ? 0 : int64_t{block.died} - int64_t{block.born};
    out.add(guesses.kind() == kind ? 0 : uint64_t{kind} + 1);
    lives.add_signed(life - guesses.life());
    guesses.take(kind, life);
  }
  out.append(lives);
}

void add_reserved(const Lane& lane, Varints& out) {
  int64_t last_us = 0;
  int64_t last_bytes = 0;
  for (const ReservedSample& sample : lane.arrays().reserved) {
    const int64_t now_us = std::max(last_us, sample.time_ns / kNsPerUs);
    out.add(static_cast<uint64_t>(now_us - last_us));
    out.add_signed(sample.bytes - last_bytes);
    last_us = now_us;
    last_bytes = sample.bytes;
  }
}

std::string deflated(std::string_view text) {
  if (text.size() > std::numeric_limits<uint32_t>::max()) {
    throw std::invalid_argument("the recording is too long for a page; record fewer steps");
  }
  uLongf size = compressBound(text.size());
  std::string packed(size, '\0');
  const int state =
      compress2(reinterpret_cast<Bytef*>(packed.data()), &size,
                reinterpret_cast<const Bytef*>(text.data()), text.size(), Z_BEST_COMPRESSION);
  if (state != Z_OK) throw std::runtime_error("cannot compress the page: out of memory");
  packed.resize(size);
  return packed;
}

}  // namespace

LaneKinds kinds_of(const Lane& lane) {
  using GroupKey = std::tuple<uint32_t, int32_t, profiler::Phase, Category>;
  std::map<GroupKey, uint32_t> groups;
  std::map<std::tuple<uint32_t, int64_t, int64_t>, uint32_t> kinds;
  LaneKinds found;
  found.of_block.reserve(lane.arrays().blocks.size());
  for (const Block& block : lane.arrays().blocks) {
    const auto [group, is_new_group] =
        groups.try_emplace({block.label, block.action, block.phase, block.category},
                           static_cast<uint32_t>(found.groups.size()));
    if (is_new_group) {
      found.groups.push_back({.label = block.label,
                              .action = block.action,
                              .phase = block.phase,
                              .category = block.category});
    }
    const auto [kind, is_new_kind] =
        kinds.try_emplace({group->second, block.given_bytes, block.asked_bytes},
                          static_cast<uint32_t>(found.kinds.size()));
    if (is_new_kind) {
      found.kinds.push_back({group->second, block.given_bytes, block.asked_bytes});
    }
    found.of_block.push_back(kind->second);
  }
  return found;
}

std::string packed_changes(const Lane& lane, const LaneKinds& kinds) {
  Varints out;
  out.add(static_cast<uint64_t>(lane.changes()));
  out.add(lane.arrays().blocks.size());
  out.add(kinds.kinds.size());
  out.add(lane.arrays().reserved.size());
  for (const BlockKind& kind : kinds.kinds) {
    out.add(kind.group);
    out.add(static_cast<uint64_t>(kind.given_bytes));
    out.add(static_cast<uint64_t>(kind.asked_bytes));
  }
  add_times(lane, out);
  add_blocks(lane, kinds, out);
  add_reserved(lane, out);
  return packed_text(out.finish());
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < count ? static_cast<uint8_t>(bytes[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      text += j <= count ? kDigits[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return text;
}

std::string packed_text(std::string_view text) { return base64(deflated(text)); }

}  // namespace shardlens::viewer
