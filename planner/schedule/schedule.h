// The order of a training step, as data. Built once from (model spec, strategy) by build_schedule;
// the runtime executes it, the planner simulates it, the profiler tags what it records with its
// action ids. No other place decides in which order ranks gather, compute, reduce and free.
//
// A schedule holds order, streams, waits, slots and bytes. It never holds durations, allocator
// rounding or kernel workspace: those are models, and live elsewhere in the planner.
//
// [Note: groups, buckets and slots]
// A *group* is gathered together. It is a list of *buckets*, each of one dtype, in the order in
// which backward finishes them (falling order of use). In a bucket every parameter starts at a
// multiple of kAlignment elements and the end is padded to shards x kAlignment, so rank r of the
// shard group owns the r-th equal range. A *slot* is a buffer that the schedule assigns like a
// register and the runtime allocates once, but for G (Slot::lasts):
//   U  unsharded parameters of one group, its buckets one after the other  [sum of bucket numels]
//   R  gradients of one bucket; the reduction leaves this rank's in its own range   [bucket numel]
//   G  gradient shard of one bucket, where R does not wait for its step  [bucket numel / shards]
//   X  receive buffer of a communicator that needs one (gloo)              [bucket numel]
//   K  a rank's part of a group that fewer ranks keep after forward  [sum of numels / their count]
//   A  gradient shard summed over microbatches                       [bucket numel / shards]
//   F  a gradient in fp32, for one optimizer step                    [bucket numel / shards]
//   N  sum of squares of all gradients: for clipping and loss scaling         [1]
//   M  masters of one bucket that visit the device for their step    [bucket numel / shards]
// U and K have the parameters' dtype, R, G and X that of the reduction, the others are fp32.
// CAST_SHARD copies a rank's fp32 masters (or its part K) into its range of U, ALL_GATHER brings
// the others' ranges. Where neither is needed (whole parameters in fp32) there is no U, and the
// weights are the masters themselves. Where replicas hold the same range, ALL_REDUCE follows on G.
//
// [Note: a step of two blocks]
// These lines are from the step of a `transformer` with two blocks, of width 64, on two ranks, as
// `plan --text` prints them. Blocks use the unsharded slots U0 and U1 in turn:
//  0 CAST_SHARD group=embed stream=gather writes=U0 bytes=12800
//  1 ALL_GATHER group=embed stream=gather channel=gather writes=U0 bytes=12800
//  5 FORWARD unit=embed group=embed stream=main reads=U0 waits=1
//  6 RESHARD group=embed stream=main writes=U0
//  7 CAST_SHARD group=block1 stream=gather writes=U0 waits=6 bytes=75008
//  8 ALL_GATHER group=block1 stream=gather channel=gather writes=U0 bytes=75008
//  9 FORWARD unit=attention0 group=block0 stream=main reads=U1 waits=3
// 14 FORWARD unit=attention1 group=block1 stream=main reads=U0 waits=8
// 26 BACKWARD unit=mlp1 group=block1 bucket=0 stream=main reads=U1 writes=R1 waits=18
// 27 REDUCE_SCATTER group=block1 bucket=0 stream=reduce channel=reduce reads=R1 writes=R1 waits=26
// 31 OPTIMIZER_STEP group=block1 bucket=0 stream=main reads=R1 waits=27
// 32 BACKWARD unit=mlp1 group=block1 bucket=2 stream=main reads=U1 writes=R1
// So a slot lives like U0 from action 6 on:
//   1. It is free when RESHARD says so; the next writer's stream waits for that (7, waits=6).
//   2. It is written: CAST_SHARD puts this rank's range there, ALL_GATHER brings the others'.
//   3. It is read by units whose first action waits for the gather (14, waits=8). An action of the
//      same stream waits for nothing, since a stream is done in order.
//   4. It is free again after the group's RESHARD (16).
// R1 takes gradients (26), is reduced in place (27), stepped (31), and then takes the next bucket's
// (32): at most two buckets of gradients exist at once.
//
// [Note: offload]
// State that --offload keeps on the host is in pinned memory. If the parameters have another dtype,
// each fp32 master has a copy in that dtype, which CAST_SHARD on the host stream renews after the
// step. `params` and `all` gather with H2D from there straight into this rank's range of U,
// with no copy on the device in between; under `optimizer` the device has a shard of its own, which
// H2D renews at the end of the step. Under `optimizer` and `all` D2H brings each reduced gradient
// to a G on the host, and the host stream sums, clips and steps there while backward goes on; under
// `params` H2D and D2H take each bucket's masters to M and back. The norm of gradients is reduced
// on the device; D2H of N brings the host's steps what they need.
//
// [Note: backward in segments]
// Two reduce slots serve any number of buckets, so a unit whose gradients fill several buckets
// runs its backward in segments: BACKWARD unit=attention3 bucket=1 means "until the gradients
// which this unit gives to bucket 1 are in its slot". The actions between two segments of one unit
// run while autograd is inside that unit.
//
// [Note: microbatches]
// A step may run several microbatches before it changes the weights. With sync every, each is
// reduced, and ACCUMULATE adds its shard to A; a bucket that no rank shares (whole, or one shard)
// is summed in its R, where the mean over ranks of sum and new gradient is the sum of the means.
// With sync last every bucket is summed in an R of its own and reduced once.
//
// From some microbatch on, all but the last ones are the same. If there are many, their actions
// are in the list once, in the round of one or more microbatches that Schedule::repetition names
// (repetition.cpp finds it). Ids count all actions of the step, repeated ones too: to walk a step,
// go from 0 to `size()`, and ask for `action(id)` and `waits_of(id)`.
//
// [Note: holding gradients]
// Clipping and loss scaling must know all gradients before the first step. CLIP of a bucket adds
// the sum of its squares to N, ALL_REDUCE averages N over the shards (what is not finite stays so),
// the CLIP without a bucket takes the factor from it, and then all OPTIMIZER_STEPs follow.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "models/spec.h"
#include "planner/config/strategy.h"
#include "profiler/recording/profile.h"

namespace shardlens::planner {

constexpr int64_t kAlignment = 16;  // elements

/// The dtype of masters, moments, and gradients as the optimizer takes them.
constexpr DType kMasterDType = DType::fp32;

enum class ActionKind {
  load_input,
  h2d,
  d2h,
  cast_shard,
  all_gather,
  reshard,
  forward,
  loss,
  recompute,
  backward,
  reduce_scatter,
  all_reduce,
  accumulate,
  clip,
  optimizer_step,
};
constexpr auto choice_words(ActionKind) {
  return words("LOAD_INPUT", "H2D", "D2H", "CAST_SHARD", "ALL_GATHER", "RESHARD", "FORWARD", "LOSS",
               "RECOMPUTE", "BACKWARD", "REDUCE_SCATTER", "ALL_REDUCE", "ACCUMULATE", "CLIP",
               "OPTIMIZER_STEP");
}

/// A queue of actions. `host` is not a stream of the device: the CPU does its actions one after the
/// other.
enum class Stream { main, gather, reduce, replicate, h2d, d2h, host };
constexpr int kStreams = 7;

/// The communicator that an action uses. Gathers do not queue behind reductions; `regather` joins
/// the ranks that keep a group after forward, `replicate` those that hold the same range.
enum class Channel { none, gather, reduce, regather, replicate };

/// The ranks that one channel joins with a given rank: `size` of them, `stride` apart. Two sets of
/// one channel share no rank, and each rank is in one set.
struct RankSet {
  int size = 1;
  int stride = 1;

  int index_of(int rank) const { return rank / stride % size; }
  int first_of(int rank) const { return rank - index_of(rank) * stride; }
  int member(int rank, int index) const { return first_of(rank) + index * stride; }
  bool operator==(const RankSet&) const = default;
};

enum class SlotKind {
  unsharded,
  reduce,
  gradient_shard,
  receive,
  kept_shard,
  gradient_sum,
  master_gradient,
  norm,
  master,
};

struct Slot {
  SlotKind kind{};
  int index = 0;  // within its kind: U0, U1, R0, ...
  DType dtype{};
  int64_t bytes = 0;
  bool on_host = false;  // although the rank has a device

  std::string name() const;
  /// True if the slot keeps its memory. False: it has memory only between its first write in a step
  /// and its last read (SlotLives). Gradients that are held take the place of activations that way,
  /// and use no memory while activations are at their peak.
  bool lasts() const { return on_host || kind != SlotKind::gradient_shard; }
  bool operator==(const Slot&) const = default;
};

/// The place of one parameter in its bucket; offset and numel in elements.
struct BucketEntry {
  int parameter = 0;  // index into ModelSpec::parameters
  int64_t offset = 0;
  int64_t numel = 0;

  bool operator==(const BucketEntry&) const = default;
};

struct Bucket {
  DType dtype{};  // of the unsharded parameters
  std::vector<BucketEntry> entries{};
  int64_t numel = 0;    // with padding; a multiple of shards x kAlignment
  bool whole = false;   // every rank has the whole bucket, whatever is sharded
  bool frozen = false;  // its parameters get no gradient

  int64_t parameter_bytes() const { return numel * bytes_of(dtype); }
  /// Returns how many gradients a unit's backward gives to the bucket.
  int gradients_of(const models::UnitSpec& unit) const;
  bool operator==(const Bucket&) const = default;
};

struct Group {
  std::string name;
  std::vector<Bucket> buckets;

  int64_t numel() const;
  int64_t parameter_bytes() const;
  /// Returns the bytes of the group that `shards` ranks share: those of its buckets that are not
  /// whole.
  int64_t shared_bytes() const;
  /// Returns where a bucket begins in the group's unsharded slot; for `buckets.size()`, where the
  /// last one ends.
  int64_t bucket_offset_bytes(int bucket) const;
  bool operator==(const Group&) const = default;
};

/// One thing that the runtime does. Its id is its place in the step. An action starts after the one
/// before it on the same stream and after all of `waits` (ids, each smaller than its own).
struct Action {
  ActionKind kind{};
  int unit = -1;    // index into Schedule::units
  int group = -1;   // index into Schedule::groups
  int bucket = -1;  // within the group
  int microbatch = 0;
  Stream stream = Stream::main;
  Channel channel = Channel::none;
  std::vector<int> waits;
  std::vector<int> reads;   // indices into Schedule::slots
  std::vector<int> writes;  // likewise
  int64_t bytes = 0;        // what this rank contributes to the collective or copy

  bool operator==(const Action&) const = default;
};

/// The part of a step that is done several times, one after the other: actions [begin, end) of the
/// list. The waits and microbatch of such an action are written for the first round; each later
/// round adds the round's length to the waits and its microbatches to the microbatch.
struct Repetition {
  int begin = 0;
  int end = 0;
  int times = 1;
  int microbatches = 0;  // in a round

  int length() const { return end - begin; }
  /// Returns how many actions the step has more than the list.
  int repeated_actions() const { return (times - 1) * length(); }
  /// Returns the round of an action, from 0: 0 before the first round, the last round behind it.
  int round_of(int id) const;
  /// Returns the place in the list of the action with this id.
  int index_of(int id) const;
  /// Returns the id, in the first round, of the action at this place in the list.
  int first_id_of(int index) const { return index < end ? index : index + repeated_actions(); }
  bool is_in_round(int index) const { return index >= begin && index < end; }
  bool operator==(const Repetition&) const = default;
};

/// The times at which slots that do not last have memory, by place in the list of actions.
/// begin[i]: slots that take memory when action i ends, out of what the main stream has released; i
/// is the last action of the main stream before the slot's first write. end[i]: slots that give
/// their memory back when action i, their last reader, ends.
struct SlotLives {
  std::vector<std::vector<int>> begin;
  std::vector<std::vector<int>> end;
};

/// Says how a pass runs one unit.
struct UnitPlan {
  bool trains = false;       // has a backward
  bool recomputed = false;   // its output is not kept
  bool begins_run = false;   // of units that are computed again: its input is kept
  bool passes_back = false;  // its input's gradient is wanted
};

struct Schedule {
  StrategyKind strategy{};
  int world_size = 1;
  int shards = 1;           // ranks that share one copy of the state; neighbours
  int regather_shards = 0;  // ranks that share a group kept after forward; neighbours; 0: none is
  int microbatches = 1;
  DType reduce_dtype = DType::fp32;
  Offload offload = Offload::none;
  std::vector<std::string> units;
  std::vector<Group> groups;
  std::vector<Slot> slots;
  std::vector<Action> actions;
  Repetition repetition{};

  /// Returns the number of actions in a step, including all rounds of the repetition.
  int size() const { return static_cast<int>(actions.size()) + repetition.repeated_actions(); }
  /// Returns an action as it is in the list; ids are below `size()`.
  const Action& action(int id) const {
    return actions[static_cast<size_t>(repetition.index_of(id))];
  }
  std::vector<int> waits_of(int id) const;
  int microbatch_of(int id) const;
  /// Returns the schedule with at most `most_rounds` rounds, all of which are in its list; its
  /// `microbatches` are fewer accordingly.
  Schedule unrolled(int most_rounds) const;

  /// Returns how many ranks hold the same range of the state.
  int replicas() const { return world_size / shards; }
  RankSet ranks_of(Channel channel) const;
  /// Lists the channels that every rank joins: always `reduce`, since losses are summed over it,
  /// and the others if an action uses them. They are in the order of joining, which all ranks must
  /// share because each joining waits for peers.
  std::vector<Channel> channels() const;
  /// Returns how many ranks share a bucket.
  int shards_of(const Bucket& bucket) const { return bucket.whole ? 1 : shards; }
  /// Returns the bytes of a whole bucket's gradients, in the reduction's dtype. `shard_numel`
  /// returns how many elements of a bucket a rank holds after the reduction.
  int64_t gradient_bytes(const Bucket& bucket) const;
  int64_t shard_numel(const Bucket& bucket) const { return bucket.numel / shards_of(bucket); }
  /// Returns how many bytes of a slot the action's group or bucket uses.
  int64_t used_bytes(const Action& action, int slot) const;
  const Bucket& bucket_of(const Action& action) const {
    return groups[static_cast<size_t>(action.group)].buckets[static_cast<size_t>(action.bucket)];
  }
  const Slot& slot(int index) const { return slots[static_cast<size_t>(index)]; }

  // These say which work the offload leaves to the host.
  bool gathers_from_host() const { return offload == Offload::params || offload == Offload::all; }
  bool steps_on_host() const { return offload == Offload::optimizer || offload == Offload::all; }

  SlotLives slot_lives() const;
  std::vector<UnitPlan> unit_plans() const;
  /// True, by group and bucket, if microbatches are summed outside the reduce slot.
  std::vector<std::vector<bool>> sums_apart() const;

  /// Returns the bytes that the offload keeps in a rank's host memory, with `moments` moments
  /// beside each master.
  int64_t host_bytes(int moments) const;

  /// True if the units read their parameters from unsharded slots, not from the masters.
  bool has_unsharded_slots() const;
  bool operator==(const Schedule&) const = default;
};

/// A training step, or only the forward pass (evaluation). Both have the same groups and units;
/// the slots of the second are the unsharded slots of the first.
enum class Pass { train, evaluate };

/// Builds and validates a schedule. Throws std::invalid_argument if the strategy does not fit the
/// model.
Schedule build_schedule(const models::ModelSpec& spec, const Strategy& strategy, Pass pass);

/// Throws std::logic_error naming the action if a rule is broken: every gather has its reshard,
/// every slot is written before it is read and free before it is written, nothing is used before
/// its wait, each bucket is reduced and stepped once.
void validate(const Schedule& schedule);

/// Writes one line per group, bucket, slot and action; `parse_schedule(to_text(s)) == s`.
std::string to_text(const Schedule& schedule);
/// Returns an action's line, as in "  4 BACKWARD unit=mlp3 group=block3 stream=main waits=2".
std::string action_to_text(const Schedule& schedule, int id);
/// Returns what an action does and to what, as in "BACKWARD unit=mlp3 group=block3 bucket=0": the
/// words of its line before its stream. Returns nothing if the schedule has no such action.
std::string action_words(const Schedule& schedule, int id);
/// Reads a schedule's text. Throws std::invalid_argument with the line number.
Schedule parse_schedule(std::string_view text);

/// Returns the category of a slot's memory, or of the memory that an action takes beside its slots.
profiler::Category category_of(SlotKind kind);
profiler::Category category_of(ActionKind kind);

}  // namespace shardlens::planner
