#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <functional>
#include <random>
#include <set>
#include <vector>

#include "profiler/record/rank_runs.h"
#include "profiler/record/roles.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

using Ranks = std::vector<int>;
using Groups = std::vector<Ranks>;

/// The groups of each dimension of a mesh, the last of which has neighbours: as PyTorch makes them.
Groups groups_of_mesh(const std::vector<int>& sizes) {
  Groups groups;
  int world = 1;
  for (const int size : sizes) world *= size;
  int stride = world;
  for (const int size : sizes) {
    stride /= size;
    for (int first = 0; first < world; ++first) {
      if (first / stride % size != 0) continue;
      Ranks group;
      for (int i = 0; i < size; ++i) group.push_back(first + i * stride);
      groups.push_back(group);
    }
  }
  return groups;
}

/// Runs all that the search asks for, and returns how many ranks that were.
size_t search(RoleSearch& roles, const std::function<int64_t(int)>& bytes_of) {
  size_t runs = 0;
  for (Ranks ranks = roles.next(); !ranks.empty(); ranks = roles.next()) {
    runs += ranks.size();
    for (const int rank : ranks) roles.tell(rank, {.allocated_bytes = bytes_of(rank)});
  }
  return runs;
}

/// One role for each set of ranks that take the same memory, if the search finds all that differ.
void check_roles(int world, const Groups& groups, const std::function<int64_t(int)>& bytes_of,
                 size_t most_runs) {
  RoleSearch roles(world, axes_of(world, groups));
  CHECK(search(roles, bytes_of) <= most_runs);
  CHECK(roles.is_complete());
  std::set<int> covered;
  for (const Role& role : roles.roles()) {
    for (const int rank : role.ranks) {
      CHECK(covered.insert(rank).second);
      CHECK(bytes_of(rank) == bytes_of(role.rank));
    }
  }
  CHECK(covered.size() == static_cast<size_t>(world));
}

}  // namespace

TEST_CASE("a world's axes are those that no combination of other axes gives") {
  CHECK(axes_of(1, {}).empty());
  CHECK(axes_of(4, {}) == std::vector<Axis>{{.place = {0, 1, 2, 3}, .line = {0, 1, 2, 3}}});
  CHECK(axes_of(4, {{0, 1, 2, 3}}) == axes_of(4, {}));
  const std::vector<Axis> of_mesh = {{.place = {0, 0, 1, 1}, .line = {0, 2}},
                                     {.place = {0, 1, 0, 1}, .line = {0, 1}}};
  CHECK(axes_of(4, {{0, 2}, {1, 3}, {0, 1}, {2, 3}}) == of_mesh);
  CHECK(axes_of(4, {{0, 2}, {1, 3}, {0, 1, 2, 3}, {0, 1}, {2, 3}, {0, 2}}) == of_mesh);
  // If only tensor groups are known, the other axis says which one a rank is in.
  CHECK(axes_of(4, {{0, 1}, {2, 3}}) == std::vector<Axis>{{.place = {0, 1, 0, 1}, .line = {0, 1}},
                                                          {.place = {0, 0, 1, 1}, .line = {0, 2}}});
  // Megatron makes a group of the first and last stage after each pipeline.
  CHECK(axes_of(8, {{0, 1}, {2, 3}, {4, 5}, {6, 7}, {0, 2, 4, 6}, {0, 6}, {1, 3, 5, 7}, {1, 7}})
            .size() == 2);
  CHECK(axes_of(4, {{0, 9}, {-1, 2}, {3, 3}}) == axes_of(4, {}));
}

TEST_CASE("only a few of equal ranks are run, and each stage of a pipeline once") {
  check_roles(
      512, {}, [](int) { return 7; }, 3);
  check_roles(
      64, groups_of_mesh({8, 8}), [](int) { return 7; }, 5);
  check_roles(
      16, groups_of_mesh({4, 4}), [](int rank) { return rank / 4; }, 6);
  check_roles(
      4, groups_of_mesh({4}), [](int rank) { return 4 - rank; }, 4);
  // Shards of 10 rows on 8 ranks by torch.chunk: 5 ranks have 2 rows and the others have 0.
  check_roles(
      8, {}, [](int rank) { return rank < 5 ? 2 : 0; }, 6);
  // A pipeline whose tensor ranks are uneven.
  check_roles(
      32, groups_of_mesh({4, 8}),
      [](int rank) { return 10 * (rank / 8) + (rank % 8 == 7 ? 1 : 0); }, 14);
}

TEST_CASE("roles are found for any sum of memory by axis, rising or falling") {
  std::mt19937 random(20251120);
  for (int round = 0; round < 200; ++round) {
    std::vector<int> sizes(1 + random() % 3);
    for (int& size : sizes) size = 1 << (1 + random() % 3);
    int world = 1;
    for (const int size : sizes) world *= size;
    std::vector<Ranks> rises;  // for each axis, by place
    int weight = 1;
    for (const int size : sizes) {
      Ranks of_axis(static_cast<size_t>(size));
      for (int& rise : of_axis) rise = static_cast<int>(random() % 3) * (random() % 2 == 0);
      std::ranges::sort(of_axis);
      for (int& rise : of_axis) rise *= weight;
      rises.push_back(of_axis);
      weight *= 3;
    }
    const auto bytes_of = [&](int rank) {
      int64_t bytes = 0;
      for (size_t i = sizes.size(); i-- > 0;) {
        bytes += rises[i][static_cast<size_t>(rank % sizes[i])];
        rank /= sizes[i];
      }
      return bytes;
    };
    check_roles(world, groups_of_mesh(sizes), bytes_of, static_cast<size_t>(world));
  }
}

TEST_CASE("at most kMostRoles ranks are run, and it is known that not all were") {
  RoleSearch roles(512, axes_of(512, {}));
  CHECK(search(roles, [](int rank) { return rank; }) == kMostRoles);
  CHECK_FALSE(roles.is_complete());
}

TEST_CASE("ranks are named in ranges, and the worst run has the exit code") {
  CHECK(ranges_text(Ranks{}) == "");
  CHECK(ranges_text({0, 1, 2, 5}) == "0-2, 5");
  CHECK(ranges_text({3}) == "3");
  const auto code_of = [](std::vector<int> codes) {
    return RankRuns{.exit_codes = std::move(codes)}.exit_code();
  };
  CHECK(code_of({0, 0}) == 0);
  CHECK(code_of({0, 4, 0}) == 4);
  CHECK(code_of({4, 5}) == 5);
  CHECK(code_of({5, 1, 4}) == 1);
  CHECK(code_of({1, 3}) == 3);
  CHECK(RankRuns{.exit_codes = {0}, .left_out = 1}.exit_code() == 5);
}
