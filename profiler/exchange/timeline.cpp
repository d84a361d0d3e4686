#include "profiler/exchange/timeline.h"

#include <algorithm>
#include <stdexcept>

#include "profiler/events.h"
#include "profiler/exchange/lifetimes.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kLargestTensors = 10;

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

class TimelineBuilder {
 public:
  TimelineBuilder(const Profile& profile, size_t most_points) : profile_(profile) {
    timeline_.header = profile.header;
    timeline_.space = main_space_of(profile);
    lives_ = lifetimes_of(profile, timeline_.space);
    for (const Event& event : profile.events) {
      timeline_.end_ns = std::max(timeline_.end_ns, event.time_ns);
    }
    sampler_ = Sampler(lives_.changes.size(), most_points, timeline_.end_ns);
  }

  Timeline build() {
    auto change = lives_.changes.begin();
    for (size_t i = 0; i < profile_.events.size(); ++i) {
      const Event& event = profile_.events[i];
      if (!is_usable(event)) continue;
      take_place(event);
      for (; change != lives_.changes.end() && change->event == i; ++change) {
        take_change(*change, event.time_ns);
      }
    }
    timeline_.points = sampler_.finish();
    find_largest();
    timeline_.peak_place = PlaceNames(profile_.header).place(timeline_.peak.place);
    return std::move(timeline_);
  }

 private:
  void take_place(const Event& event) {
    now_.place.take(event);
    if (event.kind == EventKind::step && now_.place.phase == Phase::training) {
      timeline_.steps.push_back({.time_ns = event.time_ns, .step = event.value});
    }
  }

  void take_change(const LifeChange& change, int64_t time_ns) {
    const Lifetime& life = lives_.lives[change.life];
    const int64_t bytes = change.begins ? life.given_bytes : -life.given_bytes;
    now_.time_ns = time_ns;
    now_.bytes[static_cast<size_t>(life.category)] += bytes;
    now_.total_bytes += bytes;
    if (now_.total_bytes > timeline_.peak.total_bytes) {
      timeline_.peak = now_;
      peak_change_ = static_cast<size_t>(&change - lives_.changes.data());
    }
    sampler_.take(now_);
  }

  void find_largest() {
    if (timeline_.peak.total_bytes == 0) return;
    std::vector<bool> alive(lives_.lives.size());
    for (size_t i = 0; i <= peak_change_; ++i) {
      alive[lives_.changes[i].life] = lives_.changes[i].begins;
    }
    std::vector<uint32_t> found;
    for (uint32_t life = 0; life < alive.size(); ++life) {
      if (alive[life]) found.push_back(life);
    }
    std::ranges::stable_sort(found, std::greater(),
                             [&](uint32_t life) { return lives_.lives[life].given_bytes; });
    found.resize(std::min(found.size(), kLargestTensors));
    for (const uint32_t life : found) timeline_.largest.push_back(tensor_of(lives_.lives[life]));
  }

  PeakTensor tensor_of(const Lifetime& life) const {
    PeakTensor tensor{.bytes = life.given_bytes,
                      .category = life.category,
                      .label = label_text(profile_, profile_.events[life.begin].label),
                      .place = {}};
    for (uint32_t i = 0; i <= life.begin; ++i) {
      if (is_usable(profile_.events[i])) tensor.place.take(profile_.events[i]);
    }
    return tensor;
  }

  const Profile& profile_;
  Lifetimes lives_;
  Timeline timeline_;
  TimelinePoint now_;
  size_t peak_change_ = 0;
  Sampler sampler_{0, 2, 0};
};

}  // namespace

bool Timeline::uses(Category category) const {
  return std::ranges::any_of(points, [&](const TimelinePoint& point) {
    return point.bytes[static_cast<size_t>(category)] != 0;
  });
}

Timeline timeline_of(const Profile& profile, size_t most_points) {
  if (most_points < 2) throw std::invalid_argument("a timeline needs two points at least");
  Timeline timeline = TimelineBuilder(profile, most_points).build();
  timeline.judgement = profile.judgement;
  return timeline;
}

}  // namespace shardlens::profiler
