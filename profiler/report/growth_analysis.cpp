#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "profiler/program/callers.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

constexpr int64_t kSettlingSteps = 2;
constexpr int64_t kLeastRounds = 8;
constexpr double kMostlyAll = 0.8;         // of the allocations that any label spans
constexpr double kSmallPart = 0.05;        // of what a program grows by
constexpr int64_t kTinyShare = 1'000'000;  // this many steps would fill the GPU

/// Removes numbers that a program keeps of each step, such as its loss: they do not matter.
void drop_numbers(std::vector<GrowingLabel>& labels, int64_t capacity_bytes) {
  double bytes = 0;
  for (const GrowingLabel& one : labels) bytes += one.are_numbers ? one.rise.bytes_per_moment : 0;
  if (bytes * kTinyShare >= static_cast<double>(capacity_bytes) && capacity_bytes > 0) return;
  std::erase_if(labels, [](const GrowingLabel& one) { return one.are_numbers; });
}

double rate_of(const std::vector<GrowingLabel>& labels) {
  double bytes = 0;
  for (const GrowingLabel& one : labels) bytes += one.rise.bytes_per_moment;
  return bytes;
}

/// Returns the distance of the rises if it is the same for all labels that matter; else 1.
int64_t common_distance(const std::vector<GrowingLabel>& labels, double rate) {
  int64_t every = 0;
  for (const GrowingLabel& one : labels) {
    if (one.rise.bytes_per_moment < kSmallPart * rate) continue;
    if (every != 0 && every != one.rise.every) return 1;
    every = one.rise.every;
  }
  return std::max<int64_t>(every, 1);
}

}  // namespace

/// Notes when the model runs. The numbers are those of a program without a schedule; one with a
/// schedule has steps, so that nobody asks for its rounds.
void Analysis::note_work(int32_t action) {
  const bool runs_model = action == static_cast<int32_t>(ProgramPart::forward) ||
                          action == static_cast<int32_t>(ProgramPart::backward);
  if (runs_model) work_.take(growth_.allocations());
}

std::optional<uint32_t> Analysis::label_of_rounds(const std::vector<std::string>& strings,
                                                  const Stacks& stacks) const {
  if (growth_.marks() >= 2) return std::nullopt;
  const Callers callers(strings, stacks);
  std::vector<LabelSpan> spans = growth_.spans();
  AllocationRange work = work_;
  for (const LabelSpan& one : spans) {
    if (one.count == 0 || !callers.is_in_forward(one.label)) continue;
    work.take(one.first);
    work.take(one.last);
  }
  std::erase_if(spans, [&](const LabelSpan& one) {
    const uint64_t length = one.last - one.first;
    // Before it runs, a model is built and loaded, layer by layer. Rounds after it has run are
    // those of an optimizer that meets its parameters.
    if (one.last < work.first || work.last < one.first + length / 2) return true;
    return one.label == 0 || one.count < kLeastRounds || callers.is_in_forward(one.label) ||
           growth_.allocations() - one.last > 2 * length / static_cast<uint64_t>(one.count - 1);
  });
  if (spans.empty()) return std::nullopt;
  const auto length = [](const LabelSpan& one) { return one.last - one.first; };
  const auto longest = static_cast<double>(length(*std::ranges::max_element(spans, {}, length)));
  std::erase_if(spans, [&](const LabelSpan& one) {
    return static_cast<double>(length(one)) < kMostlyAll * longest;
  });
  return std::ranges::min_element(spans, {}, &LabelSpan::count)->label;
}

std::optional<Growth> Analysis::find_growth(const std::vector<std::string>& strings,
                                            const Stacks& stacks, int64_t capacity_bytes) const {
  // Rounds in which nothing is freed are not work, but the loading of data.
  if (round_label_ && 4 * growth_.marks_with_frees() < 3 * growth_.marks()) return std::nullopt;
  std::vector<GrowingLabel> labels = growth_.growing();
  drop_numbers(labels, capacity_bytes);
  if (labels.empty()) return std::nullopt;
  const Callers callers(strings, stacks);
  const auto text_of = [&](uint32_t label) {
    return label < strings.size() ? strings[label] : std::string();
  };
  const auto largest = std::ranges::max_element(
      labels, {}, [](const GrowingLabel& one) { return one.rise.bytes_per_moment; });
  const auto settled = std::min<size_t>(mark_numbers_.size() - 1, kSettlingSteps);
  const auto first = static_cast<size_t>(std::max<int64_t>(0, largest->rise.first - 2));
  Growth growth;
  growth.bytes_per_step = rate_of(labels);
  growth.every = common_distance(labels, growth.bytes_per_step);
  growth.from_step = mark_numbers_[std::max(settled, first)];
  growth.last_step = mark_numbers_.back();
  if (round_label_) growth.round = text_of(*round_label_);
  std::map<std::pair<std::string, std::string>, GrowingPlace> places;
  for (const GrowingLabel& one : labels) {
    const std::string label = text_of(one.label), caller = callers.caller_of(one.label);
    GrowingPlace& place = places[{label, caller}];
    place.label = label;
    place.caller = caller;
    if (place.bytes_per_step <= one.rise.bytes_per_moment) {
      place.category = one.category;
      place.is_replaced = one.is_replaced;
    }
    place.bytes_per_step += one.rise.bytes_per_moment;
  }
  for (auto& [key, place] : places) growth.places.push_back(std::move(place));
  std::ranges::stable_sort(growth.places, std::greater(), &GrowingPlace::bytes_per_step);
  return growth;
}

void RankReport::take_outside(int64_t outside_bytes) {
  if (given_back) given_back->others_bytes = std::max(given_back->others_bytes, outside_bytes);
  if (!growth) return;
  growth->full_after_steps = std::nullopt;
  if (header.capacity_bytes <= 0 || out_of_memory_count > 0) return;
  const bool has_step = growth->round.empty() && !steps.empty();
  const int64_t reserved = has_step ? steps.back().bytes[static_cast<size_t>(Space::segment)]
                                    : reserved_peak_bytes().value_or(0);
  const int64_t left = std::max<int64_t>(0, header.capacity_bytes - outside_bytes - reserved);
  growth->full_after_steps =
      growth->last_step + 1 + std::llround(static_cast<double>(left) / growth->bytes_per_step);
}

}  // namespace shardlens::profiler
