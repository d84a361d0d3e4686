// When the events of a trace happen, by closed formulas; that a trace which is followed while it
// grows gives the same times as a whole one; and that a whole recording follows its streams.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <random>
#include <vector>

#include "planner/time/kernels.h"
#include "planner/time/tasks/predicted_times.h"
#include "planner/time/tasks/simulated_events.h"
#include "tests/planner/time/trace_writer.h"

using namespace shardlens;
using namespace shardlens::planner;
using namespace shardlens::tests;
using Catch::Approx;
using profiler::NumberType;
using profiler::OperatorInput;
using profiler::WorkKind;
using profiler::WorkTrace;

namespace {

std::vector<OperatorInput> two_tensors() { return {tensor({1 << 24}), tensor({1 << 24})}; }

/// A trace that asks at random for kernels, events, waits and graphs on three streams.
class RandomTrace {
 public:
  explicit RandomTrace(uint32_t seed) : random_(seed) {
    add_ = writer_.kernel(writer_.call("aten::add", two_tensors()));
    for (const WorkKind kind :
         {WorkKind::event_record, WorkKind::event_wait, WorkKind::event_synchronize,
          WorkKind::stream_synchronize, WorkKind::device_synchronize, WorkKind::memory}) {
      others_.push_back(writer_.piece({.kind = kind}));
    }
    launch_ = writer_.piece({.kind = WorkKind::graph_launch});
  }

  void grow(int items) {
    for (int i = 0; i < items; ++i) ask();
  }

  const WorkTrace& trace() const { return writer_.trace; }
  const std::vector<int64_t>& events() const { return events_; }

 private:
  int draw(int below) { return std::uniform_int_distribution<int>(0, below - 1)(random_); }

  void ask() {
    const auto stream = static_cast<uint16_t>(draw(3));
    const int64_t host_ns = draw(200'000);
    if (draw(12) == 0) return ask_for_graph(host_ns, stream);
    if (draw(2) == 0) return void(writer_.ask(add_, host_ns, stream));
    const uint32_t work = others_[static_cast<size_t>(draw(static_cast<int>(others_.size())))];
    const WorkKind kind = writer_.trace.work[work].kind;
    const bool waits = kind == WorkKind::event_wait || kind == WorkKind::event_synchronize;
    const int64_t about =
        !waits || events_.empty()
            ? -1
            : events_[static_cast<size_t>(draw(static_cast<int>(events_.size())))];
    const int64_t item = writer_.ask(work, host_ns, stream, about);
    if (kind == WorkKind::event_record) events_.push_back(item);
  }

  void ask_for_graph(int64_t host_ns, uint16_t stream) {
    if (graphs_ == 0 || draw(2) == 0) {
      ++graphs_;
      for (int i = draw(4); i >= 0; --i) {
        writer_.trace.items[static_cast<size_t>(writer_.ask(add_, host_ns, stream))].graph =
            graphs_;
      }
    }
    writer_.ask(launch_, host_ns, stream, 1 + draw(static_cast<int>(graphs_)));
  }

  std::mt19937 random_;
  TraceWriter writer_;
  uint32_t add_ = 0, launch_ = 0, graphs_ = 0;
  std::vector<uint32_t> others_;
  std::vector<int64_t> events_;
};

}  // namespace

TEST_CASE("the time between events is that of the work between them", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  TraceWriter writer;
  const uint32_t record = writer.piece({.kind = WorkKind::event_record});
  const uint32_t wait = writer.piece({.kind = WorkKind::event_wait});
  const uint32_t add = writer.kernel(writer.call("aten::add", two_tensors()));
  const auto ask_for = [&](int kernels, uint16_t stream) {
    for (int i = 0; i < kernels; ++i) writer.ask(add, 1000, stream);
  };
  ask_for(50, 0);
  const int64_t begin = writer.ask(record, 1000);
  ask_for(10, 0);
  const int64_t middle = writer.ask(record, 1000);
  writer.ask(wait, 1000, 1, middle);
  ask_for(5, 1);
  const int64_t side = writer.ask(record, 1000, 1);
  ask_for(20, 0);
  const int64_t end = writer.ask(record, 1000);
  SimulatedEvents events(writer.trace, gpu, {});
  const auto between = [&](int64_t from, int64_t to) {
    return *events.seconds_of(to) - *events.seconds_of(from);
  };
  const double kernel = streaming_seconds(gpu, 3.0 * 4 * (1 << 24));
  CHECK(between(begin, middle) == Approx(10 * kernel));
  CHECK(between(middle, end) == Approx(20 * kernel));
  CHECK(between(middle, side) == Approx(5 * kernel));
  CHECK(between(end, begin) == Approx(-30 * kernel));
  CHECK_FALSE(events.seconds_of(begin + 1));
  CHECK_FALSE(events.seconds_of(-1));
  CHECK_FALSE(events.seconds_of(end + 1));
}

TEST_CASE("equal calls of attention take as long each", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  const OperatorInput head = tensor({4, 32, 4096, 128}, NumberType::bf16);
  const auto seconds_of = [&](int calls) {
    TraceWriter writer;
    const uint32_t record = writer.piece({.kind = WorkKind::event_record});
    const uint32_t attend =
        writer.kernel(writer.call("aten::_scaled_dot_product_flash_attention", {head, head, head}));
    for (int i = 0; i < 20; ++i) writer.ask(attend, 1000);
    const int64_t begin = writer.ask(record, 1000);
    for (int i = 0; i < calls; ++i) writer.ask(attend, 1000);
    const int64_t end = writer.ask(record, 1000);
    SimulatedEvents events(writer.trace, gpu, {});
    return *events.seconds_of(end) - *events.seconds_of(begin);
  };
  CHECK(seconds_of(1) > 1e-3);
  CHECK(seconds_of(7) == Approx(7 * seconds_of(1)));
}

TEST_CASE("a trace that grows gives each event the time of the whole one", "[planner][time]") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    RandomTrace random(seed);
    SimulatedEvents followed(random.trace(), find_gpu("h100"), {});
    std::vector<double> seen;
    for (int part = 0; part < 20; ++part) {
      random.grow(15);
      for (size_t i = seen.size(); i < random.events().size(); ++i) {
        seen.push_back(*followed.seconds_of(random.events()[i]));
      }
    }
    SimulatedEvents whole(random.trace(), find_gpu("h100"), {});
    const auto& events = random.events();
    REQUIRE(seen.size() > 10);
    CHECK(whole.seconds_of(events.back()) == seen.back());
    for (size_t i = 0; i < seen.size(); ++i) CHECK(whole.seconds_of(events[i]) == seen[i]);
  }
}

TEST_CASE("what a host does lies between the work that it asked for before and after",
          "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  TraceWriter writer;
  const uint32_t add = writer.kernel(writer.call("aten::add", two_tensors()));
  const uint32_t copy = writer.piece({.kind = WorkKind::copy, .copy = {.bytes = 1 << 20}});
  const uint32_t wait = writer.piece({.kind = WorkKind::device_synchronize});
  constexpr int64_t kHost = 20'000;
  const int64_t one = writer.ask(add, kHost);
  const int64_t two = writer.ask(add, kHost);
  writer.ask(copy, kHost, 7);
  const int64_t three = writer.ask(add, kHost);
  const int64_t waits = writer.ask(wait, kHost);
  const int64_t last = writer.ask(add, kHost);
  const PredictedTimes times(writer.trace, gpu, {});
  const auto recorded = [&](int64_t item) {
    return writer.trace.items[static_cast<size_t>(item)].time_ns;
  };
  const auto& streams = times.gpu_work().streams;
  REQUIRE(streams.size() == 2);
  CHECK(streams[1].number == 7);
  REQUIRE(streams[1].slices.size() == 1);
  CHECK(streams[1].slices.front().work == profiler::GpuWork::copy);
  REQUIRE(streams[0].slices.size() == 4);
  CHECK(times.gpu_work().names[streams[0].slices.front().name] == "kernel");
  const double kernel_ns = 1e9 * streaming_seconds(gpu, 3.0 * 4 * (1 << 24));
  const auto begin_of = [&](size_t kernel) { return streams[0].slices[kernel].begin_ns; };
  const auto end_of = [&](size_t kernel) { return streams[0].slices[kernel].end_ns; };
  CHECK(static_cast<double>(end_of(0) - begin_of(0)) == Approx(kernel_ns).margin(1));

  // A kernel takes longer than the host's next requests, so the second and the third wait for it.
  const int64_t latency_ns = std::llround(1e9 * kLaunchLatency);
  CHECK(begin_of(0) == recorded(one) + latency_ns);
  CHECK(times.time_of(100) == 100 + latency_ns);
  CHECK(begin_of(1) == end_of(0));
  CHECK(begin_of(2) == end_of(1));
  CHECK(times.time_of(recorded(one)) == end_of(0));
  CHECK(times.time_of(recorded(two) - 1) == end_of(0));
  CHECK(times.time_of(recorded(two)) == end_of(1));
  CHECK(times.time_of(recorded(three) - 1) == end_of(1));
  // When the host has waited, the third has ended, and nothing makes the last one wait.
  CHECK(times.time_of(recorded(waits) - 1) == end_of(2));
  CHECK(times.time_of(recorded(waits)) == end_of(2));
  CHECK(begin_of(3) > end_of(2) + kHost / 2);
  CHECK(begin_of(3) < end_of(2) + 2 * kHost);
  CHECK(std::abs(times.time_of(recorded(last) - kHost / 2) - (end_of(2) + begin_of(3)) / 2) <= 1);
  CHECK(times.time_of(recorded(last)) == end_of(3));
  CHECK(times.time_of(recorded(last) + 500) == end_of(3) + 500);
  CHECK(times.end_ns() == end_of(3));
}

TEST_CASE("predicted times rise, and no stream runs two kernels at once", "[planner][time]") {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    RandomTrace random(seed);
    random.grow(300);
    const WorkTrace& trace = random.trace();
    const PredictedTimes times(trace, find_gpu("h100"), {});
    const int64_t end_ns = trace.items.back().time_ns + 1000;
    int64_t before = times.time_of(-1);
    for (int64_t ns = 0; ns < end_ns; ns += end_ns / 5000 + 1) {
      const int64_t now = times.time_of(ns);
      CHECK(now >= before);
      before = now;
    }
    for (const profiler::GpuStream& stream : times.gpu_work().streams) {
      int64_t ready = 0;
      for (const profiler::GpuSlice& slice : stream.slices) {
        CHECK(slice.begin_ns >= ready);
        CHECK(slice.end_ns >= slice.begin_ns);
        ready = slice.end_ns;
      }
    }
  }
}
