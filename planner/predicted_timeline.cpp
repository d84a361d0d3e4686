// Turns the predicted timeline into a recording, and writes the other texts of a plan.
#include "planner/predicted_timeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/output_file.h"
#include "planner/config/options.h"
#include "planner/planner.h"
#include "planner/prepared_run.h"
#include "profiler/file/writer.h"

namespace shardlens::planner {

namespace {

using profiler::Event;
using profiler::EventKind;

/// Gives every event a time: that of its action on the cost model's clock, in the order of the
/// host, whose time never goes back. Events within an action of the main stream are spread over it.
class Times {
 public:
  explicit Times(const PreparedRun& run)
      : run_(run), train_cost_(cost_of(run)), evaluate_cost_(evaluation_cost_of(run)) {}

  void set(std::vector<Event>& events) {
    for (size_t i = 0; i < events.size(); ++i) {
      Event& event = events[i];
      if (event.kind == EventKind::phase) phase_ = static_cast<profiler::Phase>(event.value);
      if (event.kind == EventKind::step) pass_ns_ = now_ns_;
      if (event.kind == EventKind::action_begin) begin(events, i);
      now_ns_ += gap_ns_;
      event.time_ns = now_ns_;
      if (event.kind == EventKind::action_end) end(event);
    }
  }

 private:
  static int64_t ns(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

  const StepCost& cost() const {
    return phase_ == profiler::Phase::evaluating ? evaluate_cost_ : train_cost_;
  }

  void begin(const std::vector<Event>& events, size_t first) {
    const int action = events[first].action;
    if (action == 0 && phase_ == profiler::Phase::evaluating) pass_ns_ = now_ns_;
    now_ns_ = std::max(now_ns_, pass_ns_ + ns(cost().begin_of(action)));
    if (run_.schedule_of(phase_).action(action).stream != Stream::main) return;
    size_t last = first;
    while (last < events.size() && events[last].kind != EventKind::action_end) ++last;
    const int64_t left_ns = pass_ns_ + ns(cost().end_of(action)) - now_ns_;
    gap_ns_ = std::max<int64_t>(1, left_ns / static_cast<int64_t>(last - first + 1));
  }

  void end(const Event& event) {
    gap_ns_ = 1;
    const bool is_last = event.action + 1 == run_.schedule_of(phase_).size();
    if (is_last) now_ns_ = std::max(now_ns_, pass_ns_ + ns(cost().seconds));
  }

  const PreparedRun& run_;
  StepCost train_cost_;
  StepCost evaluate_cost_;
  profiler::Phase phase_ = profiler::Phase::starting;
  int64_t now_ns_ = 0;
  int64_t gap_ns_ = 1;
  int64_t pass_ns_ = 0;
};

profiler::Header header_of(const PreparedRun& run, bool fits, bool leaves_out) {
  const std::string unlimited = fits ? "" : "; as on an unlimited device: it does not fit";
  const std::string alike = leaves_out ? "; microbatches like those shown are left out" : "";
  return {.rank = static_cast<int32_t>(std::max<int64_t>(0, run.asked.solo_rank)),
          .world_size = run.train.world_size,
          .device = text_of(run.target.device()),
          .gpu = run.target.gpu ? std::string(run.target.gpu->display_name) : "",
          .capacity_bytes = run.target.gpu ? run.target.capacity_bytes.value_or(0) : 0,
          .notice = "predicted: nothing ran" + unlimited + alike,
          .config = to_json(run.asked),
          .train = to_text(run.train),
          .evaluate = to_text(run.evaluate),
          .libraries = {}};
}

PreparedRun prepared(const Config& config, const PlanOptions& options) {
  return prepare(spec_of(config), config, target_of(config, options), options.outside);
}

void write_events(profiler::Writer& writer, const profiler::Profile& profile) {
  std::vector<uint32_t> labels;
  for (const std::string& text : profile.strings) {
    labels.push_back(text.empty() ? 0 : writer.intern(text));
  }
  for (Event event : profile.events) {
    event.label = labels[event.label];
    writer.append(event);
  }
}

}  // namespace

profiler::Profile predicted_profile(const PreparedRun& run, const Timeline& timeline, bool fits) {
  profiler::Profile profile{.header = header_of(run, fits, timeline.leaves_out()),
                            .strings = timeline.strings(),
                            .events = timeline.events(),
                            .judgement = {}};
  Times(run).set(profile.events);
  return profile;
}

void write_predicted_timeline(const std::string& path, const Config& config,
                              const PlanOptions& options) {
  const PreparedRun run = prepared(config, options);
  const int64_t capacity_bytes =
      run.target.gpu == nullptr
          ? kUnlimitedBytes
          : std::max<int64_t>(0, *run.target.capacity_bytes - run.outside.total_bytes());
  RunResult result = simulate(run, options.allocator, capacity_bytes);
  const bool fits = !result.is_full;
  if (!fits) result = simulate(run, options.allocator);
  const profiler::Profile profile = predicted_profile(run, result.simulation->timeline(), fits);
  // The ring has enough blocks for all events: none may be lost because the disk is slow.
  const profiler::WriterOptions all = {
      .blocks =
          static_cast<uint32_t>(profile.events.size() / profiler::WriterOptions{}.block_events + 2),
      .seals_old = false};
  write_whole(path, [&](const std::string& unfinished) {
    profiler::Writer writer(unfinished, profile.header, all);
    write_events(writer, profile);
    writer.close();
    if (writer.failure() || writer.counts().lost > 0) {
      throw std::runtime_error(
          fmt::format("--timeline {}: {}", path, writer.failure().value_or("")));
    }
  });
}

std::string schedule_text(const Config& config, const PlanOptions& options) {
  return to_text(prepared(config, options).train);
}

std::string shards_text(const Config& config, const PlanOptions& options) {
  const PreparedRun run = prepared(config, options);
  std::string text =
      fmt::format("{:<52} {:>6} {:>14} {:>14}  {}\n", "parameter", "dtype", "elements", "begins at",
                  "ranks that hold it: FIRST..LAST, elements each");
  for (const Group& group : run.train.groups) {
    for (const Bucket& bucket : group.buckets) {
      const int64_t part = run.train.shard_numel(bucket);
      for (const BucketEntry& entry : bucket.entries) {
        const int64_t first = entry.offset / part, last = (entry.offset + entry.numel - 1) / part;
        const std::string owners =
            bucket.whole || run.train.shards == 1
                ? "all"
                : fmt::format("{}..{}, {}", first, last, std::min(part, entry.numel));
        text += fmt::format("{:<52} {:>6} {:>14} {:>14}  {}\n",
                            run.spec.parameters[static_cast<size_t>(entry.parameter)].name,
                            to_string(bucket.dtype), entry.numel, entry.offset, owners);
      }
    }
  }
  return text;
}

}  // namespace shardlens::planner
