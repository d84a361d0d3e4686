// Defines what a recording of one rank holds: events in the order in which they happened. The
// recorder, the planner's predictions, the reader and the viewer all use these words.
//
// Bytes are counted in *spaces*. `device` and `host` count what LibTorch's allocators gave to
// tensors, `pinned` what its pinned host allocator gave, `segment` what its caching allocator
// reserved from the driver (with a label if the memory was mapped into an expandable segment),
// `driver` what the driver gave to any library in the process. Spaces overlap (a tensor is in a
// segment, and a segment is the driver's memory), so totals are taken in one space at a time.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/choice.h"
#include "profiler/recording/judgement.h"

namespace shardlens::profiler {

/// The use of an allocation, which the allocating code declares; it is never guessed.
enum class Category : uint8_t {
  parameter_shard,
  gradient_shard,
  optimizer_state,
  unsharded_parameter,
  reduce_buffer,
  gradient,
  activation,
  input,
  workspace,
  communication,
  checkpoint_staging,
  other,
  parameter_copy,  // last, since its number is newer
};
constexpr int kCategories = 13;
constexpr auto choice_words(Category) {
  return words("parameter_shard", "gradient_shard", "optimizer_state", "unsharded_parameter",
               "reduce_buffer", "gradient", "activation", "input", "workspace", "communication",
               "checkpoint_staging", "other", "parameter_copy");
}
static_assert(kWords<Category>.size() == kCategories);

/// Ends the label of an allocation whose size is an upper bound for its size on a GPU.
constexpr std::string_view kUpperBound = ", an upper bound";

/// A value in bytes for each category.
using CategoryBytes = std::array<int64_t, kCategories>;

/// Says what an allocation is for.
struct Purpose {
  Category category = Category::other;
  uint32_t label = 0;   // an index into the strings of the recording
  int32_t action = -1;  // of the current phase's schedule; -1: outside a pass
  uint32_t name = 0;    // of what it holds; 0: none, or not known yet
  uint32_t module =
      0;  // of a Python program, that makes it: "layers.11.mlp"; 0: none, or not known
};

enum class Space : uint8_t { device, host, pinned, segment, driver };
constexpr int kSpaces = 5;
constexpr auto choice_words(Space) {
  return words("device", "host", "pinned", "segment", "driver");
}
static_assert(kWords<Space>.size() == kSpaces);

enum class Phase : uint8_t { starting, training, evaluating, checkpointing, ending };
constexpr int kPhases = 5;
constexpr auto choice_words(Phase) {
  return words("starting", "training", "evaluating", "checkpointing", "ending");
}
static_assert(kWords<Phase>.size() == kPhases);

/// A part of a program that has no schedule of ours, such as a recorded Python program. It is the
/// `action` of action_begin and action_end in its recording (program_part() in events.h).
enum class ProgramPart : uint8_t {
  input,          // the program waits for its next batch
  forward,        // from the first allocation of a module's forward until backward is called
  backward,       //
  optimizer,      // an optimizer's step
  communication,  // the program asks for a collective
  checkpoint,     // a file is saved
};
constexpr int kProgramParts = 6;
constexpr auto choice_words(ProgramPart) {
  return words("input", "forward", "backward", "optimizer", "communication", "checkpoint");
}
static_assert(kWords<ProgramPart>.size() == kProgramParts);

enum class Counter : uint8_t {
  resident_host,
  device_used,    // by all processes on it, as the driver says
  device_total,   //
  loss,           // of a batch, not bytes
  device_before,  // used before this process had a context there
  device_start,   // used when the recording began, the context included
  pinned_held,    // what LibTorch's pinned host allocator holds of the driver's
  pinned_used,    // of that, given to tensors, in powers of two
  steps_before,   // not bytes: steps that ran before the recording began
  pinned_asked,   // what the living pinned tensors have asked for; follows a pinned_used
};
constexpr int kCounters = 10;
constexpr auto choice_words(Counter) {
  return words("resident_host", "device_used", "device_total", "loss", "device_before",
               "device_start", "pinned_held", "pinned_used", "steps_before", "pinned_asked");
}
static_assert(kWords<Counter>.size() == kCounters);

/// The kind of an event. The comment beside each kind explains the fields `address` and `value`.
enum class EventKind : uint8_t {
  alloc,          // address, value: bytes asked for
  free,           // address, value: bytes asked for, 0: unknown
  recategorise,   // address of a live block: its category from its allocation on, and as label,
                  // unless that is 0, the name of what it holds
  out_of_memory,  // address: bytes free on the device, value: bytes asked for
  phase,          // value: a Phase
  step,           // value: the step that begins, from 0
  action_begin,   // `action` of the schedule of the current phase, or else a ProgramPart
  action_end,     //
  counter,        // address: a Counter; value: bytes, or of a loss the bits of a double
  hold,           // address, value: a block the allocator keeps from others; 0: the last freed
  release,        // address of a held block: it is free
  module,         // label: the module that makes what the device's allocations from here on are;
                  // 0: none, or not known
};
constexpr int kEventKinds = 12;

/// [Note: held blocks]
/// A freed block that other streams still use is held until they are done: the recording has a
/// `free`, at once a `hold` with value 0, and later a `release`. A recording that begins late first
/// lists the blocks that exist: all segments, then for every used block a `hold` with the bytes
/// that it was given and its `alloc`, so that a BlockTracker knows the allocator's blocks from
/// there on.
struct Event {
  int64_t time_ns = 0;   // since the recording began
  uint64_t address = 0;  //
  int64_t value = 0;
  /// Index into Schedule::actions, or -1 outside a pass. Where memory of the space `segment` is
  /// allocated: the number of its private pool (CUDA graphs, torch.cuda.MemPool), or -1 without
  /// one.
  int32_t action = -1;
  uint32_t label = 0;   // index into Profile::strings: a parameter, a unit, a library; 0: none
  uint16_t stream = 0;  // in order of first appearance; 0 is the main stream
  EventKind kind{};
  Space space{};
  Category category = Category::other;

  bool operator==(const Event&) const = default;
};

/// The facts about a recording that its writer stores once, at the beginning.
struct Header {
  int32_t rank = 0;
  int32_t world_size = 1;
  std::string device;  // "cpu", "cuda", "null:h200"
  std::string gpu{};   // the driver's name for it; empty on a CPU
  int64_t capacity_bytes = 0;
  std::string notice{};           // what a reader must know, e.g. that values mean nothing
  std::string config{};           // config.json
  std::string train{};            // the schedule of a training step, as text
  std::string evaluate{};         // the schedule of an evaluation
  std::string libraries{};        // versions, one per line: "LibTorch 2.15.0"
  int64_t start_realtime_ns = 0;  // when time_ns was 0, since 1970

  /// True if a real GPU ran it, or was planned for.
  bool is_on_gpu() const { return device == "cuda"; }
  /// Returns the space of the run's tensors.
  Space space_of_tensors() const { return device == "cpu" ? Space::host : Space::device; }

  bool operator==(const Header&) const = default;
};

/// True if the recorded program cuts its parameters into shards. A program without a schedule of
/// ours may not, and a single rank never does.
inline bool has_shards(const Header& header) {
  return header.world_size > 1 && !header.train.empty();
}

/// Returns the category's name for people, in the terms of the program that was recorded:
/// "parameters" in place of "parameter_shard" if nothing is sharded.
constexpr std::string_view category_name(Category category, bool has_shards) {
  if (category == Category::parameter_shard && !has_shards) return "parameters";
  return to_string(category);
}

/// [Note: stacks]
/// A label belongs to one stack: the same place in a program has one label per call path that led
/// to it, all with the same text. So events need no extra field, and code that groups by text can
/// ignore stacks. Frames are shared: a stack is its innermost frame, and every frame names the one
/// that called it.
struct StackFrame {
  uint32_t caller = 0;    // index into Stacks::frames, below its own; 0: this is the outermost
  uint32_t file = 0;      // index into Profile::strings; 0: an operator, which has no file
  uint32_t function = 0;  // the same
  uint32_t line = 0;      // 0: unknown

  bool operator==(const StackFrame&) const = default;
};

/// The stacks of a recording. `frames[0]` stands for none.
struct Stacks {
  std::vector<StackFrame> frames = {{}};
  std::vector<uint32_t> of_label;  // the innermost frame by label, or 0; shorter: 0 for the rest

  uint32_t innermost_frame(uint32_t label) const {
    return label < of_label.size() ? of_label[label] : 0;
  }
  bool operator==(const Stacks&) const = default;
};

/// A whole recording in memory. `strings[0]` is empty.
struct Profile {
  Header header;
  std::vector<std::string> strings = {""};
  Stacks stacks = {};
  std::vector<Event> events;
  Judgement judgement;  // of the file that it was read from
};

}  // namespace shardlens::profiler
