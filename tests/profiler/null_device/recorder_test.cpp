// Tests the recorder on the null device: what it says about a rank's steps is what the schedule
// says, and what LibTorch counts.
#include "profiler/recorder/recorder.h"

#include <ATen/ATen.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/AutogradState.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "profiler/file/reader.h"
#include "profiler/report/report.h"
#include "runtime/execute/device.h"
#include "runtime/execute/executor.h"
#include "tests/support/idle_communicator.h"
#include "tests/support/strategies.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::profiler;
using namespace shardlens::runtime;
using planner::Schedule;

namespace {

constexpr int kWorldSize = 8;
constexpr int kSteps = 3;

const models::ModelSpec& spec() {
  static const models::ModelSpec spec = models::find_spec("vit-tutorial");
  return spec;
}

c10::Device null_device() {
  runtime::keep_backward_on_this_thread();
  return runtime::open_device({.kind = DeviceKind::null, .gpu = "h200"}, 0);
}

struct Recording {
  Profile profile;
  int64_t requested_peak_bytes = 0;  // as LibTorch counts them
  int64_t lost_events = 0;
};

c10::CachingAllocator::Stat requested_bytes() {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(0).requested_bytes[0];
}

Recording record_steps(const Schedule& schedule, const planner::Config& config,
                       std::optional<StepRange> steps = {}) {
  const tests::TemporaryFolder folder;
  const c10::Device device = null_device();
  c10::cuda::CUDACachingAllocator::emptyCache();
  at::getHostAllocator(at::kCUDA)->empty_cache();
  c10::cuda::CUDACachingAllocator::resetPeakStats(0);
  // These are from earlier recordings in this process: cuBLAS keeps its workspaces.
  const int64_t before_bytes = requested_bytes().current;
  Recorder recorder(
      {.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true, .steps = steps});
  recorder.phase(Phase::training);
  {
    runtime::take_workspaces(device);
    const auto streams = runtime::make_streams(device);
    const runtime::ExecutorOptions options = runtime::executor_options(config);
    runtime::RankState state(spec(), schedule, 0, device, options.optimizer);
    tests::IdleCommunicator idle;
    runtime::Executor executor(spec(), state, *streams, {&idle, &idle, &idle, &idle}, options);
    const Scope scope(Category::input, "batch");
    const models::Batch batch{.input = at::zeros({64, 1, 28, 28}, at::TensorOptions(device)),
                              .targets = at::zeros({64}, at::dtype(at::kLong).device(device))};
    for (int step = 0; step < kSteps; ++step) {
      recorder.step(step);
      executor.run(schedule, step, [&] { return batch; });
      recorder.sample_device();
    }
  }
  Recording recording;
  recording.requested_peak_bytes = requested_bytes().peak - before_bytes;
  recording.lost_events = recorder.close().lost_events;
  recording.profile = read_profile(folder.file("rank0.slp"));
  return recording;
}

struct Block {
  int64_t bytes = 0;
  Category category{};
  std::string label;
};

struct Peak {
  int action = -1;  // at that moment
  std::vector<Block> blocks;
};

/// The device's blocks at the first moment of the highest requested bytes. A block has the purpose
/// that it gets later from the start.
Peak find_peak(const Profile& profile) {
  std::vector<Category> categories(profile.events.size());
  std::map<uint64_t, size_t> live;
  for (size_t i = 0; i < profile.events.size(); ++i) {
    const Event& event = profile.events[i];
    if (event.space != Space::device) continue;
    if (event.kind == EventKind::alloc) live[event.address] = i;
    if (event.kind == EventKind::alloc) categories[i] = event.category;
    if (event.kind == EventKind::recategorise) categories[live.at(event.address)] = event.category;
  }
  live.clear();
  std::map<uint64_t, size_t> at_peak;
  int64_t total = 0, peak = 0;
  Peak found;
  for (size_t i = 0; i < profile.events.size(); ++i) {
    const Event& event = profile.events[i];
    if (event.space != Space::device) continue;
    if (event.kind == EventKind::alloc) {
      live[event.address] = i;
      total += event.value;
    } else if (event.kind == EventKind::free && live.erase(event.address) == 1) {
      total -= event.value;
    }
    if (total > peak) {
      peak = total;
      at_peak = live;
      found.action = event.action;
    }
  }
  for (const auto& [address, i] : at_peak) {
    const Event& event = profile.events[i];
    found.blocks.push_back({event.value, categories[i], profile.strings[event.label]});
  }
  return found;
}

int64_t bytes_of(const std::vector<Block>& blocks, Category category) {
  int64_t bytes = 0;
  for (const Block& block : blocks) bytes += block.category == category ? block.bytes : 0;
  return bytes;
}

int64_t slot_bytes(const Schedule& schedule, std::vector<planner::SlotKind> kinds) {
  int64_t bytes = 0;
  for (const planner::Slot& slot : schedule.slots) {
    if (slot.on_host) continue;
    if (std::count(kinds.begin(), kinds.end(), slot.kind) > 0) bytes += slot.bytes;
  }
  return bytes;
}

/// Gradient shards on the device that have memory while an action runs.
int64_t gradient_shard_bytes(const Schedule& schedule, int action) {
  const planner::SlotLives lives = schedule.slot_lives();
  int64_t bytes =
      slot_bytes(schedule, {planner::SlotKind::gradient_sum, planner::SlotKind::master_gradient});
  for (int id = 0; id < action; ++id) {
    for (const int slot : lives.begin[static_cast<size_t>(id)]) bytes += schedule.slot(slot).bytes;
    for (const int slot : lives.end[static_cast<size_t>(id)]) bytes -= schedule.slot(slot).bytes;
  }
  return bytes;
}

int64_t shard_bytes(const Schedule& schedule, bool with_frozen) {
  int64_t bytes = 0;
  for (const planner::Group& group : schedule.groups) {
    for (const planner::Bucket& bucket : group.buckets) {
      if (with_frozen || !bucket.frozen) bytes += schedule.shard_numel(bucket) * 4;
    }
  }
  return bytes;
}

/// Parameters that the device keeps between their uses.
int64_t parameter_bytes(const Schedule& schedule) {
  if (schedule.offload == planner::Offload::none) return shard_bytes(schedule, true);
  int64_t bytes = slot_bytes(schedule, {planner::SlotKind::master});
  if (schedule.offload != planner::Offload::optimizer) return bytes;
  for (const planner::Group& group : schedule.groups) {
    for (const planner::Bucket& bucket : group.buckets) {
      bytes += schedule.shard_numel(bucket) * bytes_of(bucket.dtype);
    }
  }
  return bytes;
}

/// Moments, the step count, and the state of a loss scale.
int64_t optimizer_bytes(const Schedule& schedule, const planner::Config& config) {
  int64_t moments = 2;
  if (config.optimizer == planner::OptimizerKind::sgd) moments = config.momentum > 0 ? 1 : 0;
  int64_t scalars = 1;
  if (schedule.steps_on_host()) moments = scalars = 0;
  const auto scale = planner::loss_scale_of(config).kind;
  if (scale != planner::LossScale::Kind::none) ++scalars;
  if (scale == planner::LossScale::Kind::dynamic) ++scalars;
  return moments * shard_bytes(schedule, false) + scalars * 4;
}

}  // namespace

TEST_CASE("memory that lives through a step is recorded with the schedule's bytes") {
  using planner::SlotKind;
  for (const auto& [name, config, strategy] : tests::all_strategies(kWorldSize)) {
    INFO(name);
    const Schedule schedule = build_schedule(spec(), strategy, planner::Pass::train);
    const Recording recording = record_steps(schedule, config);
    const auto [action, blocks] = find_peak(recording.profile);
    CHECK(bytes_of(blocks, Category::parameter_shard) == parameter_bytes(schedule));
    CHECK(bytes_of(blocks, Category::optimizer_state) == optimizer_bytes(schedule, config));
    CHECK(bytes_of(blocks, Category::unsharded_parameter) ==
          slot_bytes(schedule, {SlotKind::unsharded, SlotKind::kept_shard}));
    CHECK(bytes_of(blocks, Category::reduce_buffer) == slot_bytes(schedule, {SlotKind::reduce}));
    CHECK(bytes_of(blocks, Category::gradient_shard) == gradient_shard_bytes(schedule, action));
    CHECK(bytes_of(blocks, Category::input) == 64 * (28 * 28 * 4 + 8));
    int64_t total = 0;
    for (const Block& block : blocks) total += block.bytes;
    CHECK(total == recording.requested_peak_bytes);
    CHECK(bytes_of(blocks, Category::other) <= total / 100);
    CHECK(recording.lost_events == 0);
  }
}

TEST_CASE("actions are recorded in the schedule's order, each once a step") {
  for (const auto& [name, config, strategy] : tests::all_strategies(kWorldSize)) {
    INFO(name);
    const Schedule schedule = build_schedule(spec(), strategy, planner::Pass::train);
    const Profile profile = record_steps(schedule, config).profile;
    std::vector<int> began, ended;
    int64_t steps = 0;
    for (const Event& event : profile.events) {
      if (event.kind == EventKind::step) CHECK(event.value == steps++);
      if (event.kind == EventKind::action_begin) {
        CHECK(began == ended);  // the one before has ended
        began.push_back(event.action);
      }
      if (event.kind == EventKind::action_end) ended.push_back(event.action);
    }
    CHECK(steps == kSteps);
    CHECK(began == ended);
    REQUIRE(began.size() == kSteps * schedule.actions.size());
    for (size_t i = 0; i < began.size(); ++i) {
      REQUIRE(began[i] == static_cast<int>(i % schedule.actions.size()));
    }
  }
}

TEST_CASE("gradients are recorded as such, and belong to the backward of their unit") {
  const Schedule schedule =
      build_schedule(spec(), {.kind = planner::StrategyKind::fsdp, .world_size = kWorldSize},
                     planner::Pass::train);
  const Profile profile = record_steps(schedule, {}).profile;
  std::map<uint64_t, const Event*> live;
  size_t gradients = 0;
  for (const Event& event : profile.events) {
    if (event.space != Space::device) continue;
    if (event.kind == EventKind::alloc) live[event.address] = &event;
    if (event.kind != EventKind::recategorise || event.category != Category::gradient) continue;
    const Event& block = *live.at(event.address);
    ++gradients;
    REQUIRE(block.action >= 0);
    const planner::Action& action = schedule.actions[static_cast<size_t>(block.action)];
    CHECK(action.kind == planner::ActionKind::backward);
    CHECK(profile.strings[block.label] == schedule.units[static_cast<size_t>(action.unit)]);
  }
  // Gradients of linears' matrices are written to their reduce slot at once.
  constexpr size_t kPlaced = 10 * 4 + 1;
  CHECK(gradients == kSteps * (spec().parameters.size() - kPlaced));
}

TEST_CASE("a scope reaches the thread that autograd keeps for a device") {
  const tests::TemporaryFolder folder;
  const c10::Device device = null_device();
  c10::AutogradState::get_tls_state().set_multithreading_enabled(true);
  const at::Tensor weight = at::zeros({64, 64}, at::TensorOptions(device)).requires_grad_(true);
  Recorder recorder({.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true});
  {
    const Scope scope({Category::activation, recorder.label("unit"), 7});
    at::mm(weight, weight).sum().backward();
  }
  recorder.close();
  const Profile profile = read_profile(folder.file("rank0.slp"));
  size_t allocations = 0;
  for (const Event& event : profile.events) {
    if (event.space != Space::device || event.kind != EventKind::alloc) continue;
    ++allocations;
    CHECK(event.category == Category::activation);
    CHECK(event.action == 7);
    CHECK(profile.strings[event.label] == "unit");
  }
  CHECK(allocations >= 4);
}

namespace {

std::string name_of(Category category) { return std::string(to_string(category)); }

/// Says what a recording of a small backward contains about the device's blocks, without times and
/// addresses.
std::vector<std::string> record_backward(bool is_observed) {
  const tests::TemporaryFolder folder;
  const c10::Device device = null_device();
  const at::Tensor weight = at::zeros({64, 64}, at::TensorOptions(device)).requires_grad_(true);
  const at::Tensor hidden = at::layer_norm(at::gelu(at::mm(weight, weight)), {64});
  const at::Tensor loss = at::softmax(hidden, 1).sum();
  Recorder recorder({.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true});
  {
    const Scope scope({.category = Category::activation});
    std::optional<UnobservedBackward> unobserved;
    if (!is_observed) unobserved.emplace();
    loss.backward();
  }
  recorder.close();
  std::vector<std::string> lines;
  std::map<uint64_t, size_t> begun;  // the line of an address
  for (const Event& event : read_profile(folder.file("rank0.slp")).events) {
    if (event.space != Space::device) continue;
    if (event.kind == EventKind::alloc) begun[event.address] = lines.size();
    lines.push_back(std::to_string(static_cast<int>(event.kind)) + " of block " +
                    std::to_string(begun[event.address]) + ": " + std::to_string(event.value) +
                    " bytes, " + name_of(event.category));
  }
  return lines;
}

}  // namespace

TEST_CASE("a backward is split into the same calls, observed or not") {
  const auto observed = record_backward(true);
  const auto unobserved = record_backward(false);
  CHECK(observed == unobserved);
  CHECK(std::ranges::any_of(observed, [](const std::string& line) {
    return line.ends_with(name_of(Category::workspace));
  }));
}

TEST_CASE("a scope can change its purpose and return to the previous one") {
  const tests::TemporaryFolder folder;
  const c10::Device device = null_device();
  Recorder recorder({.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true});
  const auto allocate = [&] { at::empty({1024}, at::TensorOptions(device)); };
  {
    Scope scope({Category::input, recorder.label("a"), 1});
    allocate();
    const Purpose before = scope.change({Category::gradient, recorder.label("b"), 2});
    allocate();
    scope.change(before);
    allocate();
  }
  allocate();
  recorder.close();
  const Profile profile = read_profile(folder.file("rank0.slp"));
  std::vector<std::string> purposes;
  for (const Event& event : profile.events) {
    if (event.space != Space::device || event.kind != EventKind::alloc) continue;
    purposes.push_back(name_of(event.category) + " " + profile.strings[event.label] + " " +
                       std::to_string(event.action));
  }
  CHECK(purposes ==
        std::vector<std::string>{"input a 1", "gradient b 2", "input a 1", "other  -1"});
}

TEST_CASE("two recorders at once are refused, one after the other is not") {
  const tests::TemporaryFolder folder;
  null_device();
  {
    Recorder first({.path = folder.file("a.slp"), .header = {}, .on_cuda = true});
    CHECK(Recorder::active() == &first);
    CHECK_THROWS_AS(Recorder({.path = folder.file("b.slp"), .header = {}}), std::logic_error);
    CHECK(Recorder::active() == &first);
  }
  CHECK(Recorder::active() == nullptr);
  Recorder second({.path = folder.file("c.slp"), .header = {}, .on_cuda = true});
  CHECK(Recorder::active() == &second);
}

TEST_CASE("every byte of the null device has an owner") {
  const Schedule schedule =
      build_schedule(spec(), {.kind = planner::StrategyKind::fsdp, .world_size = kWorldSize},
                     planner::Pass::train);
  const Ledger ledger = analyse(record_steps(schedule, {}).profile).ledger;
  REQUIRE(ledger.device_used_bytes);
  REQUIRE(ledger.residual_bytes);
  CHECK(*ledger.residual_bytes == 0);
  CHECK(ledger.device_used_bytes == *ledger.context_bytes + *ledger.driver_bytes);
  REQUIRE(ledger.libraries.size() == 1);
  CHECK(ledger.libraries.front() ==
        std::pair<std::string, int64_t>("libc10_cuda.so", *ledger.reserved_bytes));
  const BlockTotals& blocks = ledger.blocks;
  CHECK(blocks.requested > 0);
  CHECK(blocks.allocated() + blocks.pending + blocks.split + blocks.cached == blocks.reserved);
}

TEST_CASE("a block that another stream still uses is pending, as LibTorch counts it") {
  const tests::TemporaryFolder folder;
  const c10::Device device = null_device();
  constexpr int64_t kMiB = int64_t{1} << 20;
  const auto bytes = [&](int64_t count) {
    return at::empty({count}, at::dtype(at::kByte).device(device));
  };
  Recorder recorder({.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true});
  int64_t pending = 0;
  {
    const at::Tensor before = bytes(3 * kMiB), after = bytes(2 * kMiB);
    at::Tensor used = bytes(4 * kMiB);
    used.record_stream(c10::cuda::getStreamFromPool(false, 0).unwrap());
    used.reset();
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(0);
    pending = stats.active_bytes[0].current - stats.allocated_bytes[0].current;
    recorder.sample_device();
    bytes(3 * kMiB);  // makes the allocator check it
  }
  recorder.close();
  CHECK(pending == 4 * kMiB);
  const RankReport report = analyse(read_profile(folder.file("rank0.slp")));
  CHECK(report.ledger.blocks.pending == pending);
  CHECK(report.ledger.residual_bytes == 0);
  CHECK(report.blocks_at_end.pending == 0);
  CHECK(report.blocks_at_end.unplaced == 0);
  CHECK(report.unmatched == 0);
}

TEST_CASE("pinned memory is recorded in LibTorch's sizes, and as it is used") {
  const tests::TemporaryFolder folder;
  const c10::Device device = null_device();
  const auto pinned = at::dtype(at::kByte).pinned_memory(true);
  at::getHostAllocator(at::kCUDA)->empty_cache();
  Recorder recorder({.path = folder.file("rank0.slp"), .header = {}, .on_cuda = true});
  {
    const at::Tensor on_device = at::empty({1}, at::TensorOptions(device));
    const at::Tensor a = at::empty({5000}, pinned);
    const Scope scope(Category::parameter_shard, "masters");
    const at::Tensor b = at::empty({3'000'000}, pinned);
    recorder.sample_device();
  }
  recorder.close();
  const Profile profile = read_profile(folder.file("rank0.slp"));
  int given = 0;
  for (const Event& event : profile.events) {
    if (event.space != Space::pinned || event.kind != EventKind::alloc) continue;
    ++given;
    const bool is_large = event.value == 1 << 22;
    CHECK(event.category == (is_large ? Category::parameter_shard : Category::other));
    CHECK((profile.strings[event.label] == "masters") == is_large);
  }
  CHECK(given == 2);
  const RankReport report = analyse(profile);
  constexpr int64_t kGiven = 8192 + (1 << 22);  // powers of two
  const auto largest = [&](Counter counter) {
    return report.counters[static_cast<size_t>(counter)].largest;
  };
  CHECK(largest(Counter::pinned_held) == kGiven);
  CHECK(largest(Counter::pinned_used) == kGiven);
  REQUIRE(report.spaces[static_cast<size_t>(Space::pinned)]);
  CHECK(report.spaces[static_cast<size_t>(Space::pinned)]->peak_bytes == kGiven);
  CHECK(report_text({report}).find("at most 4.01 MiB from the driver; 4.01 MiB held by LibTorch, "
                                   "4.01 MiB in use") != std::string::npos);
}

TEST_CASE("the recording of some steps says the same about them as the whole one") {
  runtime::take_workspaces(null_device());  // cuBLAS keeps them: no recording below has them
  for (const auto& [name, config, strategy] : tests::all_strategies(kWorldSize)) {
    INFO(name);
    const Schedule schedule = build_schedule(spec(), strategy, planner::Pass::train);
    const RankReport whole = analyse(record_steps(schedule, config).profile);
    const RankReport part = analyse(record_steps(schedule, config, StepRange{2, 2}).profile);
    REQUIRE(whole.steps.size() == kSteps);
    REQUIRE(part.steps.size() == 1);
    CHECK(part.steps[0].step == 1);
    for (const Space space : {Space::device, Space::pinned, Space::segment, Space::driver}) {
      // The host's own thread takes scalars while the device works, at varying places.
      const auto index = static_cast<size_t>(space);
      CHECK(part.steps[0].bytes[index] == whole.steps[1].bytes[index]);
    }
    CHECK(part.unmatched == 0);
    CHECK(part.events < whole.events / 2);
  }
}
