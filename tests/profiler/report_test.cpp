#include "profiler/report/report.h"

#include <algorithm>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <tuple>
#include <vector>

#include "tests/support/model_allocator.h"
#include "tests/support/recordings/random_recording.h"
#include "tests/support/recordings/synthetic_profile.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

// --- the same questions, answered by keeping everything and adding it up every time --------------

struct NaiveBlock {
  int64_t asked = 0;
  int64_t given = 0;
  Category category{};
  uint32_t label = 0;
  int32_t action = -1;
  int64_t step = -1;
};
using NaiveSet = std::map<uint64_t, NaiveBlock>;

struct NaiveReport {
  NaiveSet live;
  NaiveSet at_peak;
  int64_t peak = 0;
  int64_t peak_time_ns = 0;
  int64_t peak_step = -1;
  std::map<Phase, int64_t> phase_peaks;
  std::vector<std::pair<int64_t, int64_t>> steps;  // (step, peak)
};

int64_t total_of(const NaiveSet& live) {
  int64_t total = 0;
  for (const auto& [address, one] : live) total += one.given;
  return total;
}

/// The events with each block's last category instead of the one it was declared with.
std::vector<Event> with_hindsight(std::vector<Event> events) {
  std::map<std::pair<Space, uint64_t>, Event*> live;
  for (Event& event : events) {
    const std::pair block{event.space, event.address};
    if (event.kind == EventKind::alloc) live[block] = &event;
    if (event.kind == EventKind::free) live.erase(block);
    if (event.kind == EventKind::recategorise) live.at(block)->category = event.category;
  }
  return events;
}

void naive_memory(NaiveSet& live, const Event& event, int64_t given, int64_t step) {
  if (event.space == Space::segment) {  // parts of what was mapped may go: only the sum counts
    live[0].given += event.kind == EventKind::alloc ? given : -event.value;
  } else if (event.kind == EventKind::alloc) {
    live[event.address] = {event.value, given, event.category, event.label, event.action, step};
  } else if (event.kind == EventKind::free) {
    live.erase(event.address);
  }
}

NaiveReport naive_answers(const tests::RandomRecording& recording, Space space) {
  NaiveReport naive;
  Phase phase = Phase::starting;
  int64_t step = -1;
  bool in_step = false;
  const std::vector<Event> events = with_hindsight(recording.profile.events);
  for (size_t i = 0; i < events.size(); ++i) {
    const Event& event = events[i];
    if (event.kind == EventKind::phase || event.kind == EventKind::step) {
      // What is alive when a phase or step ends is alive when the next begins.
      if (event.kind == EventKind::phase) phase = static_cast<Phase>(event.value);
      if (event.kind == EventKind::step) step = event.value;
      in_step = event.kind == EventKind::step && phase == Phase::training;
      if (in_step) naive.steps.emplace_back(step, 0);
    } else if (event.space == space) {
      naive_memory(naive.live, event, recording.given[i], step);
    }
    const int64_t now = total_of(naive.live);
    naive.phase_peaks[phase] = std::max(naive.phase_peaks[phase], now);
    if (in_step) naive.steps.back().second = std::max(naive.steps.back().second, now);
    if (now <= naive.peak) continue;
    naive.peak = now;
    naive.at_peak = naive.live;
    naive.peak_time_ns = event.time_ns;
    naive.peak_step = step;
  }
  return naive;
}

using Row = std::tuple<int64_t, int64_t, Category, std::string, int32_t, int64_t>;

std::vector<Row> rows_of(const std::vector<NamedAllocation>& tensors) {
  std::vector<Row> rows;
  for (const NamedAllocation& t : tensors) {
    rows.emplace_back(t.given_bytes, t.asked_bytes, t.category, t.label, t.action_id, t.age_steps);
  }
  std::ranges::sort(rows);
  return rows;
}

std::vector<Row> rows_of(const NaiveReport& naive, const std::vector<std::string>& strings) {
  std::vector<Row> rows;
  for (const auto& [address, one] : naive.at_peak) {
    rows.emplace_back(one.given, one.asked, one.category, strings[one.label], one.action,
                      naive.peak_step - one.step);
  }
  std::ranges::sort(rows);
  return rows;
}

void check_space(const tests::RandomRecording& recording, const RankReport& report, Space space) {
  const auto index = static_cast<size_t>(space);
  CAPTURE(kWords<Space>[index]);
  const NaiveReport naive = naive_answers(recording, space);
  REQUIRE(report.spaces[index]);
  const SpaceReport& found = *report.spaces[index];
  CHECK(found.peak_bytes == naive.peak);
  CHECK(found.peak_at.time_ns == naive.peak_time_ns);
  CHECK(found.peak_at.step == naive.peak_step);
  CHECK(found.end_bytes == total_of(naive.live));
  for (const auto& [phase, peak] : naive.phase_peaks) {
    CHECK(found.phase_peaks[static_cast<size_t>(phase)] == peak);
  }
  REQUIRE(report.steps.size() == naive.steps.size());
  int64_t right = 0;
  for (size_t i = 0; i < naive.steps.size(); ++i) {
    right += report.steps[i].step == naive.steps[i].first &&
             report.steps[i].bytes[index] == naive.steps[i].second;
  }
  CHECK(right == static_cast<int64_t>(naive.steps.size()));
  if (space == Space::segment) return;
  CHECK(rows_of(found.tensors) == rows_of(naive, recording.profile.strings));
  CHECK(std::accumulate(found.given.begin(), found.given.end(), int64_t{0}) == naive.peak);
  CHECK(std::accumulate(found.asked.begin(), found.asked.end(), int64_t{0}) ==
        found.peak_asked_bytes);
  CategoryBytes categories{};
  for (const auto& [address, one] : naive.at_peak) {
    categories[static_cast<size_t>(one.category)] += one.given;
  }
  CHECK(found.given == categories);
}

Event alloc(uint64_t address, int64_t bytes, Category category = Category::activation) {
  return {.address = address, .value = bytes, .category = category};
}

Event mark(EventKind kind, int64_t value) { return {.value = value, .kind = kind}; }

Event counter(Counter counter, int64_t value) {
  return {.address = static_cast<uint64_t>(counter), .value = value, .kind = EventKind::counter};
}

Event segment(uint64_t address, int64_t bytes) {
  return {.address = address, .value = bytes, .space = Space::segment};
}

RankReport analyse_events(std::vector<Event> events) {
  Profile profile;
  profile.strings = {"", "libnccl.so.2", "libc10_cuda.so"};
  profile.events = std::move(events);
  return analyse(profile);
}

constexpr int64_t kMiB = int64_t{1} << 20;

}  // namespace

TEST_CASE("a report says the same as adding everything up") {
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    const auto recording = tests::random_recording(seed, seed % 2 == 0);
    const RankReport report = analyse(recording.profile);
    for (const Space space :
         {Space::device, Space::host, Space::pinned, Space::segment, Space::driver}) {
      check_space(recording, report, space);
    }
    CHECK(report.events == static_cast<int64_t>(recording.profile.events.size()));
    CHECK(report.unmatched == 0);
    CHECK(report.main == Space::device);
    const BlockTotals& blocks = report.blocks_at_peak;
    CHECK(blocks.allocated() == report.peak_bytes());
    CHECK(blocks.requested == report.main_space()->peak_asked_bytes);
    CHECK(blocks.allocated() + blocks.split + blocks.cached == blocks.reserved);
  }
}

TEST_CASE("the peak of steps counts training from the third step on") {
  const RankReport report = analyse_events({
      mark(EventKind::phase, static_cast<int64_t>(Phase::training)),
      mark(EventKind::step, 7),
      alloc(0x1000, 9000),
      {.address = 0x1000, .kind = EventKind::free},
      mark(EventKind::step, 8),
      mark(EventKind::step, 9),
      alloc(0x1000, 1000),
      {.address = 0x1000, .kind = EventKind::free},
      mark(EventKind::phase, static_cast<int64_t>(Phase::evaluating)),
      alloc(0x1000, 5000),
      {.address = 0x1000, .kind = EventKind::free},
      mark(EventKind::phase, static_cast<int64_t>(Phase::training)),
      mark(EventKind::step, 10),
      alloc(0x1000, 2000),
  });
  REQUIRE(report.step_peak);
  CHECK(report.step_peak->step == 10);
  CHECK(report.step_peak->bytes[0] == 2048);
  CHECK(report.peak_bytes() == 9216);
  CHECK(report.steps.size() == 4);
  CHECK(report.main_space()->phase_peaks[static_cast<size_t>(Phase::evaluating)] == 5120);
}

TEST_CASE("actions are named by the schedule of their phase") {
  Profile profile;
  profile.header.train = "schedule 1\nunit 0 a\n  0 FORWARD        unit=a           stream=main\n";
  profile.header.evaluate = "schedule 1\n  0 LOSS   stream=main\n";
  Event event = alloc(0x1000, 1);
  event.action = 0;
  profile.events = {event};
  CHECK(analyse(profile).main_space()->peak_action == "FORWARD unit=a");
  profile.events = {mark(EventKind::phase, static_cast<int64_t>(Phase::evaluating)), event};
  CHECK(analyse(profile).main_space()->tensors.front().action == "LOSS");
  profile.events.front() = mark(EventKind::step, 0);
  profile.events.back().action = 5;
  CHECK(analyse(profile).main_space()->peak_action.empty());
  CHECK(action_text(5, "") == "action 5");
  CHECK(action_text(5, "LOSS") == "5 LOSS");
  CHECK(action_text(-1, "") == "outside a pass");
}

TEST_CASE("running out of memory reports what would have fit") {
  const auto free_at = [](uint64_t address) {
    return Event{.address = address, .kind = EventKind::free};
  };
  constexpr uint64_t kBase = uint64_t{1} << 40;
  const RankReport report = analyse_events({
      segment(kBase, 20 * kMiB),
      alloc(kBase, 8 * kMiB, Category::optimizer_state),
      alloc(kBase + 8 * kMiB, 4 * kMiB),
      alloc(kBase + 12 * kMiB, 6 * kMiB, Category::gradient),
      free_at(kBase),
      {.address = 3 * kMiB,
       .value = 30 * kMiB,
       .action = 2,
       .label = 1,
       .kind = EventKind::out_of_memory,
       .space = Space::device,
       .category = Category::workspace},
  });
  REQUIRE(report.out_of_memory.size() == 1);
  const OutOfMemory& failure = report.out_of_memory.front();
  CHECK(failure.asked_bytes == 30 * kMiB);
  CHECK(failure.device_free_bytes == 3 * kMiB);
  CHECK(failure.would_fit_bytes == 8 * kMiB);
  CHECK(failure.blocks.split == 10 * kMiB);
  CHECK(failure.largest_free_bytes == 8 * kMiB);
  CHECK(failure.category == Category::workspace);
  CHECK(failure.label == "libnccl.so.2");
  CHECK(failure.given[static_cast<size_t>(Category::gradient)] == 6 * kMiB);
  CHECK(failure.given[static_cast<size_t>(Category::optimizer_state)] == 0);
  REQUIRE(failure.tensors.size() == 2);
  CHECK(failure.tensors.front().category == Category::gradient);
}

TEST_CASE("the ledger is for the sample with the most memory in use, and names the rest") {
  const auto driver = [](uint64_t address, int64_t bytes, uint32_t label) {
    return Event{.address = address, .value = bytes, .label = label, .space = Space::driver};
  };
  const RankReport report = analyse_events({
      counter(Counter::device_total, 1000 * kMiB),
      counter(Counter::device_before, 50 * kMiB),
      counter(Counter::device_start, 300 * kMiB),
      driver(1, 100 * kMiB, 1),
      driver(2, 20 * kMiB, 2),
      segment(2, 20 * kMiB),
      alloc(2, 4 * kMiB),
      counter(Counter::device_used, 500 * kMiB),
      {.address = 1, .kind = EventKind::free, .space = Space::driver},
      counter(Counter::device_used, 300 * kMiB),
      counter(Counter::loss, std::bit_cast<int64_t>(0.5)),
      counter(Counter::loss, std::bit_cast<int64_t>(0.25)),
  });
  CHECK(report.ledger.device_total_bytes == 1000 * kMiB);
  CHECK(report.ledger.device_used_bytes == 500 * kMiB);
  CHECK(report.ledger.driver_bytes == 120 * kMiB);
  CHECK(report.ledger.reserved_bytes == 20 * kMiB);
  CHECK(report.ledger.before_bytes == 50 * kMiB);
  CHECK(report.ledger.context_bytes == 250 * kMiB);
  CHECK(report.ledger.residual_bytes == 80 * kMiB);
  CHECK(report.ledger.blocks.reserved == 20 * kMiB);
  CHECK(report.ledger.blocks.requested == 4 * kMiB);
  CHECK(report.ledger.blocks.split == 16 * kMiB);
  REQUIRE(report.ledger.libraries.size() == 2);
  CHECK(report.ledger.libraries.front().first == "libnccl.so.2");
  CHECK(report.losses.last == 0.25);
  CHECK_FALSE(analyse_events({alloc(1, 1)}).ledger.device_used_bytes);
  CHECK_FALSE(analyse_events({alloc(1, 1)}).ledger.residual_bytes);
}

TEST_CASE("running out of memory is a sample of memory in use") {
  const RankReport report = analyse_events(
      {counter(Counter::device_total, 100 * kMiB),
       segment(2, 20 * kMiB),
       counter(Counter::device_used, 30 * kMiB),
       segment(uint64_t{1} << 40, 40 * kMiB),
       {.address = 10 * kMiB, .value = 30 * kMiB, .kind = EventKind::out_of_memory}});
  CHECK(report.ledger.device_used_bytes == 90 * kMiB);
  CHECK(report.ledger.reserved_bytes == 60 * kMiB);
  CHECK(report.ledger.residual_bytes == 30 * kMiB);
}

TEST_CASE("of several times out of memory the last one is kept") {
  std::vector<Event> events;
  for (int64_t i = 1; i <= 7; ++i) {
    events.push_back({.value = i, .kind = EventKind::out_of_memory, .space = Space::device});
  }
  const RankReport report = analyse_events(events);
  CHECK(report.out_of_memory_count == 7);
  REQUIRE(report.out_of_memory.size() == 3);
  CHECK(report.out_of_memory.front().asked_bytes == 1);
  CHECK(report.out_of_memory.back().asked_bytes == 7);
}

TEST_CASE("memory that other streams still use is a part of reserved memory") {
  const RankReport report = analyse_events({
      segment(uint64_t{1} << 40, 20 * kMiB),
      alloc(uint64_t{1} << 40, 4 * kMiB),
      {.address = uint64_t{1} << 40, .kind = EventKind::free},
      {.address = uint64_t{1} << 40, .kind = EventKind::hold},
      counter(Counter::device_used, 25 * kMiB),
      {.address = uint64_t{1} << 40, .kind = EventKind::release},
  });
  CHECK(report.ledger.blocks.pending == 4 * kMiB);
  CHECK(report.ledger.blocks.split == 16 * kMiB);
  CHECK(report.ledger.residual_bytes == 5 * kMiB);
  CHECK(report.blocks_at_end.pending == 0);
  CHECK(report.blocks_at_end.cached == 20 * kMiB);
  CHECK(report.unmatched == 0);
}

TEST_CASE("events that make no sense are counted and change nothing") {
  Event bad_kind = alloc(1, 1);
  bad_kind.kind = static_cast<EventKind>(200);
  Event bad_category = alloc(1, 1, static_cast<Category>(99));
  const RankReport report =
      analyse_events({bad_kind, bad_category, alloc(1, -5), alloc(1, INT64_MAX),
                      mark(EventKind::phase, 17), counter(static_cast<Counter>(99), 1)});
  CHECK(report.unmatched == 6);
  CHECK(report.main_space() == nullptr);
  CHECK(report.peak_bytes() == 0);
}

TEST_CASE("the report of a synthetic training run adds up") {
  const Profile profile = tests::synthetic_profile();
  const RankReport report = analyse(profile);
  const SpaceReport& space = *report.main_space();
  CHECK(std::accumulate(space.given.begin(), space.given.end(), int64_t{0}) == space.peak_bytes);
  int64_t tensors = 0;
  for (const NamedAllocation& tensor : space.tensors) tensors += tensor.given_bytes;
  CHECK(tensors == space.peak_bytes);
  CHECK(report.steps.size() == 20);
  CHECK(report.other_share() < 0.01);
  CHECK(report.unmatched == 0);
}

TEST_CASE("ten million events are analysed within 20 s", "[long]") {
  // One step's events, as the model allocator orders them, repeated: the step frees all that it
  // allocates.
  std::vector<Event> step;
  tests::ModelAllocator model(false, [&](const Event& event) { step.push_back(event); });
  std::mt19937_64 engine(1);
  std::vector<uint64_t> live;
  for (int i = 0; i < 4000; ++i) {
    const auto bytes = static_cast<int64_t>(1 + engine() % (uint64_t{1} << (8 + engine() % 16)));
    live.push_back(model.alloc({.value = bytes}));
    if (engine() % 3 != 0) continue;
    std::swap(live[engine() % live.size()], live.back());
    model.free(live.back());
    live.pop_back();
  }
  for (const uint64_t address : live) model.free(address);
  model.empty_cache();
  constexpr int64_t kEvents = 10'000'000;
  Analysis analysis;
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < kEvents; ++i) {
    analysis.take(step[static_cast<size_t>(i) % step.size()]);
  }
  const RankReport report = analysis.finish({}, {""}, {});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  CHECK(report.blocks_at_end.unplaced == 0);
  CHECK(report.peak_bytes() > 0);
  CHECK(seconds.count() < 20);
}

TEST_CASE("a retry is explained by what was reserved before it") {
  constexpr uint64_t kStart = uint64_t{1} << 40;
  Profile profile{.header = {.device = "cuda"}, .events = {}, .judgement = {}};
  profile.strings = {"", "kept", "staged", "wanted"};
  const auto put = [&](const Event& event) { profile.events.push_back(event); };
  const auto segment = [&](uint64_t mib, int64_t mibs, uint16_t stream, EventKind kind) {
    put({.address = kStart + mib * kMiB,
         .value = mibs * kMiB,
         .stream = stream,
         .kind = kind,
         .space = Space::segment});
  };
  const auto block = [&](uint64_t mib, int64_t mibs, uint32_t label, uint16_t stream = 0) {
    put({.address = kStart + mib * kMiB, .value = mibs * kMiB, .label = label, .stream = stream});
  };
  segment(0, 20, 0, EventKind::alloc);
  block(0, 20, 1);
  segment(100, 60, 1, EventKind::alloc);
  block(100, 60, 2, 1);
  put({.address = kStart + 100 * kMiB, .kind = EventKind::free});
  segment(100, 60, 1, EventKind::free);  // the cache goes back
  segment(200, 40, 0, EventKind::alloc);
  block(200, 40, 3);
  put({.value = 7, .kind = EventKind::step});

  profile.header.capacity_bytes = 120 * kMiB;  // room for all: it was empty_cache()
  CHECK(analyse(profile).retry() == nullptr);
  profile.header.capacity_bytes = 0;  // unknown
  CHECK(analyse(profile).retry() == nullptr);
  profile.header.capacity_bytes = 119 * kMiB;
  const RankReport report = analyse(profile);
  const OutOfMemory* const retry = report.retry();
  REQUIRE(retry != nullptr);
  CHECK(retry->label == "wanted");
  CHECK(retry->asked_bytes == 40 * kMiB);
  CHECK(retry->blocks.reserved == 80 * kMiB);
  REQUIRE(retry->tensors.size() == 1);
  CHECK(retry->tensors[0].label == "kept");
  CHECK(retry->reserved.parts.other_streams.bytes == 60 * kMiB);
  CHECK(report_text({report}).find("before a retry") != std::string::npos);
  const auto json = nlohmann::json::parse(report_json({report}))["ranks"][0]["at_retry"];
  CHECK(json.at("free").at("other_streams").at("bytes") == 60 * kMiB);

  profile.header.capacity_bytes = 120 * kMiB;
  RankReport beside_others = analyse(profile);
  beside_others.take_outside(kMiB);
  CHECK(beside_others.retry() != nullptr);
}

TEST_CASE("the reserved peak is explained at its own moment") {
  constexpr uint64_t kStart = uint64_t{1} << 40;
  Profile profile{.header = {.device = "cuda"}, .events = {}, .judgement = {}};
  profile.strings = {"", "kept", "staged", "wanted"};
  const auto put = [&](const Event& event) { profile.events.push_back(event); };
  const auto segment = [&](uint64_t mib, int64_t mibs, uint16_t stream, int32_t private_pool = -1) {
    put({.address = kStart + mib * kMiB,
         .value = mibs * kMiB,
         .action = action_of_pool(private_pool),
         .stream = stream,
         .space = Space::segment});
  };
  const auto block = [&](uint64_t mib, int64_t mibs, uint32_t label, uint16_t stream = 0) {
    put({.address = kStart + mib * kMiB, .value = mibs * kMiB, .label = label, .stream = stream});
  };
  const auto free = [&](uint64_t mib) {
    put({.address = kStart + mib * kMiB, .kind = EventKind::free});
  };
  segment(0, 20, 0);
  block(0, 4, 1);
  block(4, 16, 2);
  segment(100, 30, 1);
  block(100, 30, 2, 1);
  segment(200, 40, 0, 0);
  block(200, 40, 2);
  segment(300, 10, 0);
  block(300, 10, 2);
  for (const uint64_t mib : {4, 100, 200, 300}) free(mib);
  segment(400, 20, 0);
  block(400, 18, 3);
  free(400);
  free(0);

  const RankReport report = analyse(profile);
  CHECK(report.peak_bytes() == 100 * kMiB);
  CHECK(report.blocks_at_end.in_private == 40 * kMiB);
  REQUIRE(report.reserved_peak);
  const ReservedReport& peak = *report.reserved_peak;
  CHECK(peak.label == "wanted");
  CHECK(peak.asked_bytes == 18 * kMiB);
  const ReservedParts& parts = peak.parts;
  CHECK(parts.reserved == 120 * kMiB);
  CHECK(parts.given() == 22 * kMiB);
  CHECK(parts.other_streams.bytes == 30 * kMiB);
  CHECK(parts.private_pools.bytes == 40 * kMiB);
  CHECK(parts.whole.bytes == 10 * kMiB);
  CHECK(parts.whole.too_small == 10 * kMiB);
  CHECK(parts.held.bytes == 18 * kMiB);
  REQUIRE(parts.holders.size() == 2);
  CHECK(peak.places.at(parts.holders[0].places.at(0)).label == "kept");
  CHECK(parts.holders[0].free == 16 * kMiB);
  CHECK(report.judgement.is_exact());

  const auto json = nlohmann::json::parse(report_json({report}))["ranks"][0]["at_reserved_peak"];
  int64_t sum = 0;
  for (const char* key : {"requested_bytes", "rounding_bytes", "pending_bytes"}) {
    sum += json.at(key).get<int64_t>();
  }
  for (const auto& [name, pieces] : json.at("free").items())
    sum += pieces.at("bytes").get<int64_t>();
  CHECK(sum == json.at("reserved_bytes"));
  CHECK(report_text({report}).find("free in 1 private pool") != std::string::npos);
}
