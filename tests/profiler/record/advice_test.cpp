// Tests which advice is given in which situation: the table of rules x situations. A row lists all
// rules that speak; every other rule must be silent there.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/record/advice/advice.h"

using namespace shardlens;
using namespace shardlens::profiler;
using Catch::Matchers::ContainsSubstring;

namespace {

constexpr int64_t kGiB = int64_t{1} << 30;
constexpr int64_t kVocabulary = 128256;

/// Evidence that a situation changes. It begins with a full GPU, in a program that trains on one.
class Situation {
 public:
  Situation(std::string name, std::set<std::string> speaking)
      : name_(std::move(name)), speaking_(std::move(speaking)) {
    evidence_.uses.is_known = true;
    evidence_.uses.lines["backward"] = {"train.py:40"};
    evidence_.uses.optimizers = {{.name = "AdamW", .line = "train.py:12"}};
    evidence_.pytorch = "2.15.0";
    evidence_.is_short = true;
  }

  Situation& has(Category category, int64_t gib, const std::string& label = "train.py:7 forward") {
    evidence_.given[static_cast<size_t>(category)] += gib * kGiB;
    evidence_.blocks.push_back({.given_bytes = gib * kGiB,
                                .asked_bytes = gib * kGiB,
                                .category = category,
                                .label = label,
                                .name = category == Category::gradient ? "up.weight" : ""});
    evidence_.reserved_bytes += gib * kGiB;
    return *this;
  }
  Situation& uses(std::initializer_list<const char*> all) {
    for (const char* const one : all) evidence_.uses.lines[one] = {"train.py:30"};
    return *this;
  }
  Situation& ranks(int world_size, int64_t fsdp_units = 8) {
    evidence_.world_size = world_size;
    evidence_.uses.fsdp_units = fsdp_units;
    return *this;
  }
  template <class Change>
  Situation& with(const Change& change) {
    change(evidence_);
    return *this;
  }
  Situation& keeps(int64_t gib, bool only_last) {
    evidence_.kept.push_back({.label = "train.py:9 forward",
                              .given_bytes = gib * kGiB,
                              .youngest_steps = 1,
                              .oldest_steps = only_last ? 1 : 2});
    return *this;
  }

  const std::string& name() const { return name_; }
  const std::set<std::string>& speaking() const { return speaking_; }
  const AdviceEvidence& evidence() const { return evidence_; }

 private:
  std::string name_;
  std::set<std::string> speaking_;
  AdviceEvidence evidence_;
};

Situation logits(std::string name, std::set<std::string> speaking) {
  Situation one(std::move(name), std::move(speaking));
  one.has(Category::parameter_shard, 2).has(Category::activation, 1);
  one.with([](AdviceEvidence& e) {
    const int64_t bytes = 8192 * kVocabulary * 4;
    e.given[static_cast<size_t>(Category::activation)] += bytes;
    for (const int64_t size : {bytes, int64_t{512}}) {  // the loss is of the same line
      e.blocks.push_back({.given_bytes = size,
                          .asked_bytes = size,
                          .category = Category::activation,
                          .label = "train.py:22 <module>"});
    }
  });
  return one;
}

constexpr auto kPrivatePools = [](AdviceEvidence& e) {
  e.uses.cuda_graphs = e.uses.cuda_graph_pools = 7;
  e.reserved_bytes += 12 * kGiB;
  e.unused = UnusedMemory{.private_pools = 12 * kGiB};
};

constexpr auto kEvaluates = [](AdviceEvidence& e) {
  e.uses.lines["evaluation_with_grad"] = {"train.py:50"};
  e.uses.evaluation_peak_bytes = e.allocated_bytes();
};

std::vector<Situation> state_situations() {
  using C = Category;
  const auto state = [](Situation one) {
    return one.has(C::parameter_shard, 10, "train.py:5 <module>").has(C::optimizer_state, 20, "");
  };
  return {
      state({"one rank, AdamW", {"small_optimizer_state"}}),
      state({"state of 8 bits", {}}).with([](AdviceEvidence& e) {
        e.uses.optimizers.front().has_low_bits = true;
      }),
      state({"SGD", {}}).with([](AdviceEvidence& e) { e.uses.optimizers.front().name = "SGD"; }),
      state({"DDP", {"shard_over_ranks", "small_optimizer_state"}}).ranks(8, 0).uses({"ddp"}),
      state({"FSDP2", {"offload_state", "small_optimizer_state"}}).ranks(8).uses({"fsdp2"}),
      state({"FSDP1", {"offload_state", "small_optimizer_state"}}).ranks(8).uses({"fsdp1"}),
      state({"FSDP2 that offloads", {"small_optimizer_state"}})
          .ranks(8)
          .uses({"fsdp2", "fsdp2_offload"}),
      state({"ZeRO", {}}).ranks(8, 0).uses({"ddp", "zero"}),
  };
}

std::vector<Situation> sharded_situations() {
  using C = Category;
  return {
      Situation("parameters before they are sharded", {"meta_init"})
          .has(C::parameter_shard, 30)
          .ranks(8)
          .uses({"fsdp2"})
          .with([](AdviceEvidence& e) { e.is_before_steps = true; }),
      Situation("parameters of a program that names FSDP, and has not come there", {"meta_init"})
          .has(C::parameter_shard, 30)
          .ranks(8, 0)
          .with([](AdviceEvidence& e) { e.is_before_steps = e.uses.names_fsdp = true; }),
      Situation("parameters of ranks that may shard them yet", {})
          .has(C::parameter_shard, 30)
          .ranks(8, 0)
          .with([](AdviceEvidence& e) { e.is_before_steps = true; }),
      Situation("parameters before the first step of one rank", {})
          .has(C::parameter_shard, 30)
          .with([](AdviceEvidence& e) { e.is_before_steps = true; }),
      Situation("parameters before they are sharded, more than steps take", {"meta_init"})
          .has(C::parameter_shard, 30)
          .ranks(8)
          .uses({"fsdp2"})
          .with([](AdviceEvidence& e) {
            e.is_before_steps = true;
            e.steps_peak_bytes = 20 * kGiB;
          }),
      Situation("parameters before they are sharded, as many as steps take", {})
          .has(C::parameter_shard, 30)
          .ranks(8)
          .uses({"fsdp2"})
          .with([](AdviceEvidence& e) {
            e.is_before_steps = true;
            e.steps_peak_bytes = 29 * kGiB;
          }),
      Situation("the whole model is one unit", {"fsdp_units"})
          .has(C::unsharded_parameter, 30)
          .ranks(8, 1)
          .uses({"fsdp2"}),
      Situation("gradients of the only unit, and their copy", {"fsdp_units"})
          .has(C::gradient, 20)
          .has(C::reduce_buffer, 20)
          .has(C::optimizer_state, 15)
          .ranks(8, 1)
          .uses({"fsdp2"}),
      Situation("the only unit, beside more activations", {"recompute"})
          .has(C::unsharded_parameter, 30)
          .has(C::activation, 40)
          .ranks(8, 1)
          .uses({"fsdp2"}),
      Situation("units, gathered until backward", {"reshard_after_forward"})
          .has(C::unsharded_parameter, 30)
          .ranks(8)
          .uses({"fsdp2", "fsdp2_no_reshard"}),
      Situation("units, resharded", {}).has(C::unsharded_parameter, 30).ranks(8).uses({"fsdp2"}),
  };
}

std::vector<Situation> gradient_situations() {
  using C = Category;
  const auto ddp = [](Situation one) {
    return one.has(C::gradient, 20).has(C::reduce_buffer, 15).ranks(8, 0).uses({"ddp"});
  };
  const auto of_adam = [](Situation one) {
    return one.has(C::parameter_shard, 10).has(C::optimizer_state, 70).has(C::gradient, 15);
  };
  return {
      Situation("gradients of one rank", {"step_in_backward"}).has(C::gradient, 20),
      Situation("gradients of activations", {}).has(C::gradient, 20).with([](AdviceEvidence& e) {
        e.blocks.front().name.clear();
      }),
      Situation("gradients of two optimizers", {}).has(C::gradient, 20).with([](AdviceEvidence& e) {
        e.uses.optimizers.push_back({.name = "SGD"});
      }),
      of_adam(
          {"gradients beside the state of Adam", {"step_in_backward", "small_optimizer_state"}}),
      of_adam({"gradients that accumulate", {"small_optimizer_state"}}).with([](AdviceEvidence& e) {
        e.uses.accumulates = true;
      }),
      of_adam({"gradients that are clipped", {"small_optimizer_state"}}).uses({"clip_gradients"}),
      of_adam({"gradients that are scaled", {"small_optimizer_state"}}).uses({"grad_scaler"}),
      of_adam({"few gradients", {"small_optimizer_state"}}).has(C::parameter_shard, 40),
      ddp({"gradients beside DDP's buckets", {"shard_over_ranks", "bucket_view"}}),
      ddp({"gradients in DDP's buckets", {"shard_over_ranks"}}).uses({"ddp_bucket_view"}),
      Situation("FSDP2 that defers its reduction", {"deferred_reduction"})
          .has(C::gradient, 20)
          .has(C::parameter_shard, 1)
          .ranks(8)
          .uses({"fsdp2", "fsdp2_deferred_sync"}),
      Situation("FSDP2 that reduces in each microbatch", {})
          .has(C::gradient, 20)
          .has(C::parameter_shard, 1)
          .ranks(8)
          .uses({"fsdp2"}),
      Situation("buffers of DDP", {"smaller_buckets"})
          .has(C::reduce_buffer, 20)
          .ranks(8, 0)
          .uses({"ddp"}),
      Situation("buffers of many units", {}).has(C::reduce_buffer, 20).ranks(8).uses({"fsdp2"}),
  };
}

constexpr auto kNamesCheckpoint = [](AdviceEvidence& e) {
  e.blocks.back().name = "loaded checkpoint";
};

std::vector<Situation> softmax_situations() {
  const auto scores = [](Situation one, const char* operation = "aten::_softmax") {
    return one.has(Category::activation, 30).with([=](AdviceEvidence& e) {
      e.blocks.back().operation = operation;
    });
  };
  return {
      scores({"attention scores", {"fused_attention", "recompute"}}),
      scores({"attention scores that are computed again", {"fused_attention", "smaller_batch"}})
          .uses({"recompute"}),
      scores({"attention without its scores", {"recompute"}}, "aten::_flash_attention_forward"),
      scores({"attention scores of a growing program", {"growth"}}).with([](AdviceEvidence& e) {
        e.growth = Growth{.bytes_per_step = 65e6, .places = {{.label = "train.py:9 forward"}}};
      }),
      scores({"a softmax over the vocabulary", {"chunked_loss"}}).with([](AdviceEvidence& e) {
        e.blocks.back().asked_bytes = 4096 * kVocabulary;
      }),
  };
}

std::vector<Situation> unstepped_situations() {
  const auto unstepped = [](Situation one, int64_t gib) {
    return one.has(Category::gradient, 20, "train.py:8 main").with([=](AdviceEvidence& e) {
      e.blocks.back().name = "teacher.0.weight";
      e.uses.unstepped_gradients = 16;
      e.uses.unstepped_gradient_bytes = gib << 30;
      e.uses.largest_unstepped = "teacher.0.weight";
    });
  };
  return {
      unstepped({"gradients of a teacher", {"unused_gradients", "step_in_backward"}}, 10),
      unstepped({"few gradients of a teacher", {"step_in_backward"}}, 0),
      unstepped({"gradients of a teacher in a program that grows", {"growth"}}, 10)
          .with([](AdviceEvidence& e) {
            e.growth = Growth{.bytes_per_step = 65e6, .places = {{.label = "train.py:9 forward"}}};
          }),
  };
}

std::vector<Situation> loaded_situations() {
  const auto loaded = [](Situation one) {
    return one.has(Category::checkpoint_staging, 10, "train.py:8 main");
  };
  return {
      loaded({"a checkpoint beside the model", {"loaded_checkpoint"}})
          .uses({"load_state_dict"})
          .with(kNamesCheckpoint),
      loaded({"data that torch.load read", {}}).with(kNamesCheckpoint),
      loaded({"a copy for a checkpoint that is saved", {}}).uses({"load_state_dict"}),
  };
}

std::vector<Situation> activation_situations() {
  using C = Category;
  const auto active = [](Situation one) {
    return one.has(C::parameter_shard, 10).has(C::activation, 30);
  };
  return {
      active({"activations", {"recompute"}}),
      active({"activations with room", {}}).with([](AdviceEvidence& e) { e.is_short = false; }),
      active({"activations of a process that reported nothing", {}}).with([](AdviceEvidence& e) {
        e.uses = {};
      }),
      active({"activations that are recomputed", {"smaller_batch"}}).uses({"recompute"}),
      active({"activations without backward", {"smaller_batch"}}).with([](AdviceEvidence& e) {
        e.uses.lines.erase("backward");
      }),
      Situation("inputs", {"smaller_batch"}).has(C::input, 30),
      active({"a cache that has settled", {"recompute"}}).keeps(20, false),
      active({"evaluation without no_grad", {"evaluation_without_no_grad"}}).with(kEvaluates),
      active({"evaluation without no_grad, below the peak of training", {"recompute"}})
          .with(kEvaluates)
          .has(C::activation, 1),
      active({"memory that ran out in evaluation without no_grad", {"evaluation_without_no_grad"}})
          .with(kEvaluates)
          .with([](AdviceEvidence& e) {
            e.is_in_doubt = e.uses.evaluates_at_end = true;
            e.uses.evaluation_peak_bytes += 4096;
          }),
      active({"memory that ran out in training after evaluation without no_grad", {"recompute"}})
          .with(kEvaluates)
          .with([](AdviceEvidence& e) { e.is_in_doubt = true; }),
      active({"a measured growth", {"growth"}}).with([](AdviceEvidence& e) {
        e.growth =
            Growth{.bytes_per_step = 65e6,
                   .places = {{.label = "train.py:9 forward", .caller = "train.py:20 step"}}};
      }),
      active({"a little of the step before", {"recompute"}}).with([](AdviceEvidence& e) {
        e.kept = {{.label = "train.py:9", .given_bytes = 1 << 20, .oldest_steps = 1}};
      }),
      active({"outputs of the step before", {"kept_from_last_step", "recompute"}}).keeps(5, true),
      active({"a cache of the first step", {"recompute"}}).keeps(5, false),
      logits("logits", {"chunked_loss"}),
      logits("logits, without a known vocabulary", {"recompute"}).with([](AdviceEvidence& e) {
        e.uses.vocabularies.clear();
      }),
      active({"autocast over FSDP2", {"autocast_in_fsdp"}})
          .has(C::parameter_copy, 10)
          .ranks(8)
          .uses({"fsdp2", "autocast"}),
      active({"autocast over FSDP2, recomputed", {"smaller_batch"}})
          .has(C::parameter_copy, 10)
          .ranks(8)
          .uses({"fsdp2", "autocast", "recompute"}),
      active({"autocast beside a policy", {"recompute"}})
          .ranks(8)
          .uses({"fsdp2", "autocast", "fsdp2_param_dtype"}),
      active({"autocast on one rank", {"recompute"}}).uses({"autocast"}),
      active({"autocast over FSDP2 that copies no weights", {"recompute"}})
          .ranks(8)
          .uses({"fsdp2", "autocast"}),
  };
}

constexpr auto kOtherStream = [](AdviceEvidence& e) {
  e.unused = UnusedMemory{.other_streams = 5 * kGiB, .fragments = 2 * kGiB};
};

constexpr auto kRoom = [](AdviceEvidence& e) { e.is_in_doubt = e.is_short = false; };

std::vector<Situation> reserved_situations() {
  using C = Category;
  const auto failed = [](AdviceEvidence& e) {
    e.is_in_doubt = true;
    e.asked_bytes = 2 * kGiB;
  };
  const auto fragments = [&](Situation one) {
    return one.has(C::other, 10).with(failed).with([](AdviceEvidence& e) {
      e.reserved_bytes += 6 * kGiB;
      e.unused = UnusedMemory{.fragments = 6 * kGiB};
    });
  };
  const auto pinned = [](int64_t used, int64_t asked) {
    return [=](AdviceEvidence& e) {
      e.is_short = false;
      e.pinned = PinnedUse{.used_bytes = used * kGiB, .asked_bytes = asked * kGiB};
    };
  };
  return {
      fragments({"fragments", {"expandable_segments"}}),
      fragments({"fragments beside few inputs", {"expandable_segments"}})
          .with([](AdviceEvidence& e) {
            e.given = {};
            e.given[static_cast<size_t>(C::input)] = kGiB / 8;
          }),
      fragments({"a few fragments after retries", {}}).with([](AdviceEvidence& e) {
        e.asked_bytes = 0;
        e.unused = UnusedMemory{.fragments = kGiB / 64};
      }),
      fragments({"fragments in expandable segments", {}}).with([](AdviceEvidence& e) {
        e.uses.has_expandable_segments = true;
      }),
      fragments({"free memory of another stream", {"other_streams"}}).with(kOtherStream),
      fragments({"free memory of FSDP's streams", {}})
          .with(kOtherStream)
          .with([](AdviceEvidence& e) { e.uses.lines["fsdp2"] = {"train.py:11"}; }),
      fragments({"free memory of another stream, with room", {}}).with(kOtherStream).with(kRoom),
      fragments({"too little free", {}}).with([](AdviceEvidence& e) { e.asked_bytes = 8 * kGiB; }),
      Situation("a pool for each graph", {"shared_graph_pool"})
          .has(C::other, 1)
          .with(failed)
          .with(kPrivatePools),
      Situation("a pool for each graph, with room", {"shared_graph_pool"})
          .has(C::other, 1)
          .with(kPrivatePools)
          .with([](AdviceEvidence& e) { e.is_short = false; }),
      Situation("a pool for each graphed callable", {"fewer_graphed_callables"})
          .has(C::other, 1)
          .with(failed)
          .with(kPrivatePools)
          .with([](AdviceEvidence& e) {
            std::swap(e.uses.cuda_graph_pools, e.uses.graphed_callable_pools);
          }),
      Situation("one pool for all graphs", {})
          .has(C::other, 1)
          .with(failed)
          .with(kPrivatePools)
          .with([](AdviceEvidence& e) { e.uses.cuda_graph_pools = 1; }),
      Situation("pools, but what is free is not theirs", {})
          .has(C::other, 1)
          .with(kPrivatePools)
          .with([](AdviceEvidence& e) { e.unused = UnusedMemory{.fragments = 12 * kGiB}; }),
      Situation("pinned memory, rounded", {"pinned_rounding"}).with(pinned(8, 4)),
      Situation("pinned memory of powers of two", {}).with(pinned(8, 8)),
  };
}

std::vector<Situation> all_situations() {
  std::vector<Situation> all;
  for (auto& part :
       {state_situations(), sharded_situations(), gradient_situations(), activation_situations(),
        softmax_situations(), unstepped_situations(), loaded_situations(), reserved_situations()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  for (Situation& one : all) {
    if (one.evidence().uses.is_known && one.name().find("without a known") == std::string::npos) {
      one.with([](AdviceEvidence& e) { e.uses.vocabularies = {kVocabulary}; });
    }
  }
  return all;
}

}  // namespace

TEST_CASE("in each situation exactly the rules speak that have looked") {
  std::set<std::string> spoke;
  for (const Situation& one : all_situations()) {
    INFO(one.name());
    std::set<std::string> names;
    for (const Advice& advice : advice_for(one.evidence())) {
      INFO(advice.text);
      CHECK(advice.bytes > 0);
      CHECK(advice.text.find("  ") == std::string::npos);
      names.insert(advice.rule);
      spoke.insert(advice.rule);
    }
    CHECK(names == one.speaking());
  }
  const std::vector<std::string> rules = advice_rules();
  CHECK(spoke == std::set(rules.begin(), rules.end()));
}

TEST_CASE("advice names the line and the call to write") {
  const auto text_in = [](const std::string& situation, const std::string& rule) {
    for (const Situation& one : all_situations()) {
      if (one.name() != situation) continue;
      for (const Advice& advice : advice_for(one.evidence())) {
        if (advice.rule == rule) return advice.text;
      }
    }
    return std::string();
  };
  CHECK_THAT(text_in("a measured growth", "growth"),
             ContainsSubstring("each step leaves 61.99 MiB made at train.py:9 forward, kept at "
                               "train.py:20 step: delete it, or keep its .item() or, if "
                               "it has a graph, its .detach()"));
  CHECK_THAT(text_in("parameters before they are sharded, more than steps take", "meta_init"),
             ContainsSubstring("30.00 GiB of whole parameters") &&
                 ContainsSubstring("at train.py:30") &&
                 ContainsSubstring("for up to 10.00 GiB less"));
  CHECK_THAT(text_in("a checkpoint beside the model", "loaded_checkpoint"),
             ContainsSubstring("10.00 GiB of a checkpoint that is loaded at train.py:8") &&
                 ContainsSubstring("after load_state_dict at train.py:30"));
  CHECK_THAT(text_in("gradients of a teacher", "unused_gradients"),
             ContainsSubstring("10.00 GiB are gradients of 16 parameters that no optimizer has, "
                               "such as teacher.0.weight") &&
                 ContainsSubstring("around their forward at train.py:8"));
  CHECK_THAT(text_in("FSDP2 that defers its reduction", "deferred_reduction"),
             ContainsSubstring("set_requires_gradient_sync(False) at train.py:30"));
  CHECK_THAT(text_in("autocast over FSDP2", "autocast_in_fsdp"),
             ContainsSubstring("torch.autocast at train.py:30") &&
                 ContainsSubstring("MixedPrecisionPolicy(param_dtype=torch.bfloat16)"));
  CHECK_THAT(text_in("a pool for each graph", "shared_graph_pool"),
             ContainsSubstring("captured at train.py:") || ContainsSubstring("7 CUDA graphs"));
  CHECK_THAT(text_in("activations", "recompute"),
             ContainsSubstring("train.py:7") && ContainsSubstring("use_reentrant=False"));
  CHECK_THAT(text_in("logits", "chunked_loss"),
             ContainsSubstring("vocabulary of 128256") && ContainsSubstring("train.py:22"));
}

TEST_CASE("what a program uses is read from its own report, however damaged") {
  const auto read = [](const char* text) { return read_program_uses(nlohmann::json::parse(text)); };
  const ProgramUses uses = read(R"({"lines": {"fsdp2": ["a.py:3"], "autocast": []},
      "optimizers": [{"name": "AdamW", "line": "a.py:5", "low_bit": true}, 7],
      "fsdp2_units": 9, "cuda_graph_captures": 3, "cuda_graph_pools": 2, "vocabularies": [32000],
      "expandable_segments": true})");
  CHECK(uses.is_known);
  CHECK(uses.line_of("fsdp2") == "a.py:3");
  CHECK(uses.has("autocast"));
  CHECK(uses.line_of("autocast").empty());
  CHECK(!uses.has("ddp"));
  REQUIRE(uses.optimizers.size() == 1);
  CHECK(uses.optimizers.front().has_low_bits);
  CHECK(uses.fsdp_units == 9);
  CHECK(uses.cuda_graph_pools == 2);
  CHECK(uses.has_expandable_segments);
  for (const char* const text : {"null", "[]", "{}", "3", R"({"lines": 4, "optimizers": 5})"}) {
    CHECK(read(text).lines.empty());
  }
  CHECK(!read("null").is_known);
}
