#include "planner/schedule/layout.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <map>
#include <random>
#include <stdexcept>

#include "tests/support/random_vit.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

std::vector<int> parameters_of(const Bucket& bucket) {
  std::vector<int> parameters;
  for (const BucketEntry& entry : bucket.entries) parameters.push_back(entry.parameter);
  return parameters;
}

/// A model of three groups with one unit each, whose parameters have the given numels.
models::ModelSpec three_groups(const std::vector<int64_t>& first, const std::vector<int64_t>& block,
                               const std::vector<int64_t>& last) {
  models::ModelSpec spec;
  spec.name = "three";
  const auto add = [&](const std::string& group, const std::vector<int64_t>& numels) {
    models::UnitSpec unit{.name = group};
    for (const int64_t numel : numels) {
      unit.parameters.push_back(static_cast<int>(spec.parameters.size()));
      spec.parameters.push_back({"p" + std::to_string(spec.parameters.size()), {numel}, group});
    }
    spec.units.push_back(unit);
  };
  add("first", first);
  add("block", block);
  add("last", last);
  return spec;
}

int64_t aligned(int64_t numel) { return (numel + 15) / 16 * 16; }

}  // namespace

TEST_CASE("the tutorial's blocks are cut where a third of a block is full") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const Layout layout = make_layout(spec, {.world_size = 2});
  REQUIRE(layout.groups.size() == 12);
  CHECK(layout.groups.front().name == "embed");
  CHECK(layout.groups.back().name == "head");
  CHECK(layout.block_numel == 99584);

  // ln_2.bias would make the first bucket 33280 > 99584 / 3; in_proj_weight is 49152 by itself.
  const Group& block = layout.groups[1];
  REQUIRE(block.buckets.size() == 4);
  CHECK(block.buckets[0].numel == 33152);
  CHECK(block.buckets[1].numel == 16640);
  CHECK(block.buckets[2].numel == 49152);
  CHECK(block.buckets[3].numel == 640);
  CHECK(block.numel() == 99584);
  CHECK(block.bucket_offset_bytes(2) == 4 * (33152 + 16640));

  const auto name = [&](int bucket, int entry) {
    const auto parameter = block.buckets[bucket].entries[entry].parameter;
    return spec.parameters[parameter].name;
  };
  CHECK(name(0, 0) == "encoder.layers.encoder_layer_0.mlp.3.weight");
  CHECK(name(0, 4) == "encoder.layers.encoder_layer_0.ln_2.weight");
  CHECK(name(2, 0) == "encoder.layers.encoder_layer_0.self_attention.in_proj_weight");
  CHECK(name(3, 1) == "encoder.layers.encoder_layer_0.ln_1.weight");
  CHECK(layout.units[1].buckets == std::vector<int>{1, 2, 3});  // attention0
  CHECK(layout.units[2].buckets == std::vector<int>{0, 1});     // mlp0
}

TEST_CASE("embedding and head do not make buckets larger, whatever their size") {
  const Layout layout =
      make_layout(three_groups({400, 400, 400}, {96, 96, 96}, {40, 40, 4000}), {});
  CHECK(layout.block_numel == 288);
  CHECK(layout.groups[0].buckets.size() == 3);  // each by itself is above the limit of 96
  CHECK(layout.groups[1].buckets.size() == 3);
  REQUIRE(layout.groups[2].buckets.size() == 2);
  CHECK(parameters_of(layout.groups[2].buckets[0]) == std::vector<int>{8});
  CHECK(parameters_of(layout.groups[2].buckets[1]) == std::vector<int>{7, 6});  // 48 + 48
}

TEST_CASE("a model without blocks treats its largest group as one") {
  models::ModelSpec spec = three_groups({96, 96, 96}, {32}, {300, 1});
  spec.units.erase(spec.units.begin() + 1);
  spec.parameters.erase(spec.parameters.begin() + 3);
  spec.units[1].parameters = {3, 4};
  const Layout layout = make_layout(spec, {});
  CHECK(layout.block_numel == 304 + 16);
  CHECK(layout.groups[0].buckets.size() == 3);  // 96 each, under a limit of 106
}

TEST_CASE("a parameter of several units is placed where the first of them uses it") {
  models::ModelSpec spec = three_groups({1}, {16, 16, 16}, {1});
  models::UnitSpec again = spec.units[1];
  again.name = "block_again";
  again.parameters = {1, 4};  // p1 is also the first unit's
  spec.parameters.push_back({"p_new", {16}, "block"});
  again.parameters.back() = static_cast<int>(spec.parameters.size()) - 1;
  spec.units.insert(spec.units.begin() + 2, again);
  const Layout layout = make_layout(spec, {});
  std::vector<int> order;
  for (const Bucket& bucket : layout.groups[1].buckets) {
    for (const int parameter : parameters_of(bucket)) order.push_back(parameter);
  }
  CHECK(order == std::vector<int>{5, 3, 2, 1});
}

TEST_CASE("units that share a parameter are put into one group") {
  models::ModelSpec spec = three_groups({1}, {2}, {3});
  spec.units[2].parameters = {2, 0};
  const Layout layout = make_layout(spec, {});
  REQUIRE(layout.groups.size() == 2);
  CHECK(layout.groups[0].name == "first");
  CHECK(layout.units[2].group == 0);
  // In backward the last unit comes first, but p0 is complete only in the first unit's.
  CHECK(parameters_of(layout.groups[0].buckets.front()).front() == 2);
}

TEST_CASE("layouts that a step cannot run with are refused") {
  models::ModelSpec spec = three_groups({1}, {2}, {3});
  const auto refusal = [&] { make_layout(spec, {}); };

  spec.units[2].parameters = {};
  CHECK_THROWS_MATCHES(refusal(), std::invalid_argument,
                       MessageMatches(ContainsSubstring("parameter p2 is used by no unit")));
  spec.units.clear();
  CHECK_THROWS_MATCHES(refusal(), std::invalid_argument,
                       MessageMatches(ContainsSubstring("no units")));
}

TEST_CASE("names that match no parameter, and strategies that do not fit the ranks, are refused") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const auto refusal = [&](const Strategy& strategy) -> std::string {
    try {
      build_schedule(spec, strategy, Pass::train);
    } catch (const std::invalid_argument& error) {
      CHECK(std::string(error.what()).find('\n') == std::string::npos);
      return error.what();
    }
    return "accepted";
  };
  CHECK_THAT(refusal({.ignore = "nothing.*"}), ContainsSubstring("--ignore nothing.*: no module"));
  CHECK_THAT(refusal({.freeze = "("}), ContainsSubstring("--freeze (: not a regular expression"));
  CHECK_THAT(refusal({.freeze = ".*"}), ContainsSubstring("there is nothing to train"));
  CHECK_THAT(refusal({.keep_fp32 = "x"}), ContainsSubstring("--keep-fp32 x: no module"));
  CHECK_THAT(refusal({.wrap = {.kind = WrapKind::module, .module = "layer"}}),
             ContainsSubstring("--wrap module:layer: no module"));
  CHECK_THAT(
      refusal({.world_size = 6, .reshard_after_forward = Reshard::partly, .regather_shards = 4}),
      ContainsSubstring("--reshard-after-forward 4: it does not divide the 6 ranks"));
}

TEST_CASE("a wrap policy decides what is gathered together") {
  const models::ModelSpec spec = models::find_spec("vit-tutorial");
  const auto groups = [&](const Wrap& wrap) {
    std::vector<std::string> names;
    for (const Group& group : make_layout(spec, {.wrap = wrap}).groups) names.push_back(group.name);
    return names;
  };
  CHECK(groups({.kind = WrapKind::root}) == std::vector<std::string>{"root"});
  // An attention has 66,304 elements, an MLP 33,280.
  CHECK(groups({.kind = WrapKind::size, .numel = 1}).size() == 22);
  CHECK(groups({.kind = WrapKind::size, .numel = 99584}) ==
        groups({.kind = WrapKind::size, .numel = 66561}));
  CHECK(groups({.kind = WrapKind::size, .numel = 99584})[1] == "attention0-mlp0");
  CHECK(groups({.kind = WrapKind::size, .numel = 1 << 30}) ==
        std::vector<std::string>{"embed", "attention0-mlp9", "head"});
  const std::string block = "encoder.layers.encoder_layer_";
  CHECK(groups({.kind = WrapKind::module, .module = ".*layer_[37]"}) ==
        std::vector<std::string>{"embed", "rest", block + "3", block + "7", "head"});
  // A module that is a part of a unit takes the rest of the unit along.
  const auto mlps = groups({.kind = WrapKind::module, .module = ".*\\.mlp"});
  CHECK(mlps.size() == 13);
  CHECK(mlps[2] == block + "0.mlp");
}

TEST_CASE("random layouts hold each parameter once, aligned, and bound every bucket") {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const models::ModelSpec spec = tests::random_vit(engine);
    const int shards = static_cast<int>(tests::random_between(engine, 1, 64));
    const Layout layout = make_layout(spec, {.world_size = shards});

    std::map<std::string, int64_t> group_numels;
    for (const models::ParameterSpec& parameter : spec.parameters) {
      group_numels[parameter.group] += aligned(parameter.numel());
    }
    const int64_t limit = group_numels.at("block0") / 3;  // all blocks are alike

    std::vector<int> times_placed(spec.parameters.size());
    for (const Group& group : layout.groups) {
      for (const Bucket& bucket : group.buckets) {
        int64_t end = 0;
        for (const BucketEntry& entry : bucket.entries) {
          const models::ParameterSpec& parameter = spec.parameters.at(entry.parameter);
          ++times_placed[entry.parameter];
          REQUIRE(parameter.group == group.name);
          REQUIRE(entry.numel == parameter.numel());
          REQUIRE(entry.offset == end);
          end += aligned(entry.numel);
        }
        REQUIRE(bucket.numel % (shards * 16) == 0);
        REQUIRE(bucket.numel - end < shards * 16);
        REQUIRE((end <= limit || bucket.entries.size() == 1));
      }
    }
    REQUIRE(times_placed == std::vector<int>(spec.parameters.size(), 1));
  }
}

TEST_CASE("the number of shards changes padding and nothing else") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 engine(seed);
    const models::ModelSpec spec = tests::random_vit(engine);
    const Layout one = make_layout(spec, {});
    const int shards = static_cast<int>(tests::random_between(engine, 2, 64));
    const Layout many = make_layout(spec, {.world_size = shards});
    REQUIRE(one.groups.size() == many.groups.size());
    for (size_t group = 0; group < one.groups.size(); ++group) {
      const std::vector<Bucket>& buckets = one.groups[group].buckets;
      REQUIRE(buckets.size() == many.groups[group].buckets.size());
      for (size_t i = 0; i < buckets.size(); ++i) {
        REQUIRE(buckets[i].entries == many.groups[group].buckets[i].entries);
      }
    }
  }
}
