// A synthetic recording of training a ViT-like model: every rank's start, steps of forward and
// backward with actions, categories and labels, sometimes an evaluation, the end. Addresses are
// chosen as a caching allocator does (freed blocks of a size are used again), so steps repeat as
// real ones do; the times between events do not. Everything follows from the seed.
#pragma once

#include <bit>
#include <cstdint>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "profiler/recording/profile.h"

namespace shardlens::tests {

struct SyntheticOptions {
  uint64_t seed = 1;
  int steps = 20;
  int layers = 24;
  int64_t width = 1024;
  int64_t tokens = 197 * 8;  // of a batch
  int evaluate_every = 10;   // steps; 0: never
  int32_t rank = 0;
  int32_t world_size = 8;
};

/// Calls `take` with every event in order; `strings` and `header` are complete before the first.
class SyntheticTrace {
 public:
  explicit SyntheticTrace(SyntheticOptions options = {})
      : options_(options), engine_(options.seed) {
    for (int layer = 0; layer < options_.layers; ++layer) {
      labels_.push_back(intern("blocks." + std::to_string(layer)));
    }
    library_ = intern("libnccl.so.2");
    head_ = intern("head");
  }

  profiler::Header header() const {
    return {.rank = options_.rank,
            .world_size = options_.world_size,
            .device = "null:h200",
            .gpu = "NVIDIA H200",
            .capacity_bytes = int64_t{141} << 30,
            .notice = "synthetic",
            .config = "{\"model\": \"synthetic\"}",
            .train = "",
            .evaluate = "",
            .libraries = "LibTorch 2.11.0\n",
            .start_realtime_ns = 1'780'000'000'000'000'000};
  }
  const std::vector<std::string>& strings() const { return strings_; }

  void run(const std::function<void(const profiler::Event&)>& take) {
    take_ = &take;
    start();
    for (int step = 0; step < options_.steps; ++step) {
      mark(profiler::EventKind::step, step);
      train_step();
      counters(step);
      const int every = options_.evaluate_every;
      if (every > 0 && (step + 1) % every == 0) evaluate();
    }
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::ending));
    for (const SyntheticBlock& live : std::exchange(static_blocks_, {})) release(live);
  }

 private:
  using Category = profiler::Category;
  using Space = profiler::Space;
  struct SyntheticBlock {
    uint64_t address = 0;
    int64_t bytes = 0;
    Space space = Space::device;
    Category category = Category::other;
    uint32_t label = 0;
    uint16_t stream = 0;
  };

  uint32_t intern(std::string text) {
    strings_.push_back(std::move(text));
    return static_cast<uint32_t>(strings_.size() - 1);
  }

  /// Host times: a few microseconds, sometimes a stall.
  int64_t now_ns() {
    std::exponential_distribution<double> gap(1.0 / 4000);
    time_ns_ += 300 + static_cast<int64_t>(gap(engine_));
    if (engine_() % 4096 == 0) time_ns_ += 2'000'000;
    return time_ns_;
  }

  void emit(profiler::Event event) {
    event.time_ns = now_ns();
    event.action = action_;
    (*take_)(event);
  }

  void mark(profiler::EventKind kind, int64_t value) { emit({.value = value, .kind = kind}); }

  SyntheticBlock allocate(int64_t bytes, Category category, uint32_t label = 0, uint16_t stream = 0,
                          Space space = Space::device) {
    const int64_t given = (bytes + 511) / 512 * 512;
    auto& reusable = cached_[{space, given}];
    SyntheticBlock live{0, bytes, space, category, label, stream};
    if (reusable.empty()) {
      if (space == Space::device && end_ + given > segment_end_) grow(given);
      uint64_t& end = space == Space::device ? end_ : other_end_[static_cast<size_t>(space)];
      live.address = end;
      end += static_cast<uint64_t>(given);
    } else {
      live.address = reusable.back();
      reusable.pop_back();
    }
    emit({.address = live.address,
          .value = bytes,
          .label = label,
          .stream = stream,
          .kind = profiler::EventKind::alloc,
          .space = space,
          .category = category});
    return live;
  }

  /// A new segment from the driver, as the caching allocator takes it.
  void grow(int64_t bytes) {
    const int64_t segment = (bytes + (64 << 20) - 1) / (64 << 20) * (64 << 20);
    const uint64_t address = segment_end_ + (2 << 20);
    for (const Space space : {Space::driver, Space::segment}) {
      emit({.address = address,
            .value = segment,
            .kind = profiler::EventKind::alloc,
            .space = space});
    }
    end_ = address;
    segment_end_ = address + static_cast<uint64_t>(segment);
  }

  void release(const SyntheticBlock& live) {
    cached_[{live.space, (live.bytes + 511) / 512 * 512}].push_back(live.address);
    emit({.address = live.address,
          .value = live.bytes,
          .label = live.label,
          .stream = live.stream,
          .kind = profiler::EventKind::free,
          .space = live.space,
          .category = live.category});
  }

  void begin(int action) {
    action_ = action;
    mark(profiler::EventKind::action_begin, 0);
  }
  void end() {
    mark(profiler::EventKind::action_end, 0);
    action_ = -1;
  }

  int64_t block_bytes() const { return 12 * options_.width * options_.width * 4; }

  void start() {
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::starting));
    emit({.address = 0x7000'0000'0000,
          .value = 512 << 20,
          .label = library_,
          .kind = profiler::EventKind::alloc,
          .space = Space::driver,
          .category = Category::communication});
    const int64_t shard = block_bytes() / options_.world_size;
    for (const uint32_t label : labels_) {
      static_blocks_.push_back(allocate(shard, Category::parameter_shard, label));
      static_blocks_.push_back(allocate(shard, Category::optimizer_state, label));
      static_blocks_.push_back(allocate(shard, Category::optimizer_state, label));
    }
    for (const uint16_t stream : {0, 0}) {
      static_blocks_.push_back(
          allocate(block_bytes(), Category::unsharded_parameter, labels_.front(), stream));
      static_blocks_.push_back(
          allocate(block_bytes() / 3, Category::reduce_buffer, labels_.front(), stream));
    }
    static_blocks_.push_back(
        allocate(options_.tokens * 768 * 4, Category::input, 0, 0, Space::pinned));
    static_blocks_.push_back(allocate(32 << 20, Category::workspace));
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::training));
  }

  /// Eight activations that stay until backward, with temporaries in between.
  std::vector<SyntheticBlock> forward_unit(int layer) {
    const int64_t row = options_.tokens * options_.width * 2;
    const uint32_t label = labels_[static_cast<size_t>(layer)];
    std::vector<SyntheticBlock> kept;
    for (const int64_t times : {1, 3, 1, 1, 1, 4, 4, 1}) {
      const SyntheticBlock temporary = allocate(row * times + 256, Category::activation, label);
      kept.push_back(allocate(row * times, Category::activation, label));
      if (times == 4) release(allocate(8 << 20, Category::workspace, 0));
      release(temporary);
    }
    kept.push_back(allocate(options_.tokens * 4, Category::activation, label));
    const SyntheticBlock host = allocate(64 + layer, Category::other, 0, 0, Space::host);
    release(host);
    return kept;
  }

  void backward_unit(std::vector<SyntheticBlock> kept, int layer) {
    const uint32_t label = labels_[static_cast<size_t>(layer)];
    while (!kept.empty()) {
      const SyntheticBlock last = kept.back();
      kept.pop_back();
      const SyntheticBlock gradient = allocate(last.bytes, Category::activation, label);
      const SyntheticBlock weight = allocate(block_bytes() / 12, Category::activation, label);
      emit({.address = weight.address,
            .value = weight.bytes,
            .label = label,
            .kind = profiler::EventKind::recategorise,
            .category = Category::gradient});
      SyntheticBlock declared = weight;
      declared.category = Category::gradient;
      release(declared);
      release(last);
      release(gradient);
    }
  }

  void train_step() {
    const SyntheticBlock input = allocate(options_.tokens * 768 * 2, Category::input);
    std::vector<std::vector<SyntheticBlock>> kept;
    int action = 0;
    for (int layer = 0; layer < options_.layers; ++layer) {
      begin(action++);  // gather
      end();
      begin(action++);
      kept.push_back(forward_unit(layer));
      end();
    }
    begin(action++);
    const SyntheticBlock logits = allocate(options_.tokens * 4000, Category::activation, head_);
    const SyntheticBlock loss = allocate(4, Category::activation, head_);
    end();
    for (int layer = options_.layers - 1; layer >= 0; --layer) {
      begin(action++);
      end();
      begin(action++);
      backward_unit(std::move(kept.back()), layer);
      kept.pop_back();
      end();
      begin(action++);  // reduce, on its own stream
      const SyntheticBlock shard =
          allocate(block_bytes() / options_.world_size, Category::gradient_shard,
                   labels_[static_cast<size_t>(layer)], 2);
      end();
      begin(action++);
      release(shard);
      end();
    }
    for (const SyntheticBlock& live : {loss, logits, input}) release(live);
  }

  void counters(int step) {
    const auto count = [&](profiler::Counter counter, int64_t value) {
      emit({.address = static_cast<uint64_t>(counter),
            .value = value,
            .kind = profiler::EventKind::counter});
    };
    const auto noise = static_cast<int64_t>(engine_() % 64) * 4096;
    count(profiler::Counter::resident_host, (int64_t{2} << 30) + noise);
    count(profiler::Counter::device_used, static_cast<int64_t>(segment_end_ - kFirstSegment));
    count(profiler::Counter::loss, std::bit_cast<int64_t>(2.3 / (1 + 0.01 * step)));
  }

  void evaluate() {
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::evaluating));
    for (int layer = 0; layer < options_.layers; ++layer) {
      begin(layer);
      for (const SyntheticBlock& live : forward_unit(layer)) release(live);
      end();
    }
    mark(profiler::EventKind::phase, static_cast<int64_t>(profiler::Phase::training));
  }

  static constexpr uint64_t kFirstSegment = 0x7f00'0000'0000;

  SyntheticOptions options_;
  std::mt19937_64 engine_;
  const std::function<void(const profiler::Event&)>* take_ = nullptr;
  std::vector<std::string> strings_ = {""};
  std::vector<uint32_t> labels_;  // of every layer
  uint32_t library_ = 0;
  uint32_t head_ = 0;
  int64_t time_ns_ = 0;
  int32_t action_ = -1;
  uint64_t end_ = kFirstSegment;
  uint64_t segment_end_ = kFirstSegment;
  uint64_t other_end_[profiler::kSpaces] = {0, 0x5500'0000'0000, 0x7e00'0000'0000, 0, 0};
  std::map<std::pair<Space, int64_t>, std::vector<uint64_t>> cached_;  // by given bytes
  std::vector<SyntheticBlock> static_blocks_;
};

inline profiler::Profile synthetic_profile(SyntheticOptions options = {}) {
  SyntheticTrace trace(options);
  profiler::Profile profile;
  profile.header = trace.header();
  profile.strings = trace.strings();
  trace.run([&](const profiler::Event& event) { profile.events.push_back(event); });
  return profile;
}

}  // namespace shardlens::tests
