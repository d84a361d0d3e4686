#include "profiler/exchange/timeline.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include "profiler/recording/events.h"
#include "profiler/report/address_map.h"
#include "profiler/report/block_tracker.h"

namespace shardlens::profiler {

namespace {

/// Keeps the highest and the last point of every stretch.
class Sampler {
 public:
  Sampler(size_t changes, size_t most_points, int64_t end_ns)
      : keeps_all_(changes <= most_points), stretches_(most_points / 2), end_ns_(end_ns) {}

  void take(const TimelinePoint& point) {
    if (keeps_all_) return points_.push_back(point);
    const double share = static_cast<double>(std::max<int64_t>(point.time_ns, 0)) /
                         (static_cast<double>(end_ns_) + 1);
    const auto stretch =
        std::min(static_cast<size_t>(share * static_cast<double>(stretches_)), stretches_ - 1);
    if (open_ && stretch > stretch_) flush();
    if (!open_ || point.total_bytes > highest_.total_bytes) {
      highest_ = point;
      highest_is_last_ = true;
    } else {
      highest_is_last_ = false;
    }
    last_ = point;
    stretch_ = open_ ? std::max(stretch_, stretch) : stretch;
    open_ = true;
  }

  std::vector<TimelinePoint> finish() {
    if (open_) flush();
    return std::move(points_);
  }

 private:
  void flush() {
    points_.push_back(highest_);
    if (!highest_is_last_) points_.push_back(last_);
    open_ = false;
  }

  bool keeps_all_;
  size_t stretches_;
  int64_t end_ns_;
  bool open_ = false;
  size_t stretch_ = 0;
  bool highest_is_last_ = false;
  TimelinePoint highest_;
  TimelinePoint last_;
  std::vector<TimelinePoint> points_;
};

/// The live allocations of one space, from event to event.
class LiveBlocks {
 public:
  struct Block {
    int64_t given_bytes = 0;
    uint32_t life = 0;  // the number of its allocation
  };
  /// A life that an event begins or ends.
  struct Change {
    Block block;
    bool begins = false;
  };

  explicit LiveBlocks(Space space) : space_(space) {}

  /// Returns the changes that a usable event makes: at most one end and one beginning, in this
  /// order.
  std::span<const Change> take(const Event& event) {
    changes_.clear();
    const int64_t given = space_ == Space::device ? tracker_.take(event) : event.value;
    if (event.space != space_ || !is_memory(event)) return {};
    end(event.address);
    if (event.kind == EventKind::alloc) begin(event, given);
    return changes_;
  }

  /// Returns the life of the block at the address, or nothing if there is none.
  std::optional<uint32_t> life_at(uint64_t address) const {
    const uint32_t place = places_.find(address);
    return place == AddressMap::kNone ? std::nullopt : std::optional(blocks_[place].life);
  }

  uint32_t lives() const { return lives_; }

  /// Returns the `count` largest blocks, the largest first and equal ones by age, the oldest first.
  std::vector<Block> largest_blocks(size_t count) const {
    std::vector<Block> alive;
    for (const Block& block : blocks_) {
      if (block.life != kEnded) alive.push_back(block);
    }
    count = std::min(count, alive.size());
    const auto by_size = [](const Block& block) {
      return std::pair(-block.given_bytes, block.life);
    };
    std::ranges::partial_sort(alive, alive.begin() + static_cast<std::ptrdiff_t>(count), {},
                              by_size);
    alive.resize(count);
    return alive;
  }

 private:
  static constexpr uint32_t kEnded = AddressMap::kNone;

  void begin(const Event& event, int64_t given) {
    if (lives_ == kEnded - 1) {
      throw std::invalid_argument("the recording has too many events to export; at most 2^32 - 2");
    }
    const Block block{.given_bytes = given, .life = lives_++};
    auto place = static_cast<uint32_t>(blocks_.size());
    if (unused_.empty()) {
      blocks_.push_back(block);
    } else {
      place = unused_.back();
      unused_.pop_back();
      blocks_[place] = block;
    }
    places_.insert(event.address, place);
    changes_.push_back({.block = block, .begins = true});
  }

  void end(uint64_t address) {
    const uint32_t place = places_.erase(address);
    if (place == AddressMap::kNone) return;
    changes_.push_back({.block = blocks_[place], .begins = false});
    blocks_[place].life = kEnded;
    unused_.push_back(place);
  }

  Space space_;
  BlockTracker tracker_;
  AddressMap places_;  // in blocks_
  std::vector<Block> blocks_;
  std::vector<uint32_t> unused_;  // of blocks_
  std::vector<Change> changes_;
  uint32_t lives_ = 0;
};

/// Facts that are known only at the end of a recording: `recategorise` changes a block's category
/// from its allocation on.
struct Overview {
  std::vector<Category> categories;  // by life
  size_t changes = 0;
  size_t peak_change = 0;  // the number of the change that led to the first of the highest totals
  int64_t end_ns = 0;
};

template <class Take>
void for_each_usable(const EventSource& source, const Take& take) {
  source.for_each([&](std::span<const Event> events) {
    for (const Event& event : events) {
      if (is_usable(event)) take(event);
    }
  });
}

class OverviewBuilder {
 public:
  explicit OverviewBuilder(Space space) : space_(space), live_(space) {}

  void take(const Event& event) {
    for (const LiveBlocks::Change& change : live_.take(event)) take_change(change, event);
    if (event.kind != EventKind::recategorise || event.space != space_) return;
    if (const auto life = live_.life_at(event.address)) {
      overview_.categories[*life] = event.category;
    }
  }

  Overview finish() { return std::move(overview_); }

 private:
  void take_change(const LiveBlocks::Change& change, const Event& event) {
    if (change.begins) overview_.categories.push_back(event.category);
    total_bytes_ += change.begins ? change.block.given_bytes : -change.block.given_bytes;
    if (total_bytes_ > peak_bytes_) {
      peak_bytes_ = total_bytes_;
      overview_.peak_change = overview_.changes;
    }
    ++overview_.changes;
  }

  Space space_;
  LiveBlocks live_;
  int64_t total_bytes_ = 0;
  int64_t peak_bytes_ = 0;
  Overview overview_;
};

Overview overview_of(const EventSource& source, Space space) {
  OverviewBuilder builder(space);
  int64_t end_ns = 0;
  source.for_each([&](std::span<const Event> events) {
    for (const Event& event : events) {
      end_ns = std::max(end_ns, event.time_ns);
      if (is_usable(event)) builder.take(event);
    }
  });
  Overview overview = builder.finish();
  overview.end_ns = end_ns;
  return overview;
}

/// The state of memory, from event to event.
class MemoryNow {
 public:
  explicit MemoryNow(const std::vector<Category>& categories) : categories_(categories) {}

  void enter(const Event& event) { point_.place.take(event); }

  void take(const LiveBlocks::Change& change, int64_t time_ns) {
    const int64_t bytes = change.begins ? change.block.given_bytes : -change.block.given_bytes;
    point_.time_ns = time_ns;
    point_.bytes[static_cast<size_t>(categories_[change.block.life])] += bytes;
    point_.total_bytes += bytes;
  }

  const TimelinePoint& point() const { return point_; }

 private:
  const std::vector<Category>& categories_;  // by life
  TimelinePoint point_;
};

class TimelineBuilder {
 public:
  TimelineBuilder(const EventSource& source, size_t most_points, size_t most_tensors)
      : source_(source),
        most_tensors_(most_tensors),
        space_(main_space_of(source)),
        overview_(overview_of(source, space_)),
        live_(space_),
        sampler_(overview_.changes, most_points, overview_.end_ns),
        now_(overview_.categories) {}

  MemoryTimeline build() {
    for_each_usable(source_, [this](const Event& event) { take(event); });
    timeline_.header = source_.header;
    timeline_.space = space_;
    timeline_.end_ns = overview_.end_ns;
    timeline_.points = sampler_.finish();
    if (timeline_.peak.total_bytes > 0) timeline_.largest = largest_tensors();
    return std::move(timeline_);
  }

 private:
  void take(const Event& event) {
    now_.enter(event);
    for (const LiveBlocks::Change& change : live_.take(event)) take_change(change, event.time_ns);
  }

  void take_change(const LiveBlocks::Change& change, int64_t time_ns) {
    now_.take(change, time_ns);
    if (changes_++ == overview_.peak_change && now_.point().total_bytes > 0) {
      timeline_.peak = now_.point();
      largest_ = live_.largest_blocks(most_tensors_);
    }
    sampler_.take(now_.point());
  }

  /// Returns the largest tensors. Their labels and places are in the events of their allocations,
  /// so this goes through the events once more.
  std::vector<PeakTensor> largest_tensors() const {
    std::vector<PeakTensor> tensors;
    std::unordered_map<uint32_t, size_t> by_life;
    for (const LiveBlocks::Block& block : largest_) {
      by_life[block.life] = tensors.size();
      tensors.push_back({.bytes = block.given_bytes,
                         .category = overview_.categories[block.life],
                         .end_ns = overview_.end_ns});
    }
    LiveBlocks live(space_);
    Place place;
    for_each_usable(source_, [&](const Event& event) {
      place.take(event);
      for (const LiveBlocks::Change& change : live.take(event)) {
        const auto found = by_life.find(change.block.life);
        if (found == by_life.end()) continue;
        PeakTensor& tensor = tensors[found->second];
        (change.begins ? tensor.begin_ns : tensor.end_ns) = event.time_ns;
        if (!change.begins) continue;
        tensor.label = label_text(source_.strings, event.label);
        tensor.innermost_frame = source_.stacks.innermost_frame(event.label);
        tensor.place = place;
      }
    });
    return tensors;
  }

  const EventSource& source_;
  size_t most_tensors_;
  Space space_;
  Overview overview_;
  LiveBlocks live_;
  Sampler sampler_;
  std::vector<LiveBlocks::Block> largest_;
  size_t changes_ = 0;
  MemoryTimeline timeline_;
  MemoryNow now_;
};

}  // namespace

void follow_timeline(const EventSource& source,
                     const std::function<void(const Event&, const TimelinePoint&)>& visit) {
  const Space space = main_space_of(source);
  const Overview overview = overview_of(source, space);
  LiveBlocks live(space);
  MemoryNow now(overview.categories);
  for_each_usable(source, [&](const Event& event) {
    now.enter(event);
    for (const LiveBlocks::Change& change : live.take(event)) now.take(change, event.time_ns);
    visit(event, now.point());
  });
}

bool MemoryTimeline::uses(Category category) const {
  return std::ranges::any_of(points, [&](const TimelinePoint& point) {
    return point.bytes[static_cast<size_t>(category)] != 0;
  });
}

Space main_space_of(const EventSource& source) {
  bool has_device = false;
  source.for_each([&](std::span<const Event> events) {
    has_device = has_device || std::ranges::any_of(events, [](const Event& event) {
                   return is_memory(event) && event.space == Space::device;
                 });
  });
  return has_device ? Space::device : Space::host;
}

MemoryTimeline timeline_of(const EventSource& source, size_t most_points, size_t most_tensors) {
  if (most_points < 2) throw std::invalid_argument("a timeline needs at least two points");
  MemoryTimeline timeline = TimelineBuilder(source, most_points, most_tensors).build();
  timeline.judgement = source.judgement();
  return timeline;
}

}  // namespace shardlens::profiler
