// A small synthetic recording with a real schedule: forward keeps activations, gathers hold
// weights, backward frees them, in steps whose pace can differ between strategies. The options
// determine everything, so pictures can be compared byte for byte.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/spec.h"
#include "planner/schedule/schedule.h"
#include "profiler/recording/profile.h"

namespace shardlens::tests {

struct ViewRecordingOptions {
  int32_t rank = 0;
  int32_t world_size = 2;
  bool keep_weights = false;  // --reshard-after-forward false
  int steps = 3;
  int64_t activation_bytes = int64_t{3} << 20;
  int64_t weight_bytes = int64_t{2} << 20;
  int64_t state_bytes = int64_t{8} << 20;
  int64_t forward_ns = 4'000'000;
  int64_t backward_ns = 9'000'000;
  std::string device = "null:h200";
};

class ViewRecorder {
 public:
  explicit ViewRecorder(ViewRecordingOptions options) : options_(std::move(options)) {
    planner::Strategy strategy;
    strategy.kind = planner::StrategyKind::fsdp;
    strategy.world_size = options_.world_size;
    strategy.reshard_after_forward =
        options_.keep_weights ? planner::Reshard::no : planner::Reshard::yes;
    schedule_ =
        planner::build_schedule(models::find_spec("vit-tutorial"), strategy, planner::Pass::train);
    profile_.header.rank = options_.rank;
    profile_.header.world_size = options_.world_size;
    profile_.header.device = options_.device;
    profile_.header.capacity_bytes = int64_t{1} << 30;
    profile_.header.train = planner::to_text(schedule_);
    profile_.header.config = options_.keep_weights
                                 ? R"({"strategy":"fsdp","reshard_after_forward":"false"})"
                                 : R"({"strategy":"fsdp","reshard_after_forward":"true"})";
  }

  profiler::Profile record() {
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::starting));
    for (const planner::Group& group : schedule_.groups) {
      allocate(options_.state_bytes, Category::parameter_shard, group.name, 50'000);
      allocate(2 * options_.state_bytes, Category::optimizer_state, group.name, 50'000);
    }
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::training));
    for (int step = 0; step < options_.steps; ++step) {
      mark(profiler::EventKind::step, step);
      for (size_t id = 0; id < schedule_.actions.size(); ++id) run(static_cast<int32_t>(id));
      for (const auto& [name, address] : std::exchange(weights_, {})) release(address);
    }
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::ending));
    return std::move(profile_);
  }

 private:
  using Category = profiler::Category;

  void run(int32_t id) {
    const planner::Action& action = schedule_.actions[static_cast<size_t>(id)];
    action_ = id;
    mark(profiler::EventKind::action_begin, 0);
    switch (action.kind) {
      case planner::ActionKind::all_gather:
        gather(schedule_.groups[static_cast<size_t>(action.group)].name);
        break;
      case planner::ActionKind::reshard:
        release_group(schedule_.groups[static_cast<size_t>(action.group)].name);
        break;
      case planner::ActionKind::forward:
        forward(schedule_.units[static_cast<size_t>(action.unit)]);
        break;
      case planner::ActionKind::backward:
        backward(schedule_.units[static_cast<size_t>(action.unit)]);
        break;
      default:
        time_ns_ += 10'000;
    }
    mark(profiler::EventKind::action_end, 0);
    action_ = -1;
  }

  void gather(const std::string& group) {
    if (weights_.contains(group)) return;
    weights_[group] = allocate(options_.weight_bytes, Category::unsharded_parameter, group, 20'000);
  }
  void release_group(const std::string& group) {
    const auto at = weights_.find(group);
    if (at == weights_.end()) return;
    release(at->second);
    weights_.erase(at);
  }
  void forward(const std::string& unit) {
    const uint64_t temporary =
        allocate(options_.activation_bytes / 2, Category::workspace, "", options_.forward_ns / 2);
    activations_[unit] =
        allocate(options_.activation_bytes, Category::activation, unit, options_.forward_ns / 2);
    release(temporary);
  }
  void backward(const std::string& unit) {
    const uint64_t gradient =
        allocate(options_.activation_bytes, Category::gradient, unit, options_.backward_ns);
    if (const auto at = activations_.find(unit); at != activations_.end()) {
      release(at->second);
      activations_.erase(at);
    }
    release(gradient);
  }

  uint32_t intern(const std::string& text) {
    const auto [at, is_new] =
        strings_.try_emplace(text, static_cast<uint32_t>(profile_.strings.size()));
    if (is_new) profile_.strings.push_back(text);
    return at->second;
  }

  void write(profiler::Event event) {
    event.time_ns = time_ns_;
    event.action = action_;
    profile_.events.push_back(event);
  }
  void mark(profiler::EventKind kind, int64_t value) { write({.value = value, .kind = kind}); }

  uint64_t allocate(int64_t bytes, Category category, const std::string& label, int64_t took_ns) {
    time_ns_ += took_ns;
    const uint64_t address = next_ += static_cast<uint64_t>(bytes);
    sizes_[address] = bytes;
    write({.address = address,
           .value = bytes,
           .label = intern(label),
           .kind = profiler::EventKind::alloc,
           .space = space(),
           .category = category});
    return address;
  }
  void release(uint64_t address) {
    time_ns_ += 5'000;
    write({.address = address,
           .value = sizes_[address],
           .kind = profiler::EventKind::free,
           .space = space()});
  }
  profiler::Space space() const {
    return options_.device == "cpu" ? profiler::Space::host : profiler::Space::device;
  }

  ViewRecordingOptions options_;
  planner::Schedule schedule_;
  profiler::Profile profile_;
  std::map<std::string, uint32_t> strings_ = {{"", 0}};
  std::map<std::string, uint64_t> weights_;      // by group
  std::map<std::string, uint64_t> activations_;  // by unit
  std::map<uint64_t, int64_t> sizes_;
  uint64_t next_ = 0x1000;
  int64_t time_ns_ = 0;
  int32_t action_ = -1;
};

inline profiler::Profile view_recording(ViewRecordingOptions options = {}) {
  return ViewRecorder(std::move(options)).record();
}

}  // namespace shardlens::tests
