// Defines NCCL's calls that move data: their arguments are checked as NCCL checks them, the calls
// are recorded, and the checker (check_feed.h) learns what they read and write.
#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <set>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "profiler/null_device/checks/address_ranges.h"
#include "profiler/null_device/checks/check_feed.h"
#include "profiler/null_device/driver/work_feed.h"
#include "profiler/null_device/libraries/nccl_communicators.h"

namespace shardlens::profiler {

namespace {

/// The bytes of an element, indexed by ncclDataType_t.
constexpr std::array<size_t, 12> kElementBytes = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
/// The same numbers' types, of which only some have a name of their own.
constexpr std::array kTypes = {NumberType::int8,  NumberType::uint8,    NumberType::int32,
                               NumberType::int32, NumberType::int64,    NumberType::int64,
                               NumberType::fp16,  NumberType::fp32,     NumberType::fp64,
                               NumberType::bf16,  NumberType::fp8_e4m3, NumberType::fp8_e5m2};
static_assert(kTypes.size() == kElementBytes.size());
constexpr int kBuiltInReductions = 5;
constexpr int kOutOfRange = -2;

/// Holds the reductions that a program made.
class MadeReductions {
 public:
  int make() {
    const std::scoped_lock lock(mutex_);
    live_.insert(next_);
    return next_++;
  }
  bool destroy(int reduction) {
    const std::scoped_lock lock(mutex_);
    return live_.erase(reduction) == 1;
  }
  bool contain(int reduction) const {
    const std::scoped_lock lock(mutex_);
    return live_.contains(reduction);
  }

 private:
  mutable std::mutex mutex_;
  int next_ = kBuiltInReductions;
  std::set<int> live_;
};

MadeReductions& made_reductions() {
  static MadeReductions& instance = *new MadeReductions;
  return instance;
}

/// Says how much a call reads and writes, in elements.
struct Extent {
  size_t input_count = 0;
  size_t output_count = 0;
  // A call is in place if input[in_place_input] and output[in_place_output] are the same element.
  bool may_be_in_place = true;
  size_t in_place_input = 0;
  size_t in_place_output = 0;
};

struct EnqueuedCall {
  NcclCall call;
  AddressRange input;
  AddressRange output;
};

/// Holds the calling thread's group, whose calls start when the group ends.
struct Group {
  int depth = 0;
  bool has_calls = false;
  StubNcclResult error = kNcclSuccess;  // the first; it fails the group
  std::vector<EnqueuedCall> calls;
};

Group& group() {
  thread_local Group instance;
  return instance;
}

StubNcclResult fail(StubNcclResult error) {
  if (group().depth > 0 && group().error == kNcclSuccess) group().error = error;
  return error;
}

AddressRange range_of(const void* address, size_t bytes) {
  const auto begin = reinterpret_cast<uint64_t>(address);
  return {begin, begin + bytes};
}

void check_in_place(const EnqueuedCall& enqueued, const Extent& extent, size_t element_bytes) {
  if (!enqueued.input.overlaps(enqueued.output)) return;
  const uint64_t input = enqueued.input.begin + extent.in_place_input * element_bytes;
  const uint64_t output = enqueued.output.begin + extent.in_place_output * element_bytes;
  if (extent.may_be_in_place && input == output) return;
  std::ostringstream text;
  text << "wrong in-place layout: " << enqueued.call.function << " of " << enqueued.call.count
       << " elements by rank " << enqueued.call.rank << " of " << enqueued.call.ranks << " reads 0x"
       << std::hex << enqueued.input.begin << " and writes 0x" << enqueued.output.begin;
  check_feed->report(text.str());
}

void start(const EnqueuedCall& enqueued) {
  const NcclCall& call = enqueued.call;
  check_feed->nccl_called(call);
  check_feed->use(call.stream, call.input, enqueued.input.bytes(), false, call.function.data());
  check_feed->use(call.stream, call.output, enqueued.output.bytes(), true, call.function.data());
}

/// Reports calls of a group that overlap, because they have no order, even in one stream.
void check_overlaps(const std::vector<EnqueuedCall>& calls) {
  for (size_t later = 1; later < calls.size(); ++later) {
    const EnqueuedCall& b = calls[later];
    for (size_t earlier = 0; earlier < later; ++earlier) {
      const EnqueuedCall& a = calls[earlier];
      if (!a.output.overlaps(b.output) && !a.output.overlaps(b.input) &&
          !a.input.overlaps(b.output)) {
        continue;
      }
      std::ostringstream text;
      text << "race: " << a.call.function << " and " << b.call.function
           << " of one group overlap, writing 0x" << std::hex << a.output.begin << " and 0x"
           << b.output.begin;
      check_feed->report(text.str());
    }
  }
}

/// Checks a call's arguments; `call` then knows its communicator.
StubNcclResult check_arguments(const void* communicator, NcclCall& call) {
  StubCommunicator found;
  const StubNcclResult usable = Communicators::instance().find_usable(communicator, &found);
  if (usable != kNcclSuccess) return usable;
  if (call.dtype < 0 || call.dtype >= static_cast<int>(kElementBytes.size())) {
    return kNcclInvalidArgument;
  }
  if (call.reduction >= kBuiltInReductions && !made_reductions().contain(call.reduction)) {
    return kNcclInvalidArgument;
  }
  if (call.reduction == kOutOfRange || call.peer == kOutOfRange || call.peer >= found.ranks) {
    return kNcclInvalidArgument;
  }
  call.communicator = found.index;
  call.ranks = found.ranks;
  call.rank = found.rank;
  return kNcclSuccess;
}

CollectiveKind kind_of(std::string_view function) {
  constexpr std::array<std::string_view, 8> kFunctions = {
      "ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclReduce",
      "ncclBroadcast", "ncclAlltoAll",      "ncclSend",      "ncclRecv"};
  const auto found = std::ranges::find(kFunctions, function);
  check(found != kFunctions.end(), "NCCL: a call that is not one of the collectives");
  return static_cast<CollectiveKind>(found - kFunctions.begin());
}

/// Tells the observer of work about a call. Those of a group all start when it ends, and until then
/// nothing else is asked for.
void tell_call(const void* communicator, const NcclCall& call, const Extent& extent) {
  const bool joins = group().depth > 0 && std::exchange(group().has_calls, true);
  WorkObserver* const observer = work_observer();
  if (observer == nullptr) return;
  const auto dtype = static_cast<size_t>(call.dtype);
  const size_t count = std::max(extent.input_count, extent.output_count);
  observer->note_communicator(communicator, call.ranks, call.rank);
  observer->note(
      {.work = {.kind = WorkKind::collective,
                .collective = {.kind = kind_of(call.function),
                               .bytes = static_cast<int64_t>(count * kElementBytes[dtype]),
                               .type = kTypes[dtype],
                               .peer = call.peer,
                               .joins_previous = joins}},
       .name = call.function.data(),
       .stream = call.stream,
       .communicator = communicator});
}

/// Enqueues a call with checked arguments. In a group it starts at the group's end.
StubNcclResult enqueue(const void* communicator, NcclCall call, const Extent& extent) {
  tell_call(communicator, call, extent);
  if (check_feed == nullptr) return kNcclSuccess;
  const size_t element_bytes = kElementBytes[static_cast<size_t>(call.dtype)];
  call.in_group = group().depth > 0;
  EnqueuedCall enqueued{std::move(call), {}, {}};
  enqueued.input = range_of(enqueued.call.input, extent.input_count * element_bytes);
  enqueued.output = range_of(enqueued.call.output, extent.output_count * element_bytes);
  check_in_place(enqueued, extent, element_bytes);
  if (enqueued.call.in_group) {
    group().calls.push_back(std::move(enqueued));
  } else {
    start(enqueued);
  }
  return kNcclSuccess;
}

/// Checks and enqueues a call. `extent_of` is called once the call knows its communicator.
template <class ExtentOf>
StubNcclResult run(const void* communicator, NcclCall call, const ExtentOf& extent_of) {
  const StubNcclResult valid = check_arguments(communicator, call);
  return valid == kNcclSuccess ? enqueue(communicator, call, extent_of(call)) : fail(valid);
}

size_t ranks_of(const NcclCall& call) { return static_cast<size_t>(call.ranks); }
size_t rank_of(const NcclCall& call) { return static_cast<size_t>(call.rank); }

/// Returns a number that a caller passed. A passed -1 must not mean "none", as it does in NcclCall.
int passed_number(int number) { return number < 0 ? kOutOfRange : number; }

}  // namespace

}  // namespace shardlens::profiler

using namespace shardlens;
using namespace shardlens::profiler;  // most of the calls need its names

extern "C" {

int ncclAllGather(const void* input, void* output, size_t count, int dtype, void* communicator,
                  void* stream) {
  return run(communicator,
             {.function = "ncclAllGather",
              .count = count,
              .dtype = dtype,
              .input = input,
              .output = output,
              .stream = stream},
             [](const NcclCall& call) {
               return Extent{.input_count = call.count,
                             .output_count = ranks_of(call) * call.count,
                             .in_place_output = rank_of(call) * call.count};
             });
}

int ncclReduceScatter(const void* input, void* output, size_t count, int dtype, int reduction,
                      void* communicator, void* stream) {
  return run(communicator,
             {.function = "ncclReduceScatter",
              .count = count,
              .dtype = dtype,
              .reduction = passed_number(reduction),
              .input = input,
              .output = output,
              .stream = stream},
             [](const NcclCall& call) {
               return Extent{.input_count = ranks_of(call) * call.count,
                             .output_count = call.count,
                             .in_place_input = rank_of(call) * call.count};
             });
}

int ncclAllReduce(const void* input, void* output, size_t count, int dtype, int reduction,
                  void* communicator, void* stream) {
  return run(communicator,
             {.function = "ncclAllReduce",
              .count = count,
              .dtype = dtype,
              .reduction = passed_number(reduction),
              .input = input,
              .output = output,
              .stream = stream},
             [](const NcclCall& call) {
               return Extent{.input_count = call.count, .output_count = call.count};
             });
}

int ncclReduce(const void* input, void* output, size_t count, int dtype, int reduction, int root,
               void* communicator, void* stream) {
  return run(communicator,
             {.function = "ncclReduce",
              .count = count,
              .dtype = dtype,
              .reduction = passed_number(reduction),
              .peer = passed_number(root),
              .input = input,
              .output = output,
              .stream = stream},
             [](const NcclCall& call) {
               return Extent{.input_count = call.count,
                             .output_count = call.rank == call.peer ? call.count : 0};
             });
}

int ncclBroadcast(const void* input, void* output, size_t count, int dtype, int root,
                  void* communicator, void* stream) {
  return run(communicator,
             {.function = "ncclBroadcast",
              .count = count,
              .dtype = dtype,
              .peer = passed_number(root),
              .input = input,
              .output = output,
              .stream = stream},
             [](const NcclCall& call) {
               return Extent{.input_count = call.rank == call.peer ? call.count : 0,
                             .output_count = call.count};
             });
}

int ncclBcast(void* data, size_t count, int dtype, int root, void* communicator, void* stream) {
  return ncclBroadcast(data, data, count, dtype, root, communicator, stream);
}

int ncclAlltoAll(const void* input, void* output, size_t count, int dtype, void* communicator,
                 void* stream) {
  return run(communicator,
             {.function = "ncclAlltoAll",
              .count = count,
              .dtype = dtype,
              .input = input,
              .output = output,
              .stream = stream},
             [](const NcclCall& call) {
               const size_t total_count = ranks_of(call) * call.count;
               return Extent{.input_count = total_count,
                             .output_count = total_count,
                             .may_be_in_place = false};
             });
}

int ncclSend(const void* input, size_t count, int dtype, int peer, void* communicator,
             void* stream) {
  return run(communicator,
             {.function = "ncclSend",
              .count = count,
              .dtype = dtype,
              .peer = passed_number(peer),
              .input = input,
              .stream = stream},
             [](const NcclCall& call) { return Extent{.input_count = call.count}; });
}

int ncclRecv(void* output, size_t count, int dtype, int peer, void* communicator, void* stream) {
  return run(communicator,
             {.function = "ncclRecv",
              .count = count,
              .dtype = dtype,
              .peer = passed_number(peer),
              .output = output,
              .stream = stream},
             [](const NcclCall& call) { return Extent{.output_count = call.count}; });
}

int ncclRedOpCreatePreMulSum(int* reduction, void*, int, int, void* communicator) {
  StubCommunicator found;
  const StubNcclResult usable = Communicators::instance().find_usable(communicator, &found);
  if (usable == kNcclSuccess) *reduction = made_reductions().make();
  return usable;
}

int ncclRedOpDestroy(int reduction, void*) {
  return made_reductions().destroy(reduction) ? kNcclSuccess : kNcclInvalidArgument;
}

int ncclGroupStart() {
  ++group().depth;
  return kNcclSuccess;
}

int ncclGroupEnd() {
  if (group().depth == 0) return kNcclInvalidUsage;
  if (--group().depth > 0) return kNcclSuccess;
  const Group ended = std::exchange(group(), {});
  if (ended.error != kNcclSuccess || check_feed == nullptr) return ended.error;
  check_overlaps(ended.calls);
  for (const EnqueuedCall& enqueued : ended.calls) start(enqueued);
  return kNcclSuccess;
}

}  // extern "C"
