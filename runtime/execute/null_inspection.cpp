#include "runtime/execute/null_inspection.h"

#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/comm/device/nccl.h"

namespace shardlens::runtime {

namespace {

using planner::Action;
using planner::ActionKind;
using planner::Bucket;
using planner::Schedule;

/// Follows the allocator. LibTorch keeps trackers forever, so one is attached for the life of the
/// process.
void follow_allocator(profiler::NullChecks& checks) {
  using c10::cuda::CUDACachingAllocator::TraceEntry;
  static const bool followed = [&checks] {
    c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([&checks](const TraceEntry& e) {
      const auto* address = reinterpret_cast<const void*>(e.addr_);
      if (e.action_ == TraceEntry::ALLOC) checks.note_allocation(e.stream_, address, e.size_);
      if (e.action_ == TraceEntry::FREE_COMPLETED) checks.note_free(e.stream_, address, e.size_);
    });
    return true;
  }();
  static_cast<void>(followed);
}

/// Holds one call that a schedule implies, in NCCL's terms.
struct ExpectedCall {
  std::string_view function;
  int64_t count = 0;
  NcclType dtype{};
  void* stream = nullptr;
  int ranks = 1;

  bool is(const profiler::NcclCall& call) const {
    return call.function == function && call.count == static_cast<size_t>(count) &&
           call.dtype == static_cast<int>(dtype) && call.stream == stream && call.ranks == ranks;
  }
};

/// Returns an action's line in the schedule, without its columns.
std::string schedule_line(const Schedule& schedule, int id) {
  std::string words = planner::action_to_text(schedule, id);
  const auto both_blank = [](char a, char b) { return a == ' ' && b == ' '; };
  words.erase(std::unique(words.begin(), words.end(), both_blank), words.end());
  return "action" + (words.starts_with(' ') ? words : " " + words);
}

std::string call_text(std::string_view function, int64_t count, int dtype) {
  return fmt::format("{} of {} elements of dtype {}", function, count, dtype);
}

void expect_gather(std::vector<ExpectedCall>& calls, const Schedule& schedule, const Action& action,
                   void* stream) {
  const int shards = schedule.ranks_of(action.channel).size;
  for (const Bucket& bucket : schedule.groups[action.group].buckets) {
    if (bucket.whole) continue;
    calls.push_back(
        {"ncclAllGather", bucket.numel / shards, nccl_type(bucket.dtype), stream, shards});
  }
}

ExpectedCall expected_reduction(const Schedule& schedule, const Action& action, void* stream) {
  const int ranks = schedule.ranks_of(action.channel).size;
  if (action.group < 0)
    return {"ncclAllReduce", 1, nccl_type(planner::kMasterDType), stream, ranks};
  const NcclType dtype = nccl_type(schedule.reduce_dtype);
  const Bucket& bucket = schedule.bucket_of(action);
  if (action.kind == ActionKind::reduce_scatter) {
    return {"ncclReduceScatter", schedule.shard_numel(bucket), dtype, stream, ranks};
  }
  return {"ncclAllReduce", schedule.shard_numel(bucket), dtype, stream, ranks};
}

std::vector<ExpectedCall> expected_calls(const Schedule& schedule, const Streams& streams) {
  std::vector<ExpectedCall> calls;
  for (int id = 0; id < schedule.size(); ++id) {
    const Action& action = schedule.action(id);
    if (action.channel == planner::Channel::none) continue;
    void* const stream = streams.handle(action.stream);
    if (action.kind == ActionKind::all_gather) {
      expect_gather(calls, schedule, action, stream);
    } else {
      calls.push_back(expected_reduction(schedule, action, stream));
    }
  }
  return calls;
}

}  // namespace

NullInspection::NullInspection(profiler::NullChecks& checks, RankState& state,
                               const Streams& streams, bool by_nccl)
    : checks_(checks), state_(state), streams_(streams), by_nccl_(by_nccl) {
  follow_allocator(checks);
}

void NullInspection::enter(const Schedule& schedule, int64_t step, int id) {
  const Action& action = schedule.action(id);
  what_ = fmt::format("{} of step {}", schedule_line(schedule, id), step);
  for (const int slot : action.reads) use_slot(schedule, action, slot, false);
  for (const int slot : action.writes) use_slot(schedule, action, slot, true);
  use_state(schedule, action);
}

void NullInspection::use(const Action& action, const at::Tensor& tensor, bool writes) {
  checks_.use(streams_.handle(action.stream), tensor.data_ptr(), tensor.nbytes(), writes,
              what_.c_str());
}

void NullInspection::use_slot(const Schedule& schedule, const Action& action, int index,
                              bool writes) {
  const bool is_reduced = schedule.slot(index).kind == planner::SlotKind::reduce &&
                          action.kind != ActionKind::backward &&
                          action.kind != ActionKind::reduce_scatter;
  const void* const address = is_reduced
                                  ? state_.shard_in(action.group, action.bucket, index).data_ptr()
                                  : state_.slot(index).data_ptr();
  checks_.use(streams_.handle(action.stream), address,
              static_cast<size_t>(schedule.used_bytes(action, index)), writes, what_.c_str());
}

void NullInspection::use_state(const Schedule& schedule, const Action& action) {
  if (action.kind == ActionKind::optimizer_step) {
    const BucketState& bucket = state_.bucket(action.group, action.bucket);
    use(action, bucket.master, true);
    for (const at::Tensor& moment : bucket.moments) use(action, moment, true);
  }
  const bool renews = action.kind == ActionKind::h2d && action.bucket >= 0 && action.writes.empty();
  if (renews) use(action, state_.bucket(action.group, action.bucket).parameters, true);
  const bool reads_parameters =
      (action.kind == ActionKind::cast_shard && action.bucket < 0) ||
      (action.unit >= 0 && action.group >= 0 && !schedule.has_unsharded_slots());
  if (!reads_parameters) return;
  const auto buckets = static_cast<int>(schedule.groups[action.group].buckets.size());
  for (int i = 0; i < buckets; ++i) use(action, state_.bucket(action.group, i).parameters, false);
}

void NullInspection::end_pass(const Schedule& schedule) {
  std::vector<profiler::NcclCall> calls = checks_.take_nccl_calls();
  if (!by_nccl_) return;
  // Sums of metrics are not part of a schedule.
  std::erase_if(calls, [](const profiler::NcclCall& call) {
    return call.dtype == static_cast<int>(NcclType::fp64);
  });
  const std::vector<ExpectedCall> expected = expected_calls(schedule, streams_);
  if (calls.size() != expected.size()) {
    faults_.push_back(fmt::format("NCCL was called {} times where the schedule has {} collectives",
                                  calls.size(), expected.size()));
  }
  for (size_t i = 0; i < std::min(calls.size(), expected.size()); ++i) {
    const profiler::NcclCall& call = calls[i];
    if (expected[i].is(call)) continue;
    faults_.push_back(fmt::format(
        "NCCL call {} is {} over {} ranks where the schedule has {} over {}", i,
        call_text(call.function, static_cast<int64_t>(call.count), call.dtype), call.ranks,
        call_text(expected[i].function, expected[i].count, static_cast<int>(expected[i].dtype)),
        expected[i].ranks));
  }
}

std::vector<std::string> NullInspection::take_faults() {
  std::vector<std::string> faults = checks_.take_findings();
  faults.insert(faults.end(), faults_.begin(), faults_.end());
  faults_.clear();
  return faults;
}

}  // namespace shardlens::runtime
