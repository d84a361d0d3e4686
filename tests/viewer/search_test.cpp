#include "viewer/model/search.h"

#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <stdexcept>

#include "tests/support/recordings/stacked_recording.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::viewer {
namespace {

struct SearchedLane {
  Lane lane = lane_of(tests::view_recording({.rank = 1}));
  ActionNames names{lane.info().header};

  std::vector<Hit> operator()(const char* text) const {
    return search(lane, names, parse_query(text));
  }
  const Block& block(const Hit& hit) const { return lane.arrays().blocks[hit.block]; }
};

}  // namespace

TEST_CASE("a search finds by name, category, action, size, rank and life") {
  const SearchedLane searched;
  const auto named = searched("MLP3");
  REQUIRE_FALSE(named.empty());
  for (const Hit& hit : named) {
    const Block& block = searched.block(hit);
    const std::string text = std::string(searched.lane.label(block)) + " " +
                             searched.names.name_of(block.phase, block.action).text;
    CHECK(text.find("mlp3") != std::string::npos);
  }
  CHECK(std::ranges::all_of(searched("optimizer_state"), [&](const Hit& hit) {
    return searched.block(hit).category == Category::optimizer_state;
  }));
  CHECK(searched("optimizer_state").size() == 12);
  CHECK(searched("optimizer_state >15MiB <17MiB").size() == 12);
  CHECK(searched("optimizer_state >16MiB").empty());
  CHECK(searched("optimizer_state life>2steps").size() == 12);
  CHECK(searched("activation life>0steps").empty());
  CHECK(searched("rank:1 mlp3").size() == named.size());
  CHECK(searched("rank:0 mlp3").empty());
  CHECK(searched("").empty());
  CHECK(searched("no-such-thing").empty());
  CHECK(searched("alive@peak").size() ==
        searched.lane.alive_after(searched.lane.peak().max_change).size());
}

TEST_CASE("a search finds by every call in a stack") {
  SearchedLane searched;
  searched.lane = lane_of(tests::stacked_recording());
  const auto found = searched("mlp.forward model.py:90");
  CHECK_FALSE(found.empty());
  const auto is_mlp = [&](const Block& block) {
    return searched.lane.label(block).starts_with("mlp");
  };
  CHECK(std::ranges::count_if(searched.lane.arrays().blocks, is_mlp) == std::ssize(found));
}

TEST_CASE("an invalid size or number is refused") {
  CHECK_THROWS_AS(parse_query(">many"), std::invalid_argument);
  CHECK_THROWS_AS(parse_query("rank:x"), std::invalid_argument);
  CHECK_THROWS_AS(parse_query("life>-1steps"), std::invalid_argument);
}

}  // namespace shardlens::viewer
