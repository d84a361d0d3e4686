#include "profiler/exchange/import_history.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/output_file.h"
#include "base/shown.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/exchange/write_recording.h"

namespace shardlens::profiler {

namespace {

/// Numbers of blocks that were allocated and freed since the program started.
struct Counts {
  int64_t allocations = 0;
  int64_t frees = 0;

  bool reach(const Counts& other) const {
    return allocations >= other.allocations && frees >= other.frees;
  }
};

struct Mark {
  Counts at;
  std::optional<int64_t> step;  // if missing, the mark is about a block
  uint64_t address = 0;
  Category category = Category::other;
};

Counts counts_in(Value value) {
  return {.allocations = value["allocations"].integer(), .frees = value["frees"].integer()};
}

Mark mark_in(Value value) {
  Mark mark{.at = counts_in(value), .step = {}};
  if (value["step"].is(Document::Type::integer)) mark.step = value["step"].integer();
  mark.address = static_cast<uint64_t>(value["address"].integer());
  mark.category =
      static_cast<Category>(std::clamp<int64_t>(value["category"].integer(), 0, kCategories - 1));
  return mark;
}

std::vector<Mark> marks_in(Value said) {
  std::vector<Mark> marks;
  const Value list = said["marks"];
  for (size_t i = 0; i < list.size(); ++i) marks.push_back(mark_in(list.at(i)));
  return marks;
}

bool is_of_block(const Event& event, EventKind kind) {
  return event.space == Space::device && event.kind == kind;
}

/// Puts the marks in their places among the events.
class MarkPlacer {
 public:
  MarkPlacer(std::vector<Mark> marks, Counts end, const std::vector<Event>& events)
      : marks_(std::move(marks)), events_(events), now_(end) {
    for (const Event& event : events) count(event, -1);
  }

  std::vector<Event> run() {
    skip_lost();
    for (const Event& event : events_) {
      put_marks(event.time_ns);
      if (event.kind == EventKind::alloc) begin_step(event.time_ns);
      marked_.push_back(event);
      count(event, 1);
    }
    put_marks(events_.empty() ? 0 : events_.back().time_ns);
    return std::move(marked_);
  }

 private:
  void count(const Event& event, int64_t sign) {
    if (is_of_block(event, EventKind::alloc)) now_.allocations += sign;
    if (is_of_block(event, EventKind::free)) now_.frees += sign;
  }

  /// Skips the marks of events that the history has forgotten, since they have no place; only the
  /// step that was running is still useful.
  void skip_lost() {
    while (next_ < marks_.size() && !marks_[next_].at.reach(now_)) {
      if (marks_[next_].step) coming_step_ = marks_[next_].step;
      ++next_;
    }
  }

  void put_marks(int64_t time_ns) {
    for (; next_ < marks_.size() && now_.reach(marks_[next_].at); ++next_) {
      const Mark& mark = marks_[next_];
      if (mark.step) {
        coming_step_ = mark.step;
        continue;
      }
      marked_.push_back({.time_ns = time_ns,
                         .address = mark.address,
                         .kind = EventKind::recategorise,
                         .space = Space::device,
                         .category = mark.category});
    }
  }

  void begin_step(int64_t time_ns) {
    if (!coming_step_) return;
    if (!in_training_) {
      marked_.push_back({.time_ns = time_ns,
                         .value = static_cast<int64_t>(Phase::training),
                         .kind = EventKind::phase});
    }
    marked_.push_back({.time_ns = time_ns, .value = *coming_step_, .kind = EventKind::step});
    in_training_ = true;
    coming_step_.reset();
  }

  std::vector<Mark> marks_;
  const std::vector<Event>& events_;
  Counts now_;  // at the next event
  size_t next_ = 0;
  std::optional<int64_t> coming_step_;
  bool in_training_ = false;
  std::vector<Event> marked_;
};

Header header_in(Value said, const Header& imported) {
  const auto text = [&](const char* key) { return std::string(said[key].text()); };
  Header header = imported;
  header.rank = static_cast<int32_t>(said["rank"].integer());
  header.world_size = static_cast<int32_t>(said["world_size"].integer(1));
  header.device = text("device");
  header.gpu = text("gpu");
  header.capacity_bytes = said["capacity_bytes"].integer();
  header.notice = text("notice");
  header.config = text("config");
  header.libraries = text("libraries");
  return header;
}

}  // namespace

Profile import_history(const Document& document) {
  const Value said = Value(document)["shardlens"];
  if (!said.is(Document::Type::map)) {
    throw std::invalid_argument("it is not a history that shardlens record has written");
  }
  Profile profile = import_snapshot(document, static_cast<int>(said["device_index"].integer(0)));
  profile.header = header_in(said, profile.header);
  profile.judgement.lost_events = std::max<int64_t>(0, said["lost_events"].integer());
  profile.events = MarkPlacer(marks_in(said), counts_in(said), profile.events).run();
  return profile;
}

void record_history(const std::string& history, const std::string& recording) {
  const std::string bytes = read_file(history, kRecord.bytes, "record fewer steps, with --steps");
  Profile profile;
  try {
    profile = import_history(read_snapshot(bytes));
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", shown(history), error.what()));
  }
  write_whole(recording,
              [&](const std::string& unfinished) { write_recording(profile, unfinished); });
}

}  // namespace shardlens::profiler
