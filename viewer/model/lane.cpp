#include "viewer/model/lane.h"

#include <algorithm>
#include <utility>

namespace shardlens::viewer {

namespace {

constexpr int64_t kFirstSteadyStep = 2;  // the third step: the first two allocate what stays

constexpr size_t kCoarse = 4096;

Lane::Sections sections_of(const LaneData& data) {
  return {data.times_ns,     data.words,        data.blocks,    data.nodes,    data.checkpoints,
          data.alive_begins, data.alive_blocks, data.stretches, data.spans,    data.reserved,
          data.free_labels,  data.names,        data.modules,   data.failures, data.uses};
}

}  // namespace

Lane::Lane(LaneInfo info, LaneData data)
    : info_(std::move(info)),
      data_(std::make_unique<LaneData>(std::move(data))),
      sections_(sections_of(*data_)) {
  finish();
}

Lane::Lane(LaneInfo info, MappedFile file, const Sections& sections)
    : info_(std::move(info)), file_(std::move(file)), sections_(sections) {
  finish();
}

void Lane::finish() {
  pyramid_ = Pyramid(sections_.words, sections_.blocks, sections_.nodes, sections_.checkpoints);
  for (size_t i = 0; i < sections_.times_ns.size(); i += kCoarse) {
    coarse_times_ns_.push_back(sections_.times_ns[i]);
  }
  peak_ = pyramid_.query(kBeforeAll, changes());
  for (const ReservedSample& sample : sections_.reserved) {
    reserved_peak_ = std::max(reserved_peak_, sample.bytes);
  }
  int64_t ran = info_.steps_before;
  for (const Stretch& stretch : sections_.stretches) {
    if (stretch.number < 0 || ran++ < kFirstSteadyStep) continue;
    const Extent extent = extent_of_changes(stretch.first_change, stretch.end_change);
    if (!step_peak_ || extent.max_bytes > step_peak_->max_bytes) step_peak_ = extent;
  }
}

int64_t Lane::change_at(double time_ns) const {
  const auto as_double = [](int64_t time) { return static_cast<double>(time); };
  const auto coarse = std::ranges::lower_bound(coarse_times_ns_, time_ns, {}, as_double);
  const auto part = static_cast<size_t>(coarse - coarse_times_ns_.begin());
  const size_t begin = part == 0 ? 0 : (part - 1) * kCoarse;
  const auto& all = sections_.times_ns;
  const auto near = all.subspan(begin, std::min<size_t>(kCoarse + 1, all.size() - begin));
  const auto at = std::ranges::lower_bound(near, time_ns, {}, as_double);
  return static_cast<int64_t>(begin) + (at - near.begin());
}

int64_t Lane::time_of(int64_t change) const {
  if (change < 0 || sections_.times_ns.empty()) return 0;
  return sections_.times_ns[static_cast<size_t>(std::min(change, changes() - 1))];
}

const Stretch* Lane::first_step() const {
  const auto& all = sections_.stretches;
  const auto at =
      std::ranges::find_if(all, [](const Stretch& stretch) { return stretch.number >= 0; });
  return at == all.end() ? nullptr : &*at;
}

Extent Lane::extent_between(double begin_ns, double end_ns) const {
  return extent_of_changes(change_at(begin_ns), change_at(end_ns));
}

Extent Lane::extent_of_changes(int64_t begin, int64_t end) const {
  return pyramid_.query(begin - 1, std::max(begin, end));
}

std::optional<int64_t> Lane::reserved_between(double begin_ns, double end_ns) const {
  const auto& samples = sections_.reserved;
  if (samples.empty()) return std::nullopt;
  const auto time = [](const ReservedSample& sample) {
    return static_cast<double>(sample.time_ns);
  };
  auto at = std::ranges::upper_bound(samples, begin_ns, {}, time);
  int64_t most = at == samples.begin() ? 0 : std::prev(at)->bytes;
  for (; at != samples.end() && time(*at) < end_ns; ++at) most = std::max(most, at->bytes);
  return most;
}

std::vector<uint32_t> Lane::alive_after(int64_t change) const {
  std::vector<uint32_t> alive;
  if (change < 0 || changes() == 0) return alive;
  change = std::min(change, changes() - 1);
  const auto list = static_cast<size_t>(change / kAliveEvery);
  for (uint64_t i = sections_.alive_begins[list]; i < sections_.alive_begins[list + 1]; ++i) {
    const uint32_t block = sections_.alive_blocks[i];
    if (sections_.blocks[block].is_alive_after(change)) alive.push_back(block);
  }
  for (int64_t i = static_cast<int64_t>(list) * kAliveEvery; i <= change; ++i) {
    const uint32_t word = sections_.words[static_cast<size_t>(i)];
    if (is_free(word) || !sections_.blocks[block_of(word)].is_alive_after(change)) continue;
    alive.push_back(block_of(word));
  }
  return alive;
}

const Stretch* Lane::stretch_of_change(int64_t change) const {
  const auto& all = sections_.stretches;
  const auto at = std::ranges::upper_bound(all, change, {}, &Stretch::first_change);
  return at == all.begin() ? nullptr : &*std::prev(at);
}

const Span* Lane::span_at(int64_t time_ns) const {
  const auto& all = sections_.spans;
  const auto after = std::ranges::upper_bound(all, time_ns, {}, &Span::begin_ns);
  // A span that encloses a moment began before it; nested spans come right after their parents.
  for (auto at = after; at != all.begin();) {
    --at;
    if (at->end_ns >= time_ns) return &*at;
    if (at->depth == 0) return nullptr;
  }
  return nullptr;
}

int64_t Lane::used_bytes(uint32_t segment, int64_t time_ns) const {
  int64_t bytes = 0;
  for (const SegmentUse& use : sections_.uses) {
    if (use.begin_ns > time_ns) break;
    if (use.block == segment && use.end_ns > time_ns) bytes += use.bytes;
  }
  return bytes;
}

namespace {

uint32_t label_in(std::span<const BlockLabel> labels, uint32_t block) {
  const auto at = std::ranges::lower_bound(labels, block, {}, &BlockLabel::block);
  return at == labels.end() || at->block != block ? 0 : at->label;
}

}  // namespace

uint32_t Lane::free_label(uint32_t block) const { return label_in(sections_.free_labels, block); }

std::string_view Lane::name(uint32_t block) const {
  return label(label_in(sections_.names, block));
}

std::string_view Lane::module_of(int64_t change) const {
  if (change < 0 || change >= changes()) return {};
  if (is_free(sections_.words[static_cast<size_t>(change)])) return {};
  const auto& all = sections_.modules;
  const auto after = std::ranges::upper_bound(all, change, {}, &ModuleChange::change);
  return after == all.begin() ? std::string_view() : label(std::prev(after)->label);
}

int64_t Lane::last_allocation(int64_t time_ns) const {
  int64_t change = change_at(static_cast<double>(time_ns) + 1) - 1;
  while (change >= 0 && is_free(sections_.words[static_cast<size_t>(change)])) --change;
  return change;
}

std::string_view Lane::label(uint32_t string) const {
  return string < info_.strings.size() ? std::string_view(info_.strings[string])
                                       : std::string_view();
}

}  // namespace shardlens::viewer
