#include "viewer/model/lane_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "profiler/events.h"
#include "profiler/reader.h"

namespace shardlens::viewer {

using profiler::Event;
using profiler::EventKind;
using profiler::Phase;
using profiler::Space;

namespace {

constexpr int64_t kMostReserved = 1 << 26;  // events, however many a file claims

/// Saves the lists of live blocks: one before every kAliveEvery changes.
void save_alive(LaneData& data) {
  std::vector<uint32_t> alive;
  data.alive_begins.push_back(0);
  for (size_t i = 0; i < data.words.size(); ++i) {
    if (i % kAliveEvery == 0) {
      const auto now = static_cast<uint32_t>(i);
      std::erase_if(alive, [&](uint32_t block) { return data.blocks[block].died < now; });
      data.alive_blocks.insert(data.alive_blocks.end(), alive.begin(), alive.end());
      data.alive_begins.push_back(data.alive_blocks.size());
    }
    if (!is_free(data.words[i])) alive.push_back(block_of(data.words[i]));
  }
}

void fill_peaks(LaneData& data) {
  const Pyramid pyramid(data.words, data.blocks, data.nodes, data.checkpoints);
  for (Stretch& stretch : data.stretches) {
    const Extent extent = pyramid.query(stretch.first_change - 1, stretch.end_change);
    stretch.peak_bytes = extent.max_bytes;
    stretch.peak_change = extent.max_change;
  }
}

}  // namespace

LaneBuilder::LaneBuilder(const profiler::Header& header, std::optional<Space> space)
    : space_(space.value_or(header.space_of_tensors())) {
  data_.stretches.push_back({.phase = Phase::starting});
}

void LaneBuilder::expect(int64_t events) {
  const auto most = static_cast<size_t>(std::clamp<int64_t>(events, 0, kMostReserved));
  data_.times_ns.reserve(most);
  data_.words.reserve(most);
  data_.blocks.reserve(most / 2);
}

void LaneBuilder::take(const Event& event) {
  ++events_;
  if (!profiler::is_usable(event)) {
    ++unmatched_;
    return;
  }
  last_ns_ = std::max(last_ns_, event.time_ns);
  switch (event.kind) {
    case EventKind::alloc:
      return take_alloc(event);
    case EventKind::free:
      return take_free(event);
    case EventKind::recategorise:
      return recategorise(event);
    case EventKind::hold:
    case EventKind::release:
      tracker_.take(event);
      return;
    case EventKind::phase:
    case EventKind::step:
      return begin_stretch(event);
    case EventKind::action_begin:
      return begin_action(event);
    case EventKind::action_end:
      return end_action(event);
    case EventKind::counter:
      if (static_cast<profiler::Counter>(event.address) == profiler::Counter::steps_before) {
        steps_before_ = std::max<int64_t>(0, event.value);
      }
      return;
    case EventKind::out_of_memory:
      return;
  }
}

void LaneBuilder::take_alloc(const Event& event) {
  if (event.space == Space::segment) return take_segment(event);
  if (event.space != space_ || data_.words.size() + 2 >= kMostChanges) return;
  const int64_t given = space_ == Space::device ? tracker_.take(event) : event.value;
  end_block(event.address, event.time_ns);  // the previous block's free is missing
  const auto block = static_cast<uint32_t>(data_.blocks.size());
  data_.blocks.push_back({.given_bytes = given,
                          .asked_bytes = event.value,
                          .address = event.address,
                          .born = static_cast<uint32_t>(data_.words.size()),
                          .label = event.label,
                          .action = event.action,
                          .step = step_,
                          .stream = event.stream,
                          .category = event.category,
                          .phase = phase_});
  live_.insert(event.address, block);
  append(event.time_ns, block, false);
}

void LaneBuilder::take_free(const Event& event) {
  if (event.space == Space::segment) return take_segment(event);
  if (event.space != space_) return;
  if (space_ == Space::device) tracker_.take(event);
  if (!end_block(event.address, event.time_ns)) ++unmatched_;
}

/// Ends the block at an address. Returns true if there was one.
bool LaneBuilder::end_block(uint64_t address, int64_t time_ns) {
  const uint32_t block = live_.find(address);
  if (block == profiler::AddressMap::kNone) return false;
  live_.erase(address);
  data_.blocks[block].died = static_cast<uint32_t>(data_.words.size());
  append(time_ns, block, true);
  return true;
}

/// Appends a change. Its time is never below the last one's, whatever a damaged file says, so that
/// times can be searched.
void LaneBuilder::append(int64_t time_ns, uint32_t block, bool is_free) {
  if (!data_.times_ns.empty()) time_ns = std::max(time_ns, data_.times_ns.back());
  data_.times_ns.push_back(time_ns);
  data_.words.push_back(block << 1 | static_cast<uint32_t>(is_free));
}

void LaneBuilder::recategorise(const Event& event) {
  if (event.space != space_) return;
  const uint32_t block = live_.find(event.address);
  if (block == profiler::AddressMap::kNone) {
    ++unmatched_;
  } else {
    data_.blocks[block].category = event.category;
  }
}

void LaneBuilder::take_segment(const Event& event) {
  tracker_.take(event);
  data_.reserved.push_back({last_ns_, tracker_.totals().reserved});
}

void LaneBuilder::close_stretch(int64_t time_ns) {
  Stretch& last = data_.stretches.back();
  last.end_ns = time_ns;
  last.end_change = static_cast<int64_t>(data_.words.size());
}

void LaneBuilder::begin_stretch(const Event& event) {
  close_stretch(last_ns_);
  if (event.kind == EventKind::phase) {
    phase_ = static_cast<Phase>(event.value);
  } else {
    step_ = static_cast<int32_t>(std::clamp<int64_t>(event.value, 0, INT32_MAX));
  }
  const Stretch& before = data_.stretches.back();
  if (before.end_ns == before.begin_ns && before.first_change == before.end_change) {
    data_.stretches.pop_back();
  }
  const bool is_step = event.kind == EventKind::step && phase_ == Phase::training;
  data_.stretches.push_back({.number = is_step ? step_ : -1,
                             .begin_ns = last_ns_,
                             .first_change = static_cast<int64_t>(data_.words.size()),
                             .phase = phase_});
}

void LaneBuilder::begin_action(const Event& event) {
  running_.push_back(data_.spans.size());
  data_.spans.push_back({.begin_ns = last_ns_,
                         .end_ns = last_ns_,
                         .action = event.action,
                         .depth = static_cast<int32_t>(running_.size() - 1),
                         .stretch = static_cast<int64_t>(data_.stretches.size() - 1)});
}

void LaneBuilder::end_action(const Event& event) {
  for (size_t i = running_.size(); i-- > 0;) {
    if (data_.spans[running_[i]].action != event.action) continue;
    // A damaged recording may never end an action: it then ends with the action around it.
    for (size_t inner = i; inner < running_.size(); ++inner) {
      data_.spans[running_[inner]].end_ns = last_ns_;
    }
    running_.resize(i);
    return;
  }
}

Lane LaneBuilder::finish(LaneInfo info) {
  close_stretch(last_ns_);
  for (const size_t span : running_) data_.spans[span].end_ns = last_ns_;
  info.space = space_;
  info.end_ns = last_ns_;
  info.events = events_;
  info.unmatched = unmatched_;
  info.steps_before = steps_before_;
  build_pyramid(data_);
  save_alive(data_);
  fill_peaks(data_);
  return {std::move(info), std::move(data_)};
}

Lane lane_of(const profiler::Profile& profile, std::optional<Space> space) {
  LaneBuilder builder(profile.header, space);
  for (const Event& event : profile.events) builder.take(event);
  return builder.finish({.header = profile.header,
                         .strings = profile.strings,
                         .stacks = profile.stacks,
                         .judgement = profile.judgement});
}

Lane read_lane(const std::string& path, std::optional<Space> space, const ReadPart& tell) {
  profiler::Reader reader(path);
  LaneBuilder builder(reader.header(), space);
  builder.expect(reader.stored_events());
  const auto all = static_cast<double>(std::max<int64_t>(1, reader.stored_events()));
  double taken = 0;
  std::vector<Event> events;
  while (reader.next(events)) {
    for (const Event& event : events) builder.take(event);
    taken += static_cast<double>(events.size());
    if (tell && !tell(std::min(1.0, taken / all))) {
      throw std::runtime_error(
          fmt::format("{}: reading was stopped; Ctrl+L reads all recordings again", path));
    }
  }
  return builder.finish({.header = reader.header(),
                         .strings = reader.strings(),
                         .stacks = reader.stacks(),
                         .judgement = reader.judgement()});
}

}  // namespace shardlens::viewer
