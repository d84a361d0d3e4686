#include "profiler/report/report.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <sstream>
#include <string_view>

#include "profiler/program/callers.h"
#include "profiler/recording/events.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kFirstSteadyStep = 2;  // the third: the first two allocate what stays

}  // namespace

/// Turns indices of a recording into texts.
class Names {
 public:
  Names(const Header& header, const std::vector<std::string>& strings, const Stacks& stacks)
      : strings_(strings),
        callers_(strings, stacks),
        train_(header.train),
        evaluate_(header.evaluate) {}

  std::string label(uint32_t index) const {
    return index < strings_.size() ? strings_[index] : "string " + std::to_string(index);
  }

  std::string action(Phase phase, int32_t id) const {
    return (phase == Phase::evaluating ? evaluate_ : train_).words(id);
  }

  /// Returns the allocations with their texts, the largest first and equal ones in the order of
  /// their allocation.
  std::vector<NamedAllocation> tensors(std::vector<LiveAllocation> live, int64_t step_now) const {
    std::ranges::sort(live, [](const LiveAllocation& a, const LiveAllocation& b) {
      return a.given_bytes != b.given_bytes ? a.given_bytes > b.given_bytes : a.version < b.version;
    });
    std::vector<NamedAllocation> tensors;
    tensors.reserve(live.size());
    struct Origin {
      std::string caller;
      std::string operation;
    };
    std::map<uint32_t, Origin> origins;
    const auto origin_of = [&](uint32_t label) -> const Origin& {
      const auto [found, is_new] = origins.try_emplace(label);
      if (is_new) found->second = {callers_.caller_of(label), callers_.operator_of(label)};
      return found->second;
    };
    for (const LiveAllocation& one : live) {
      const Origin& origin = origin_of(one.label);
      tensors.push_back({.given_bytes = one.given_bytes,
                         .asked_bytes = one.asked_bytes,
                         .category = one.category,
                         .label = label(one.label),
                         .name = label(one.name),
                         .caller = origin.caller,
                         .operation = origin.operation,
                         .action_id = one.action,
                         .action = action(one.phase, one.action),
                         .age_steps = step_now - one.step,
                         .is_of_step = one.step >= 0});
    }
    return tensors;
  }

 private:
  const std::vector<std::string>& strings_;
  Callers callers_;
  ActionLines train_;
  ActionLines evaluate_;
};

const SpaceReport* RankReport::main_space() const {
  const auto& space = spaces[static_cast<size_t>(main)];
  return space ? &*space : nullptr;
}

int64_t RankReport::peak_bytes() const {
  const SpaceReport* space = main_space();
  return space == nullptr ? 0 : space->peak_bytes;
}

std::optional<int64_t> RankReport::reserved_peak_bytes() const {
  const auto& segments = spaces[static_cast<size_t>(Space::segment)];
  if (!segments) return std::nullopt;
  return segments->peak_bytes;
}

double RankReport::other_share() const {
  const SpaceReport* space = main_space();
  if (space == nullptr || space->peak_bytes == 0) return 0;
  return static_cast<double>(space->given[static_cast<size_t>(Category::other)]) /
         static_cast<double>(space->peak_bytes);
}

namespace {

/// Turns the allocations that were alive at a moment into blocks of an account, and names their
/// places.
std::vector<UsedBlock> used_blocks(const std::vector<LiveAllocation>& live,
                                   std::vector<UsedBlock> pending, const Names& names,
                                   std::vector<ReservedPlace>& places) {
  std::map<ReservedPlace, uint32_t> known;
  std::vector<UsedBlock> blocks = std::move(pending);
  for (const LiveAllocation& one : live) {
    ReservedPlace place{.category = one.category, .label = names.label(one.label)};
    const auto [at, is_new] = known.try_emplace(place, static_cast<uint32_t>(places.size()));
    if (is_new) places.push_back(std::move(place));
    blocks.push_back({.address = one.address,
                      .given_bytes = one.given_bytes,
                      .asked_bytes = one.asked_bytes,
                      .step = one.step,
                      .place = at->second});
  }
  return blocks;
}

/// A moment with what the allocator held then, and the request that decides.
struct ReservedMoment {
  Moment at;
  Event request;
  ReservedRequest needs;
  std::vector<ReservedSegment> segments;
  std::vector<UsedBlock> pending;
};

ReservedReport account_of(ReservedMoment moment, const std::vector<LiveAllocation>& live,
                          const Names& names) {
  const Moment& at = moment.at;
  const Event& request = moment.request;
  ReservedReport report{.at = at,
                        .action = names.action(at.phase, at.action),
                        .module = names.label(at.module),
                        .asked_bytes = request.value,
                        .category = request.category,
                        .label = names.label(request.label),
                        .parts = {},
                        .places = {}};
  report.parts = reserved_parts(std::move(moment.segments),
                                used_blocks(live, std::move(moment.pending), names, report.places),
                                moment.needs);
  return report;
}

}  // namespace

std::optional<ReservedReport> Analysis::reserved_peak(const Names& names) {
  PeakSet& tensors = set_of(Space::device);
  reserved_peak_.finish(tracker_, tensors);
  if (!reserved_peak_.exists()) return std::nullopt;
  return account_of({.at = reserved_peak_.at(),
                     .request = reserved_peak_.request(),
                     .needs = reserved_peak_.needs(),
                     .segments = reserved_peak_.segments(),
                     .pending = reserved_peak_.pending()},
                    tensors.live_at_mark(), names);
}

const OutOfMemory* RankReport::retry() const {
  if (!given_back || given_back->capacity_bytes <= 0) return nullptr;
  const int64_t left = given_back->capacity_bytes - given_back->others_bytes;
  return given_back->needed_bytes > left ? &given_back->request : nullptr;
}

std::optional<StepPattern> pattern_of_steps(const RankReport& rank) {
  if (!rank.step_peak) return std::nullopt;
  std::vector<StepHeight> heights;
  for (const StepPeak& step : rank.steps) {
    if (step.step < rank.first_steady_step) continue;
    heights.push_back({.step = step.step, .bytes = step.bytes[static_cast<size_t>(rank.main)]});
  }
  return find_step_pattern(heights);
}

SpaceReport Analysis::space_report(Space space, const Names& names) {
  const auto index = static_cast<size_t>(space);
  const Level& level = level_of(index);
  SpaceReport report;
  report.peak_bytes = report.peak_asked_bytes = level.peak;
  report.peak_at = level.peak_at;
  report.peak_action = names.action(level.peak_at.phase, level.peak_at.action);
  report.peak_module = names.label(level.peak_at.module);
  report.phase_peaks = phase_peaks_[index];
  report.allocations = space_allocations_[static_cast<size_t>(space)];
  report.end_bytes = level.bytes;
  if (space == Space::segment) return report;
  const PeakSet& set = sets_[index];
  report.given = set.given_at_peak();
  report.asked = set.asked_at_peak();
  report.end_given = set.given();
  report.peak_asked_bytes = 0;
  for (const int64_t bytes : report.asked) report.peak_asked_bytes += bytes;
  report.tensors = names.tensors(set.live_at_peak(), level.peak_at.step);
  return report;
}

std::optional<int64_t> Analysis::last_of(Counter counter) const {
  const CounterReport& report = counters_[static_cast<size_t>(counter)];
  if (report.count == 0) return std::nullopt;
  return report.last;
}

Ledger Analysis::ledger(const Names& names) const {
  Ledger ledger;
  const auto has = [&](Space space) { return space_events_[static_cast<size_t>(space)] > 0; };
  ledger.device_total_bytes = last_of(Counter::device_total);
  ledger.before_bytes = last_of(Counter::device_before);
  const std::optional<int64_t> start_bytes = last_of(Counter::device_start);
  if (start_bytes) ledger.context_bytes = *start_bytes - ledger.before_bytes.value_or(0);
  const LedgerSample sample = most_used_ ? *most_used_ : ledger_now(0);
  if (most_used_) ledger.device_used_bytes = sample.used;
  if (has(Space::segment)) ledger.reserved_bytes = sample.blocks.reserved;
  ledger.blocks = sample.blocks;
  if (has(Space::driver)) {
    ledger.driver_bytes = 0;
    for (const auto& [label, bytes] : sample.libraries) {
      if (bytes == 0) continue;
      *ledger.driver_bytes += bytes;
      ledger.libraries.emplace_back(label == 0 ? "unnamed" : names.label(label), bytes);
    }
    std::ranges::stable_sort(ledger.libraries,
                             [](const auto& a, const auto& b) { return a.second > b.second; });
  }
  if (most_used_ && (ledger.driver_bytes || ledger.reserved_bytes)) {
    ledger.residual_bytes = sample.used - start_bytes.value_or(0) -
                            ledger.driver_bytes.value_or(ledger.reserved_bytes.value_or(0));
  }
  return ledger;
}

namespace {

Space main_space_of(const std::array<int64_t, kSpaces>& events) {
  return events[static_cast<size_t>(Space::device)] > 0 ? Space::device : Space::host;
}

/// Returns each space's highest peak of the steps from `first` on; its `step` has the main space's
/// peak.
std::optional<StepPeak> steady_peak(const std::vector<StepPeak>& steps, size_t first, Space main) {
  if (steps.size() <= first) return std::nullopt;
  const auto index = static_cast<size_t>(main);
  StepPeak peak = steps[first];
  for (size_t i = first; i < steps.size(); ++i) {
    if (steps[i].bytes[index] > peak.bytes[index]) peak.step = steps[i].step;
    for (size_t space = 0; space < kSpaces; ++space) {
      peak.bytes[space] = std::max(peak.bytes[space], steps[i].bytes[space]);
    }
  }
  return peak;
}

}  // namespace

OutOfMemory Analysis::named(Failure failure, const Names& names) const {
  OutOfMemory report = std::move(failure.report);
  const Event& request = failure.event;
  report.reserved = account_of({.at = report.at,
                                .request = request,
                                .needs = {.bytes = request.value,
                                          .stream = request.stream,
                                          .private_pool = failure.private_pool},
                                .segments = std::move(failure.segments),
                                .pending = std::move(failure.pending)},
                               failure.live, names);
  report.action = report.reserved.action;
  report.module = report.reserved.module;
  report.asked_bytes = request.value;
  report.category = request.category;
  report.label = report.reserved.label;
  report.tensors = names.tensors(std::move(failure.live), report.at.step);
  return report;
}

std::optional<GivenBackCache> Analysis::find_given_back(const Header& header, const Names& names) {
  if (!given_back_) return std::nullopt;
  const int64_t needed_bytes = given_back_->needed_bytes;
  return GivenBackCache{
      .request = named(*std::move(given_back_), names),
      .needed_bytes = needed_bytes,
      .others_bytes = std::max<int64_t>(0, used_by_others_.value_or(0)),
      .capacity_bytes = last_of(Counter::device_total).value_or(header.capacity_bytes)};
}

RankReport Analysis::finish(const Header& header, const std::vector<std::string>& strings,
                            Judgement judgement, const Stacks& stacks) {
  close_window();
  const Names names(header, strings, stacks);
  RankReport report;
  report.header = header;
  report.events = events_;
  report.has_times = has_times_ || header.start_realtime_ns != 0;
  report.unmatched = unmatched_;
  report.judgement = std::move(judgement);
  // A recording of chosen steps says that others ran before.
  const bool has_chosen_steps = last_of(Counter::steps_before).has_value();
  if (reserved_peak_.begins_late() && !has_chosen_steps) report.judgement.begins_late = true;
  report.main = main_space_of(space_events_);
  report.steps = std::move(steps_);
  const int64_t steps_before = std::max<int64_t>(0, last_of(Counter::steps_before).value_or(0));
  const auto first = static_cast<size_t>(std::max<int64_t>(0, kFirstSteadyStep - steps_before));
  report.step_peak = steady_peak(report.steps, first, report.main);
  if (report.step_peak) report.first_steady_step = report.steps[first].step;
  report.program = program_lines(strings, stacks);
  report.blocks_at_peak = blocks_at_peak_;
  report.blocks_at_end = tracker_.totals();
  report.reserved_peak = reserved_peak(names);
  report.out_of_memory_count = failure_count_;
  report.counters = counters_;
  report.pinned_use = pinned_use_;
  report.losses = losses_;
  report.ledger = ledger(names);
  for (size_t space = 0; space < kSpaces; ++space) {
    if (space_events_[space] == 0) continue;
    report.spaces[space] = space_report(static_cast<Space>(space), names);
  }
  for (Failure& failure : failures_) {
    report.out_of_memory.push_back(named(std::move(failure), names));
  }
  report.given_back = find_given_back(header, names);
  if (report.main_space() != nullptr) report.kept = kept_places(report.main_space()->tensors);
  report.growth = find_growth(strings, stacks, header.capacity_bytes);
  return report;
}

RankReport finish_report(Analysis& analysis, const Profile& profile) {
  const auto finished = [&profile](Analysis& all) {
    return all.finish(profile.header, profile.strings, profile.judgement, profile.stacks);
  };
  const auto label = analysis.label_of_rounds(profile.strings, profile.stacks);
  if (!label) return finished(analysis);
  Analysis by_rounds;
  by_rounds.count_rounds_by(*label);
  for (const Event& event : profile.events) by_rounds.take(event);
  return finished(by_rounds);
}

RankReport analyse(const Profile& profile) {
  Analysis analysis;
  for (const Event& event : profile.events) analysis.take(event);
  return finish_report(analysis, profile);
}

}  // namespace shardlens::profiler
