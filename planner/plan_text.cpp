#include "planner/plan_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "base/units.h"
#include "planner/cost/planned_time.h"
#include "planner/time/time_report.h"

namespace shardlens::planner {

namespace {

std::string place_of(const PlanMoment& moment) {
  std::string text(to_string(moment.phase));
  if (moment.step >= 0) text += fmt::format(", step {}", moment.step);
  if (!moment.action_text.empty()) text += fmt::format(", {}", moment.action_text);
  return text;
}

std::string verdict_text(const Plan& plan) {
  std::string text = verdict_line(plan) + "\n";
  if (plan.verdict != Verdict::does_not_fit || !plan.failure) return text;
  const PlannedTensor& wanted = plan.failure->wanted;
  return text + fmt::format("  fails at {}: no {} for {} {}\n", place_of(plan.failure->moment),
                            bytes_text(wanted.bytes), to_string(wanted.category), wanted.label);
}

/// Names the version of PyTorch if it is another one than this build's.
std::string torch_text(const Plan& plan) {
  const bool is_own = plan.torch == &models::own_torch_rules();
  return is_own ? "" : fmt::format(", PyTorch {}", plan.torch->version);
}

std::string expandable_text(const Plan& plan) {
  if (!plan.expandable_segments_fit) return {};
  return fmt::format("  with PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: {}, would take {}\n",
                     *plan.expandable_segments_fit ? "it fits" : "it does not fit either",
                     bytes_text(plan.expandable_device_bytes));
}

std::string cold_outside_text(const OutsideMemory& outside) {
  const int64_t cuda = outside.context_bytes;
  const int64_t least = cuda - outside.below_bytes, most = cuda + outside.above_bytes;
  const std::string band =
      least < most ? fmt::format(", from {} to {}", bytes_text(least), bytes_text(most)) : "";
  return fmt::format(
      "  outside the allocator: {} (CUDA {}{}, NCCL {} in {}; cold: published "
      "figures; --calibration FILE.slp measures, --beside SIZE replaces)\n{}",
      bytes_text(outside.total_bytes()), bytes_text(cuda), band, bytes_text(outside.nccl_bytes),
      outside.communicators,
      outside.doubt.empty() ? "" : fmt::format("  in doubt: {}\n", outside.doubt));
}

/// Returns a line if addresses change the peaks.
std::string bands_line(const Plan& plan) {
  const std::string text = plan.bands ? profiler::bands_text(*plan.bands) : "";
  return text.empty() ? text : "  by the driver's addresses: " + text + "\n";
}

std::string verdict_doubts_text(const Plan& plan) {
  std::string text;
  for (const std::string& doubt : plan.verdict_doubts) text += "  in doubt: " + doubt + "\n";
  return text;
}

std::string outside_text(const Plan& plan) {
  if (plan.gpu.empty()) return {};
  if (plan.device.kind != DeviceKind::cuda) {
    return "  outside the allocator: nothing, as on a null device; --gpu NAME adds it\n";
  }
  const OutsideMemory& outside = plan.outside;
  const std::string total = bytes_text(outside.total_bytes());
  if (outside.given_bytes) return fmt::format("  outside the allocator: {} (--beside)\n", total);
  if (!outside.is_calibrated()) return cold_outside_text(outside);
  return fmt::format(
      "  outside the allocator: {} (context {}, modules {}, NCCL {} in {}; calibrated by {})\n",
      total, bytes_text(outside.context_bytes), bytes_text(outside.modules_bytes),
      bytes_text(outside.nccl_bytes), outside.communicators, outside.source);
}

std::string categories_text(const PlannedPeak& peak) {
  std::vector<size_t> order(peak.category_bytes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(
      order, [&](size_t a, size_t b) { return peak.category_bytes[a] > peak.category_bytes[b]; });
  std::string text;
  for (const size_t category : order) {
    const int64_t bytes = peak.category_bytes[category];
    if (bytes == 0) continue;
    text += fmt::format("  {:>12}  {}\n", bytes_text(bytes), kWords<profiler::Category>[category]);
  }
  return text;
}

std::string largest_text(const PlannedPeak& peak) {
  std::string text;
  for (const PlannedTensor& tensor : peak.largest) {
    text += fmt::format("  {:>12}  {}  {}\n", bytes_text(tensor.bytes), to_string(tensor.category),
                        tensor.label);
  }
  return text;
}

std::string change_of_time(const WhatIf& what_if) {
  const auto percent = [](double ratio) { return (ratio - 1) * 100; };
  return fmt::format("{:+.0f} % step time, {:+.0f} % compute", percent(what_if.step_time_ratio),
                     percent(what_if.compute_time_ratio));
}

std::string what_ifs_text(const Plan& plan) {
  if (plan.what_ifs.empty()) return {};
  std::string text = "\nwhat would take less\n";
  for (const WhatIf& what_if : plan.what_ifs) {
    text += fmt::format("  {:>12}  {:<50} {}\n", bytes_text(what_if.device_bytes), what_if.change,
                        change_of_time(what_if));
  }
  return text + planned_basis_text(plan.step_time.has_value());
}

std::string solution_text(const Plan& plan) {
  if (!plan.solution) return {};
  const auto& [what, value] = *plan.solution;
  if (value.empty()) return fmt::format("no {} fits; the nearest:\n\n", what);
  const char* words = "largest batch";
  if (what == "layers") words = "largest number of layers";
  if (what == "world") words = "smallest number of ranks";
  if (what == "gpu") words = "smallest GPU";
  return fmt::format("the {} that fits: {}\n\n", words, value);
}

}  // namespace

std::string verdict_line(const Plan& plan) {
  const std::string capacity = bytes_text(plan.capacity_bytes.value_or(0));
  switch (plan.verdict) {
    case Verdict::fits:
      return fmt::format("fits: {} of {}, {} free", bytes_text(plan.device_bytes), capacity,
                         bytes_text(plan.headroom_bytes.value_or(0)));
    case Verdict::fits_with_retries:
      return fmt::format(
          "fits with {} retries, each a stall: without them it takes {}, but there are {}",
          plan.retries, bytes_text(plan.least_fast_bytes), capacity);
    case Verdict::does_not_fit:
      return fmt::format("does not fit: takes {} or more, but there are {}",
                         bytes_text(plan.least_any_bytes), capacity);
  }
  unreachable("verdict out of range");
}

std::string plan_text(const Plan& plan) {
  const int64_t ranks = plan.ranks.empty() ? 1 : plan.ranks.front().count;
  std::string text = solution_text(plan);
  text += fmt::format("{}: {} parameters, {} on {} {}, batch {}, {}{}\n", plan.model,
                      plan.parameters, to_string(plan.config.strategy), ranks,
                      ranks == 1 ? "rank" : "ranks, all alike", plan.config.batch,
                      plan.gpu.empty() ? text_of(plan.device) : plan.gpu_name, torch_text(plan));
  text +=
      verdict_text(plan) + verdict_doubts_text(plan) + expandable_text(plan) + outside_text(plan);
  text +=
      fmt::format("  peak: {} allocated, {} reserved; steps alone {}, {}; kept between steps {}\n",
                  bytes_text(plan.peak.allocated_bytes), bytes_text(plan.peak.reserved_bytes),
                  bytes_text(plan.step_peak.allocated_bytes),
                  bytes_text(plan.step_peak.reserved_bytes), bytes_text(plan.static_bytes));
  text += bands_line(plan);
  text += fmt::format("  least memory: {} without retries, {} with\n",
                      bytes_text(plan.least_fast_bytes), bytes_text(plan.least_any_bytes));
  if (plan.pinned_bytes + plan.host_bytes > 0) {
    text += fmt::format("  host memory: {} pinned, {} other\n", bytes_text(plan.pinned_bytes),
                        bytes_text(plan.host_bytes));
  }
  if (plan.step_time) text += step_time_text(*plan.step_time, find_gpu(plan.gpu));
  text += fmt::format("\nat the peak: {}\n", place_of(plan.at_peak.moment));
  text += categories_text(plan.at_peak);
  text += "\nlargest tensors at the peak\n" + largest_text(plan.at_peak);
  return text + what_ifs_text(plan);
}

}  // namespace shardlens::planner
