// Reports what a recording says about a rank: its peak with the time and the live allocations, the
// steps, where reserved memory was, and every time that memory ran out.
//
// Analysis takes events one by one, as a reader decodes them, and keeps only what is alive. All
// sums are exact: the categories of a peak add up to it. Bytes of the device are those that the
// caching allocator gave (LibTorch's allocated_bytes), unless a name says otherwise; the bytes
// asked for are beside them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/program/growth.h"
#include "profiler/program/holders.h"
#include "profiler/program/program_lines.h"
#include "profiler/program/step_pattern.h"
#include "profiler/recording/peak_bands.h"
#include "profiler/recording/profile.h"
#include "profiler/report/block_tracker.h"
#include "profiler/report/growth_watch.h"
#include "profiler/report/kept_places.h"
#include "profiler/report/peak_set.h"
#include "profiler/report/reserved_parts.h"
#include "profiler/report/reserved_peak.h"

namespace shardlens::profiler {

/// The number of rows in the tables of the largest tensors and places at a peak.
constexpr size_t kTensorRows = 10;

/// An allocation, with texts in place of indices.
struct NamedAllocation {
  int64_t given_bytes = 0;
  int64_t asked_bytes = 0;
  Category category{};
  std::string label = {};
  std::string name = {};       // what it holds, if the program says: "layers.7.up.weight"
  std::string caller = {};     // see Callers; empty: unknown
  std::string operation = {};  // the operator that allocated, "aten::_softmax"; empty: unknown
  int32_t action_id = -1;
  std::string action = {};  // in words, without its id; empty: none, or not in the schedule
  int64_t age_steps = 0;    // steps that began since it was allocated
  bool is_of_step = false;  // allocated after the first step began
};

/// Returns "57 REDUCE_SCATTER group=block3", "action 57" if its words are not known, or "outside a
/// pass".
std::string action_text(int32_t id, const std::string& words);

struct SpaceReport {
  int64_t peak_bytes = 0;
  int64_t peak_asked_bytes = 0;
  Moment peak_at;
  std::string peak_action;
  std::string peak_module;  // of a Python program, "layers.11.mlp"; empty: none, or not known
  CategoryBytes given{};    // at the peak
  CategoryBytes asked{};
  std::vector<NamedAllocation> tensors;  // alive at the peak, the largest first
  std::array<std::optional<int64_t>, kPhases> phase_peaks;
  int64_t allocations = 0;  // in the whole recording
  int64_t end_bytes = 0;    // when it ends
  CategoryBytes end_given{};
};

struct StepPeak {
  int64_t step = 0;
  std::array<int64_t, kSpaces> bytes{};
};

/// A request that the driver refused, with the state of memory at that moment.
struct OutOfMemory {
  Moment at;
  std::string action;
  std::string module;
  int64_t asked_bytes = 0;
  Category category{};  // of the request
  std::string label;
  int64_t device_free_bytes = 0;
  int64_t would_fit_bytes = 0;     // the largest request that would have been served
  int64_t largest_free_bytes = 0;  // the largest reserved and free block
  BlockTotals blocks;
  ReservedReport reserved;
  CategoryBytes given{};
  std::vector<NamedAllocation> tensors;  // alive then, the largest first
};

/// The cache went back to the driver before a request took memory from the driver: of such requests
/// the one that needed most, with the state before.
struct GivenBackCache {
  OutOfMemory request;
  int64_t needed_bytes = 0;    // by PyTorch, had it kept the cache
  int64_t others_bytes = 0;    // on the device beside PyTorch, as far as is known
  int64_t capacity_bytes = 0;  // of the device; 0: unknown
};

struct CounterReport {
  int64_t count = 0;
  int64_t last = 0;
  int64_t largest = 0;
};

/// The pinned memory that tensors had of LibTorch's host allocator when they had most.
struct PinnedUse {
  int64_t used_bytes = 0;   // as it rounds
  int64_t asked_bytes = 0;  // as the program asked
};

struct Losses {
  int64_t count = 0;
  double first = 0;
  double last = 0;
};

/// The device's memory by owner, at the sample with the most in use; without samples, at the end.
/// used = before + context + driver + residual, where a part that was not recorded counts as 0;
/// without the driver's layer, LibTorch's reserved bytes replace `driver`.
struct Ledger {
  std::optional<int64_t> device_total_bytes;
  std::optional<int64_t> device_used_bytes;
  std::optional<int64_t> before_bytes;    // used before this process began: by other processes
  std::optional<int64_t> context_bytes;   // used beyond that when the recording began
  std::optional<int64_t> reserved_bytes;  // by LibTorch
  BlockTotals blocks;                     // where these are
  std::optional<int64_t> driver_bytes;    // given to all libraries in the process, also LibTorch
  std::vector<std::pair<std::string, int64_t>> libraries;  // the driver's, the largest first
  /// Bytes in use that no other field counts: code that was loaded since, and what other processes
  /// took since.
  std::optional<int64_t> residual_bytes;
};

struct RankReport {
  std::string source;  // the file
  Header header;
  int64_t events = 0;
  bool has_times = true;  // false: all are 0, as in snapshots of PyTorch 2.1 and older
  Judgement judgement;
  int64_t unmatched = 0;                                   // frees and changes of unknown addresses
  std::array<std::optional<SpaceReport>, kSpaces> spaces;  // empty: it has no event
  Space main = Space::host;                                // its peak is the rank's
  std::vector<StepPeak> steps;                             // of training
  std::optional<StepPeak> step_peak;  // from the third step on; its `step` has the main peak
  int64_t first_steady_step = 0;      // the third, where there is a `step_peak`
  ProgramLines program;
  std::vector<KeptPlace> kept;           // at the main peak, from earlier steps; the largest first
  std::optional<Growth> growth;          // nothing: none was found
  std::vector<HoldingVariable> holders;  // of what grows; empty unless they were looked for
  BlockTotals blocks_at_peak;            // of the device
  BlockTotals blocks_at_end;
  std::optional<ReservedReport> reserved_peak;  // nothing: no segment was recorded
  std::optional<GivenBackCache> given_back;     // nothing: the cache was never given back
  std::vector<OutOfMemory> out_of_memory;       // the first few, and the last
  int64_t out_of_memory_count = 0;
  std::array<CounterReport, kCounters> counters{};
  std::optional<PeakBands> bands;       // of its peaks; nothing: `shardlens record` found none
  std::optional<PinnedUse> pinned_use;  // empty: what was asked was not recorded
  Losses losses;
  Ledger ledger;

  /// Returns the report of the main space; null if the recording has no event in it.
  const SpaceReport* main_space() const;
  int64_t peak_bytes() const;
  /// Returns the peak of reserved segments; nothing on a CPU.
  std::optional<int64_t> reserved_peak_bytes() const;
  double other_share() const;  // of the peak, 0 to 1
  /// Says after how many steps the growth, if there is any, has filled the GPU, of which others
  /// than PyTorch take `outside_bytes`, and whether these made it give its cache back.
  void take_outside(int64_t outside_bytes);
  /// Returns the request that the driver refused until it had the cache; null: none is known. See
  /// the note on how a retry is seen.
  const OutOfMemory* retry() const;
};

/// Returns the rhythm of the steps from the first steady one on.
std::optional<StepPattern> pattern_of_steps(const RankReport& rank);

class Names;

class Analysis {
 public:
  void take(const Event& event);

  /// Returns the bytes that the last allocation of a tensor, or by the driver, was given.
  int64_t given_bytes() const { return given_bytes_; }
  /// Returns what the allocator holds after the events taken.
  const BlockTracker& blocks() const { return tracker_; }

  /// Returns a label that allocates once a round, for a program without steps whose growth is to be
  /// found by rounds: such a recording is analysed twice. Returns nothing if it has steps, or no
  /// such label.
  std::optional<uint32_t> label_of_rounds(const std::vector<std::string>& strings,
                                          const Stacks& stacks) const;
  /// Makes each allocation of the label begin a round. Call it before the first event.
  void count_rounds_by(uint32_t label) { round_label_ = label; }

  /// Returns the report. Call it once, after the last event. `strings` and `stacks` are those of
  /// Profile; without stacks no caller is known.
  RankReport finish(const Header& header, const std::vector<std::string>& strings,
                    Judgement judgement, const Stacks& stacks = {});

 private:
  struct Failure {
    Event event;
    OutOfMemory report;
    std::vector<LiveAllocation> live;
    std::vector<ReservedSegment> segments;
    std::vector<UsedBlock> pending;
    int32_t private_pool = kNoPrivatePool;
    int64_t needed_bytes = 0;  // by PyTorch, had the cache been kept
  };
  struct LedgerSample {
    int64_t used = 0;
    BlockTotals blocks;
    std::map<uint32_t, int64_t> libraries;
  };

  void take_alloc(const Event& event);
  void take_recategorise(const Event& event);
  void take_library(const PeakSet::Addition& added);
  void take_free(const Event& event);
  void take_counter(const Event& event);
  void take_failure(const Event& event);
  Failure failure_now(Space space) const;
  OutOfMemory named(Failure failure, const Names& names) const;
  void watch_cache(const Event& event);
  void end_watch(const Event& request);
  std::optional<GivenBackCache> find_given_back(const Header& header, const Names& names);
  void take_used(int64_t bytes);
  void take_pinned_asked(int64_t asked_bytes);
  int64_t own_device_bytes() const;
  void take_own_device_bytes();
  void close_window();
  void take_segment(const Event& event);
  void take_hold(const Event& event);
  void end_action(int32_t action);
  Moment moment_of(const Event& event) const;
  LedgerSample ledger_now(int64_t used_bytes) const;
  std::optional<int64_t> last_of(Counter counter) const;
  Ledger ledger(const Names& names) const;
  SpaceReport space_report(Space space, const Names& names);
  std::optional<ReservedReport> reserved_peak(const Names& names);
  void begin_mark(int64_t number);
  void note_work(int32_t action);
  std::optional<Growth> find_growth(const std::vector<std::string>& strings, const Stacks& stacks,
                                    int64_t capacity_bytes) const;

  PeakSet& set_of(Space space) { return sets_[static_cast<size_t>(space)]; }
  Level& level_of(size_t space);

  std::array<PeakSet, kSpaces> sets_;  // all but `segment`, which `tracker_` follows
  BlockTracker tracker_;
  int64_t given_bytes_ = 0;
  Level reserved_;
  ReservedPeak reserved_peak_;
  BlockTotals blocks_at_peak_;
  std::array<int64_t, kSpaces> space_events_{};
  std::array<int64_t, kSpaces> space_allocations_{};
  std::array<std::array<std::optional<int64_t>, kPhases>, kSpaces> phase_peaks_;
  std::vector<StepPeak> steps_;
  Phase phase_ = Phase::starting;
  std::vector<int32_t> running_;  // actions, the outermost first
  uint32_t module_ = 0;           // of the last allocation of the device
  int64_t step_ = -1;
  bool in_step_ = false;
  int64_t events_ = 0;
  bool has_times_ = false;
  int64_t unmatched_ = 0;
  int64_t failure_count_ = 0;
  std::vector<Failure> failures_;
  /// [Note: how a retry is seen]
  /// If the driver refuses, the allocator gives it all that is cached, and asks again: segments are
  /// freed, one is taken, and the request gets its block, with no tensor freed in between. A
  /// program that calls empty_cache() looks alike, but the device had room for its next segment.
  std::optional<Failure> giving_back_;  // the state before the cache goes back
  std::optional<Failure> given_back_;   // the one that needed most
  std::array<CounterReport, kCounters> counters_{};
  std::optional<PinnedUse> pinned_use_;
  Losses losses_;
  std::map<uint32_t, int64_t> libraries_;  // live bytes of the driver, by label
  std::optional<LedgerSample> most_used_;
  std::optional<int64_t> used_by_others_;  // of the device, at its last sample
  GrowthWatch growth_;                     // of the device
  std::vector<int64_t> mark_numbers_;      // the step that each mark begins
  AllocationRange work_;                   // from the first forward or backward to the last
  std::optional<uint32_t> round_label_;
};

/// Finishes the report of a recording whose events `analysis` has taken.
RankReport finish_report(Analysis& analysis, const Profile& profile);

/// Reports a whole recording that is in memory.
RankReport analyse(const Profile& profile);

/// Returns the report as text for people: a screen for each rank, the one with the highest peak
/// first. A rank without allocations gets one line.
std::string report_text(std::vector<RankReport> ranks);

/// Returns "after 0.123 s", or "no times".
std::string time_text(int64_t time_ns, bool has_times);

/// Returns what held the memory when memory last ran out in the recording, in at most 60 lines.
/// Returns an empty text if it never did.
std::string out_of_memory_text(const RankReport& rank);

/// Returns the parts of reserved memory when there was most: a title, and a row for each part.
/// Returns an empty text if no segment was recorded.
std::string reserved_text(const RankReport& rank);

/// Returns {"schema":"shardlens.profile/1", ...}, ranks in the given order, with a newline at the
/// end.
std::string report_json(const std::vector<RankReport>& ranks);

}  // namespace shardlens::profiler
