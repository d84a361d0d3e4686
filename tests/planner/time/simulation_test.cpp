// The simulation of host and streams, compared with closed formulas, and on random programs with
// an independent way to compute the same: the longest path through all that must happen before.

#include <algorithm>
#include <array>
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/time/simulation.h"

using namespace shardlens::planner;
using Catch::Approx;

namespace {

Task kernel(double seconds, uint16_t stream = 0, double host = 0) {
  return {.stream = stream, .host_seconds = host, .seconds = seconds};
}

Task record(uint16_t stream) { return {.kind = TaskKind::record_event, .stream = stream}; }

Task wait_for(int64_t event, uint16_t stream) {
  return {.kind = TaskKind::wait_event, .stream = stream, .event = event};
}

double end_of(const std::vector<Task>& tasks) {
  double end = 0;
  for (const TaskTimes& times : simulate(tasks)) end = std::max(end, times.end);
  return end;
}

/// Times by relaxation: every rule is an edge "not before", and all are applied to all tasks until
/// nothing moves. `host` is the host's clock after a task.
struct Relaxation {
  std::vector<TaskTimes> times;
  std::vector<double> host;
};

bool raise(double& value, double to) {
  if (to <= value) return false;
  value = to;
  return true;
}

/// Returns when a task's stream is ready: when all tasks that were asked there before have ended.
double stream_before(const std::vector<Task>& tasks, const Relaxation& relaxed, size_t index,
                     uint16_t stream) {
  double ready = 0;
  for (size_t i = 0; i < index; ++i) {
    const bool counts = tasks[i].kind == TaskKind::run || tasks[i].kind == TaskKind::wait_event;
    if (counts && tasks[i].stream == stream) ready = std::max(ready, relaxed.times[i].end);
  }
  return ready;
}

double all_before(const std::vector<Task>& tasks, const Relaxation& relaxed, size_t index) {
  double ready = 0;
  for (uint16_t stream = 0; stream < 4; ++stream) {
    ready = std::max(ready, stream_before(tasks, relaxed, index, stream));
  }
  return ready;
}

bool relax(const std::vector<Task>& tasks, Relaxation& relaxed, size_t i) {
  const Task& task = tasks[i];
  TaskTimes& times = relaxed.times[i];
  const double before = i == 0 ? 0 : relaxed.host[i - 1];
  const double asked = before + (task.host_seconds + task.call_seconds);
  const double event = task.event < 0 ? 0 : relaxed.times[static_cast<size_t>(task.event)].end;
  const double stream = stream_before(tasks, relaxed, i, task.stream);
  bool moved = raise(times.asked, asked);
  double begin = asked, end = asked, host = asked;
  if (task.kind == TaskKind::run) {
    begin = std::max(stream, asked + kLaunchLatency);
    if (task.joins_previous && i > 0) begin = std::max(begin, relaxed.times[i - 1].begin);
    end = begin + task.seconds;
    if (task.blocks) host = std::max(asked, end);
  } else if (task.kind == TaskKind::record_event) {
    begin = end = std::max(stream, asked);
  } else if (task.kind == TaskKind::wait_event) {
    begin = end = std::max(stream, event);
  } else if (task.kind != TaskKind::mark) {
    const double until = task.kind == TaskKind::synchronize_event ? event
                         : task.kind == TaskKind::synchronize_stream
                             ? stream
                             : all_before(tasks, relaxed, i);
    end = host = std::max(asked, until);
  }
  moved |= raise(times.begin, begin);
  moved |= raise(times.end, end);
  return raise(relaxed.host[i], host) || moved;
}

/// Applies the rules from the last task to the first, so that it cannot resemble the simulation.
std::vector<TaskTimes> brute_force(const std::vector<Task>& tasks) {
  Relaxation relaxed{std::vector<TaskTimes>(tasks.size()), std::vector<double>(tasks.size())};
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t i = tasks.size(); i-- > 0;) moved |= relax(tasks, relaxed, i);
  }
  return relaxed.times;
}

std::vector<Task> random_program(std::mt19937_64& engine) {
  const auto below = [&engine](int limit) { return static_cast<int>(engine() % limit); };
  std::vector<Task> tasks;
  std::vector<int64_t> events;
  const int size = 5 + below(60);
  for (int i = 0; i < size; ++i) {
    Task task{.stream = static_cast<uint16_t>(below(4)),
              .host_seconds = below(3) == 0 ? below(100) * 1e-6 : below(10) * 1e-6,
              .call_seconds = below(4) * 1e-6};
    const int kind = below(12);
    if (kind < 7) {
      task.seconds = below(200) * 1e-6;
      task.blocks = below(10) == 0;
      task.joins_previous = i > 0 && tasks.back().kind == TaskKind::run && below(5) == 0;
    } else if (kind < 9 || events.empty()) {
      task.kind = TaskKind::record_event;
      events.push_back(i);
    } else if (kind < 11) {
      task.kind = below(4) == 0 ? TaskKind::synchronize_event : TaskKind::wait_event;
      task.event = events[static_cast<size_t>(below(static_cast<int>(events.size())))];
    } else {
      task.kind = std::array{TaskKind::synchronize_stream, TaskKind::synchronize_device,
                             TaskKind::mark}[static_cast<size_t>(below(3))];
    }
    tasks.push_back(task);
  }
  return tasks;
}

}  // namespace

TEST_CASE("random programs end when the longest path through them does", "[planner][time]") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const std::vector<Task> tasks = random_program(engine);
    REQUIRE(simulate(tasks) == brute_force(tasks));
  }
}

TEST_CASE("a chain that is bound by launches takes as long as the host", "[planner][time]") {
  constexpr int kKernels = 500;
  const std::vector<Task> slow_host(kKernels, kernel(3e-6, 0, 10e-6));
  CHECK(end_of(slow_host) == Approx(kKernels * 10e-6 + kLaunchLatency + 3e-6));
  const std::vector<Task> fast_host(kKernels, kernel(10e-6, 0, 3e-6));
  CHECK(end_of(fast_host) == Approx(3e-6 + kLaunchLatency + kKernels * 10e-6));
}

TEST_CASE("a prefetch hides what is shorter than the compute beside it", "[planner][time]") {
  // Layer i's gather on stream 1 begins with the compute of layer i - 1, which it may hide behind.
  const auto layers = [](int count, double gather, double compute) {
    std::vector<Task> tasks = {kernel(gather, 1), record(1)};
    for (int i = 0; i < count; ++i) {
      const auto gathered = static_cast<int64_t>(tasks.size()) - 1;
      tasks.push_back(wait_for(gathered, 0));
      tasks.push_back(record(0));
      const auto started = static_cast<int64_t>(tasks.size()) - 1;
      tasks.push_back(kernel(compute));
      tasks.push_back(wait_for(started, 1));
      tasks.push_back(kernel(gather, 1));
      tasks.push_back(record(1));
    }
    tasks.push_back({.kind = TaskKind::synchronize_stream});
    return simulate(tasks).back().end;
  };
  CHECK(layers(20, 1e-3, 3e-3) == Approx(1e-3 + 20 * 3e-3 + kLaunchLatency));
  CHECK(layers(20, 3e-3, 1e-3) == Approx(20 * 3e-3 + 1e-3 + kLaunchLatency));
}

TEST_CASE("a pipeline of one forward and one backward has the bubble of p - 1", "[planner][time]") {
  // Each stage is a stream; a microbatch's forward goes down the stages and its backward up.
  constexpr int kStages = 4, kBatches = 16;
  constexpr double kForward = 1e-3, kBackward = 2e-3;
  struct Slot {
    bool is_backward;
    int batch;
  };
  std::vector<std::vector<Slot>> orders(kStages);
  for (int stage = 0; stage < kStages; ++stage) {
    const int ahead = std::min(kStages - 1 - stage, kBatches);
    for (int i = 0; i < ahead; ++i) orders[stage].push_back({false, i});
    for (int i = 0; i < kBatches; ++i) {
      if (ahead + i < kBatches) orders[stage].push_back({false, ahead + i});
      orders[stage].push_back({true, i});
    }
  }
  std::vector<Task> tasks;
  std::vector<std::vector<int64_t>> done[2];
  for (auto& table : done) table.assign(kStages, std::vector<int64_t>(kBatches, -1));
  std::vector<size_t> next(kStages, 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (int stage = 0; stage < kStages; ++stage) {
      if (next[stage] == orders[stage].size()) continue;
      const Slot slot = orders[stage][next[stage]];
      const int from = slot.is_backward ? stage + 1 : stage - 1;
      const bool is_first = from < 0 || from == kStages;
      if (!is_first && done[slot.is_backward][from][slot.batch] < 0) continue;
      const auto stream = static_cast<uint16_t>(stage);
      if (!is_first) tasks.push_back(wait_for(done[slot.is_backward][from][slot.batch], stream));
      tasks.push_back(kernel(slot.is_backward ? kBackward : kForward, stream));
      tasks.push_back(record(stream));
      done[slot.is_backward][stage][slot.batch] = static_cast<int64_t>(tasks.size()) - 1;
      ++next[stage];
      moved = true;
    }
  }
  CHECK(end_of(tasks) ==
        Approx((kBatches + kStages - 1) * (kForward + kBackward) + kLaunchLatency));
}

TEST_CASE("a full queue makes the host wait for the stream", "[planner][time]") {
  std::vector<Task> tasks(3 * kQueueDepth, kernel(1e-3));
  tasks.push_back({.kind = TaskKind::mark});
  const double asked = simulate(tasks).back().asked;
  CHECK(asked == Approx((2 * kQueueDepth) * 1e-3 + kLaunchLatency));
}

namespace {

/// Programs of several ranks that are made together, with what they take: each piece of work comes
/// when all before it in this order are known.
class TogetherModel {
 public:
  explicit TogetherModel(size_t ranks)
      : tasks(ranks), begins(ranks), hosts_(ranks), streams_(ranks) {}

  std::vector<std::vector<Task>> tasks;
  std::vector<std::vector<double>> begins;
  std::vector<Meeting> meetings;

  void work(size_t rank, const Task& task) { begin(rank, task, arrival(rank, task)); }

  void meet(const std::vector<size_t>& ranks, const Task& task) {
    double last = 0;
    for (const size_t rank : ranks) last = std::max(last, arrival(rank, task));
    Meeting& meeting = meetings.emplace_back();
    for (const size_t rank : ranks) {
      meeting.push_back({rank, tasks[rank].size()});
      begin(rank, task, last);
    }
  }

 private:
  double arrival(size_t rank, const Task& task) {
    hosts_[rank] += task.host_seconds;
    return std::max(streams_[rank][task.stream], hosts_[rank] + kLaunchLatency);
  }

  void begin(size_t rank, const Task& task, double at) {
    tasks[rank].push_back(task);
    begins[rank].push_back(at);
    streams_[rank][task.stream] = at + task.seconds;
    if (task.blocks) hosts_[rank] = std::max(hosts_[rank], at + task.seconds);
  }

  std::vector<double> hosts_;
  std::vector<std::array<double, 3>> streams_;
};

/// The order of a stage in 1F1B: forward and backward of microbatches.
std::vector<std::pair<bool, int>> one_forward_one_backward(int stage, int stages,
                                                           int microbatches) {
  std::vector<std::pair<bool, int>> order;
  const int warm_up = std::min(stages - stage - 1, microbatches);
  for (int i = 0; i < warm_up; ++i) order.emplace_back(true, i);
  for (int i = warm_up; i < microbatches; ++i) {
    order.emplace_back(true, i);
    order.emplace_back(false, i - warm_up);
  }
  for (int i = microbatches - warm_up; i < microbatches; ++i) order.emplace_back(false, i);
  return order;
}

}  // namespace

TEST_CASE("ranks that meet are simulated as one by one in an order that holds for all",
          "[planner][time]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  const auto upto = [&](size_t most) { return random() % most; };
  for (int i = 0; i < 200; ++i) {
    const size_t ranks = 2 + upto(4);
    TogetherModel model(ranks);
    for (int step = 0; step < 60; ++step) {
      Task task = kernel(1e-6 * static_cast<double>(upto(500)), static_cast<uint16_t>(upto(3)),
                         1e-6 * static_cast<double>(upto(200)));
      task.blocks = upto(8) == 0;
      std::vector<size_t> together;
      for (size_t rank = 0; rank < ranks; ++rank) {
        if (upto(2) == 0) together.push_back(rank);
      }
      if (together.size() > 1) {
        model.meet(together, task);
      } else {
        model.work(upto(ranks), task);
      }
    }
    const auto times = simulate_together(model.tasks, model.meetings);
    REQUIRE(times);
    for (size_t rank = 0; rank < ranks; ++rank) {
      for (size_t task = 0; task < model.tasks[rank].size(); ++task) {
        CHECK((*times)[rank][task].begin == Approx(model.begins[rank][task]));
      }
    }
  }
}

TEST_CASE("a pipeline of 1F1B has the bubble of its formula", "[planner][time]") {
  constexpr double kForward = 1e-3, kBackward = 2e-3;
  for (const auto& [stages, microbatches] : {std::pair(2, 4), {4, 8}, {4, 2}, {8, 16}}) {
    std::vector<std::vector<Task>> ranks(static_cast<size_t>(stages));
    std::map<std::tuple<bool, int, int>, Meeting> messages;  // by direction, sender and microbatch
    for (int stage = 0; stage < stages; ++stage) {
      std::vector<Task>& tasks = ranks[static_cast<size_t>(stage)];
      // Each message has a stream of its own, as a receive that comes early delays nothing.
      uint16_t stream = 1;
      for (const auto& [is_forward, batch] :
           one_forward_one_backward(stage, stages, microbatches)) {
        const int from = is_forward ? stage - 1 : stage + 1,
                  to = is_forward ? stage + 1 : stage - 1;
        const auto message = [&](int sender) {
          messages[{is_forward, sender, batch}].push_back(
              {static_cast<size_t>(stage), tasks.size()});
          tasks.push_back(kernel(0, ++stream));
        };
        if (from >= 0 && from < stages) {
          message(from);
          tasks.push_back(record(stream));
          tasks.push_back(wait_for(std::ssize(tasks) - 1, 0));
        }
        tasks.push_back(kernel(is_forward ? kForward : kBackward));
        tasks.push_back(record(0));
        if (to < 0 || to >= stages) continue;
        tasks.push_back(wait_for(std::ssize(tasks) - 1, static_cast<uint16_t>(stream + 1)));
        message(stage);
      }
    }
    std::vector<Meeting> meetings;
    for (const auto& [key, meeting] : messages) {
      REQUIRE(meeting.size() == 2);
      meetings.push_back(meeting);
    }
    const auto times = simulate_together(ranks, meetings);
    REQUIRE(times);
    double end = 0;
    for (const auto& rank : *times) {
      for (const TaskTimes& one : rank) end = std::max(end, one.end);
    }
    CHECK(end == Approx((microbatches + stages - 1) * (kForward + kBackward)).epsilon(0.01));
  }
}

TEST_CASE("ranks that wait for each other in a circle have no times", "[planner][time]") {
  const std::vector<std::vector<Task>> ranks = {{kernel(1), kernel(1)}, {kernel(1), kernel(1)}};
  const std::vector<Meeting> crossed = {{{0, 0}, {1, 1}}, {{0, 1}, {1, 0}}};
  CHECK_FALSE(simulate_together(ranks, crossed));
  CHECK(simulate_together(ranks, std::vector<Meeting>{{{0, 0}, {1, 0}}, {{0, 1}, {1, 1}}}));
}
