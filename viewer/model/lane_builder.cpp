#include "viewer/model/lane_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "profiler/file/reader.h"
#include "profiler/recording/events.h"
#include "profiler/report/recording_report.h"
#include "profiler/report/report.h"

namespace shardlens::viewer {

using profiler::Event;
using profiler::EventKind;
using profiler::Phase;
using profiler::Space;

namespace {

constexpr int64_t kMostReserved = 1 << 26;  // events, however many a file claims

/// Saves the lists of live blocks, one before every kAliveEvery changes.
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

/// Orders names by block, and keeps the last of each.
void order_names(std::vector<BlockLabel>& names) {
  std::ranges::reverse(names);
  std::ranges::stable_sort(names, {}, &BlockLabel::block);
  const auto twice = std::ranges::unique(names, {}, &BlockLabel::block);
  names.erase(twice.begin(), twice.end());
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
    : space_(space.value_or(header.space_of_tensors())),
      has_schedule_(!profiler::program_part(header, 0)) {
  data_.stretches.push_back({.phase = Phase::starting});
}

void LaneBuilder::expect(int64_t events) {
  const auto most = static_cast<size_t>(std::clamp<int64_t>(events, 0, kMostReserved));
  data_.times_ns.reserve(most);
  data_.words.reserve(most);
  data_.blocks.reserve(most / 2);
}

void LaneBuilder::take(const Event& event) {
  analysis_.take(event);
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
      return take_failure(event);
    case EventKind::module:
      return take_module(event);
  }
}

void LaneBuilder::take_alloc(const Event& event) {
  if (event.space == Space::segment) return take_segment(event);
  if (event.space == Space::device && space_ == Space::segment) return take_tensor(event);
  if (event.space != space_) return;
  end_block_at(event.address, event.time_ns, 0);  // the previous block's free is missing
  const uint32_t block = begin_block(event, analysis_.given_bytes());
  if (block != profiler::AddressMap::kNone) live_.insert(event.address, block);
}

void LaneBuilder::take_free(const Event& event) {
  if (event.space == Space::segment) return take_segment(event);
  if (event.space == Space::device && space_ == Space::segment) return take_tensor(event);
  if (event.space != space_) return;
  if (!end_block_at(event.address, event.time_ns, event.label)) ++unmatched_;
}

/// Appends an allocation. Returns its block; AddressMap::kNone if the lane has no room for more.
uint32_t LaneBuilder::begin_block(const Event& event, int64_t given_bytes) {
  if (data_.words.size() + 2 >= kMostChanges) return profiler::AddressMap::kNone;
  const auto block = static_cast<uint32_t>(data_.blocks.size());
  data_.blocks.push_back({.given_bytes = given_bytes,
                          .asked_bytes = event.value,
                          .address = event.address,
                          .born = static_cast<uint32_t>(data_.words.size()),
                          .label = event.label,
                          .action = event.action,
                          .step = step_,
                          .stream = event.stream,
                          .category = event.category,
                          .phase = phase_});
  append(event.time_ns, block, false);
  return block;
}

/// Ends the block at an address. Returns true if there was one.
bool LaneBuilder::end_block_at(uint64_t address, int64_t time_ns, uint32_t free_label) {
  const uint32_t block = live_.erase(address);
  if (block == profiler::AddressMap::kNone) return false;
  const bool has_own_call = free_label != 0 && free_label != data_.blocks[block].label;
  if (has_own_call) data_.free_labels.push_back({block, free_label});
  end_block(block, time_ns);
  return true;
}

void LaneBuilder::end_block(uint32_t block, int64_t time_ns) {
  data_.blocks[block].died = static_cast<uint32_t>(data_.words.size());
  append(time_ns, block, true);
}

/// Appends a change. Its time is never before the previous one's, whatever a damaged file says, so
/// that times can be searched.
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
    if (event.label != 0) data_.names.push_back({block, event.label});
  }
}

void LaneBuilder::take_segment(const Event& event) {
  data_.reserved.push_back({last_ns_, analysis_.blocks().totals().reserved});
  if (space_ != Space::segment) return;
  if (event.kind == EventKind::free) return remove_segments(event);
  Event segment = event;
  segment.label = 0;  // it would only say that the segment is expandable
  segment.action = std::max(segment.action, -1);  // below: its private pool
  const uint32_t block = begin_block(segment, event.value);
  if (block == profiler::AddressMap::kNone) return;
  segments_[event.address] = block;
  unexplained_.push_back(block);
}

/// Notes the module that allocates from here on: modules allocate on the device only.
void LaneBuilder::take_module(const Event& event) {
  if (space_ != Space::device) return;
  const auto change = static_cast<uint32_t>(data_.words.size());
  if (!data_.modules.empty() && data_.modules.back().change == change) data_.modules.pop_back();
  data_.modules.push_back({.change = change, .label = event.label});
}

void LaneBuilder::take_failure(const Event& event) {
  if (space_ != Space::device && space_ != Space::segment) return;
  data_.failures.push_back({.time_ns = last_ns_,
                            .change = static_cast<int64_t>(data_.words.size()),
                            .asked_bytes = event.value,
                            .free_bytes = static_cast<int64_t>(event.address),
                            .reserved_bytes = analysis_.blocks().totals().reserved,
                            .largest_free_bytes = analysis_.blocks().largest_free_bytes(),
                            .label = event.label,
                            .category = event.category});
}

/// Follows the tensors that lie in segments.
void LaneBuilder::take_tensor(const Event& event) {
  const auto at = tensors_.find(event.address);
  if (at != tensors_.end()) {
    use_segments(at->first, at->second, false);
    tensors_.erase(at);
  }
  if (event.kind != EventKind::alloc) return;
  explain_segments(event);
  const int64_t given = analysis_.given_bytes();
  tensors_[event.address] = given;
  use_segments(event.address, given, true);
}

/// Notes that bytes at an address are given to a tensor or taken back. In expandable memory they
/// may span several ranges that were mapped one after the other.
void LaneBuilder::use_segments(uint64_t address, int64_t bytes, bool begins) {
  const uint64_t end = address + static_cast<uint64_t>(bytes);
  auto at = segments_.upper_bound(address);
  if (at != segments_.begin()) --at;
  for (; at != segments_.end() && at->first < end; ++at) {
    const uint64_t from = std::max(address, at->first);
    const auto size = static_cast<uint64_t>(data_.blocks[at->second].given_bytes);
    const uint64_t to = std::min(end, at->first + size);
    if (from >= to) continue;
    const auto before = uses_.find(from);
    if (before != uses_.end()) data_.uses[before->second].end_ns = last_ns_;
    if (!begins) {
      uses_.erase(from);
      continue;
    }
    uses_[from] = data_.uses.size();
    data_.uses.push_back({.begin_ns = last_ns_,
                          .address = from,
                          .bytes = static_cast<int64_t>(to - from),
                          .block = at->second});
  }
}

/// Notes this for every tensor in a range of addresses, as far as the tensor lies in the range.
void LaneBuilder::use_segments_of(uint64_t from, uint64_t to, bool begins) {
  auto tensor = tensors_.upper_bound(from);
  if (tensor != tensors_.begin()) --tensor;
  for (; tensor != tensors_.end() && tensor->first < to; ++tensor) {
    const uint64_t begin = std::max(from, tensor->first);
    const uint64_t end = std::min(to, tensor->first + static_cast<uint64_t>(tensor->second));
    if (begin < end) use_segments(begin, static_cast<int64_t>(end - begin), begins);
  }
}

/// Gives each segment the label of the allocation that made the allocator take it: the one that
/// follows it at once and lies in it. The segments that a recording began with are at time 0 and
/// follow nothing.
void LaneBuilder::explain_segments(const Event& event) {
  const uint64_t end = event.address + static_cast<uint64_t>(std::max<int64_t>(event.value, 1));
  for (const uint32_t index : unexplained_) {
    Block& segment = data_.blocks[index];
    const auto segment_end = segment.address + static_cast<uint64_t>(segment.given_bytes);
    const bool lies_in_it = event.address < segment_end && segment.address < end;
    if (lies_in_it && event.time_ns > 0) segment.label = event.label;
  }
  unexplained_.clear();
}

/// Ends the segments of a range of addresses. A part of an expandable segment may be unmapped; each
/// part that remains becomes a segment.
void LaneBuilder::remove_segments(const Event& event) {
  const uint64_t begin = event.address;
  const auto bytes = static_cast<uint64_t>(std::max<int64_t>(event.value, 1));
  const uint64_t end = begin + bytes;
  const auto add_rest = [&](const Block& old, uint64_t from, uint64_t to) {
    if (from >= to) return;
    Event rest{.time_ns = event.time_ns,
               .address = from,
               .value = static_cast<int64_t>(to - from),
               .label = old.label,
               .stream = old.stream,
               .category = old.category};
    const uint32_t block = begin_block(rest, rest.value);
    if (block == profiler::AddressMap::kNone) return;
    segments_[from] = block;
    use_segments_of(from, to, true);
  };
  auto at = segments_.upper_bound(begin);
  if (at != segments_.begin()) --at;
  bool has_ended = false;
  while (at != segments_.end() && at->first < end) {
    const Block old = data_.blocks[at->second];
    const uint64_t old_end = old.address + static_cast<uint64_t>(old.given_bytes);
    const uint32_t block = at->second;
    ++at;
    if (old_end <= begin) continue;
    use_segments_of(old.address, old_end, false);
    segments_.erase(old.address);
    end_block(block, event.time_ns);
    has_ended = true;
    if (event.value <= 0) continue;  // nothing remains
    add_rest(old, old.address, begin);
    add_rest(old, end, old_end);
  }
  if (!has_ended) ++unmatched_;
}

void LaneBuilder::close_stretch(int64_t time_ns) {
  Stretch& last = data_.stretches.back();
  last.end_ns = time_ns;
  last.end_change = static_cast<int64_t>(data_.words.size());
}

/// Ends all actions that run. If events were lost, their ends may be among them.
void LaneBuilder::end_running() {
  for (const size_t span : running_) data_.spans[span].end_ns = last_ns_;
  running_.clear();
}

void LaneBuilder::begin_stretch(const Event& event) {
  close_stretch(last_ns_);
  if (has_schedule_) end_running();  // no action of a schedule lasts into the next step
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
    // A damaged recording may never end an action: the action then ends with the one around it.
    // The parts of a program may end in any order.
    const size_t end = has_schedule_ ? running_.size() : i + 1;
    for (size_t inner = i; inner < end; ++inner) data_.spans[running_[inner]].end_ns = last_ns_;
    running_.erase(running_.begin() + static_cast<std::ptrdiff_t>(i),
                   running_.begin() + static_cast<std::ptrdiff_t>(end));
    return;
  }
}

Lane LaneBuilder::finish(LaneInfo info) {
  close_stretch(last_ns_);
  end_running();
  info.space = space_;
  info.end_ns = last_ns_;
  info.events = events_;
  info.unmatched = unmatched_;
  info.steps_before = steps_before_;
  std::ranges::sort(data_.free_labels, {}, &BlockLabel::block);
  order_names(data_.names);
  build_pyramid(data_);
  save_alive(data_);
  fill_peaks(data_);
  return {std::move(info), std::move(data_)};
}

namespace {

LaneFindings findings_of(const profiler::RankReport& report) {
  return {.growth = report.growth ? profiler::growth_text(*report.growth) : "",
          .reserved = profiler::reserved_text(report),
          .out_of_memory = profiler::out_of_memory_text(report)};
}

}  // namespace

Lane lane_of(const profiler::Profile& profile, std::optional<Space> space) {
  LaneBuilder builder(profile.header, space);
  for (const Event& event : profile.events) builder.take(event);
  return builder.finish({.header = profile.header,
                         .strings = profile.strings,
                         .stacks = profile.stacks,
                         .findings = findings_of(finish_report(builder.analysis(), profile)),
                         .judgement = profile.judgement});
}

Lane read_lane(const std::string& path, std::optional<Space> space, const ReadProgress& tell,
               const OtherTimes* other) {
  profiler::Reader reader(path);
  LaneBuilder builder(reader.header(), space);
  builder.expect(reader.stored_events());
  const auto all = static_cast<double>(std::max<int64_t>(1, reader.stored_events()));
  double taken = 0;
  std::vector<Event> events;
  while (reader.next(events)) {
    if (other != nullptr) {
      for (Event& event : events) event.time_ns = other->time_of(event.time_ns);
    }
    for (const Event& event : events) builder.take(event);
    taken += static_cast<double>(events.size());
    if (tell && !tell(std::min(1.0, taken / all))) {
      throw std::runtime_error(
          fmt::format("{}: reading was stopped; Ctrl+L reloads all runs", path));
    }
  }
  profiler::Header header = reader.header();
  if (other != nullptr) {
    builder.last_until(other->end_ns);
    header.notice += (header.notice.empty() ? "" : "; ") + other->notice;
  }
  return builder.finish({.header = std::move(header),
                         .strings = reader.strings(),
                         .stacks = reader.stacks(),
                         .findings = findings_of(finish_report(builder.analysis(), reader, path)),
                         .judgement = reader.judgement()});
}

}  // namespace shardlens::viewer
