// Edits programs whose memory is known by construction, and compares what is matched with what was
// edited.

#include "profiler/compare/matching.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "profiler/compare/line_alignment.h"
#include "profiler/compare/origin.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

/// A line of a program, with the sizes of its live blocks in MiB.
struct Line {
  std::string function;
  int64_t number = 0;
  Category category{};
  std::vector<int64_t> mib;
};

using Program = std::vector<Line>;

std::vector<Holding> holdings_of(const Program& program, const std::string& file) {
  std::vector<Holding> holdings;
  for (const Line& line : program) {
    const std::string label = file + ":" + std::to_string(line.number) + " " + line.function;
    Holding holding{.category = line.category, .label = label, .action = "", .sizes = {}};
    for (const int64_t mib : line.mib) holding.sizes.push_back(mib * kMiB);
    holdings.push_back(std::move(holding));
  }
  return holdings;
}

int64_t total_of(const std::vector<Holding>& holdings) {
  int64_t bytes = 0;
  for (const Holding& one : holdings) {
    for (const int64_t size : one.sizes) bytes += size;
  }
  return bytes;
}

std::vector<MatchedPlace> changed(const Matching& matching) {
  std::vector<MatchedPlace> rows;
  for (const MatchedPlace& row : matching.rows) {
    if (row.changed_bytes() > 0) rows.push_back(row);
  }
  return rows;
}

/// A script that trains a model of `layers` layers with AdamW.
Program script(int layers = 24, int64_t batch = 1) {
  const auto each = [&](int64_t mib) {
    return std::vector<int64_t>(static_cast<size_t>(layers), mib);
  };
  return {
      {"__init__", 12, Category::parameter_shard, each(16)},
      {"__init__", 13, Category::parameter_shard, each(64)},
      {"forward", 17, Category::activation, each(batch * 4)},
      {"forward", 18, Category::activation, each(batch * 16)},
      {"forward", 19, Category::activation, each(batch * 8)},
      {"__init__", 24, Category::parameter_shard, {100}},
      {"forward", 30, Category::activation, {batch * 2}},
      {"forward", 32, Category::activation, {batch * 50}},
      {"<module>", 40, Category::input, {batch * 3}},
      {"<module>", 44, Category::activation, {batch * 50, batch}},
      {"<module>", 46, Category::optimizer_state, each(160)},
  };
}

/// Moves the lines from a number on down by one, as a new line above them does.
void insert_line(Program& program, int64_t number) {
  for (Line& line : program) line.number += line.number >= number ? 1 : 0;
}

Line& line_at(Program& program, int64_t number) {
  return *std::ranges::find(program, number, &Line::number);
}

}  // namespace

TEST_CASE("a line that keeps tensors is the only change, also in a renamed script") {
  const Program before = script();
  Program after = before;
  insert_line(after, 1);   // import something
  insert_line(after, 40);  // history = []
  insert_line(after, 45);  // history.append(logits)
  Line& logits = line_at(after, 33);
  for (int step = 0; step < 5; ++step) logits.mib.push_back(50);
  for (const std::string name : {"train.py", "train_v2.py"}) {
    CAPTURE(name);
    const auto a = holdings_of(before, "train.py");
    const Matching matching = match(a, holdings_of(after, name));
    CHECK(matching.in_both_bytes == total_of(a));
    CHECK(matching.only_a_bytes == 0);
    CHECK(matching.only_b_bytes == 5 * 50 * kMiB);
    const auto rows = changed(matching);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].name == name + ":33 forward");
    CHECK(rows[0].growth_bytes() == 5 * 50 * kMiB);
    CHECK(rows[0].a_count == 1);
    CHECK(rows[0].b_count == 6);
    CHECK(holding_text(rows[0]) == "1 block, 50.00 MiB -> 6 blocks, 300.00 MiB");
  }
}

TEST_CASE("one more layer is one more block at each line of a layer") {
  const auto a = holdings_of(script(24), "train.py");
  const auto b = holdings_of(script(25), "train.py");
  const Matching matching = match(a, b);
  CHECK(matching.in_both_bytes == total_of(a));
  CHECK(matching.only_b_bytes == total_of(b) - total_of(a));
  const auto rows = changed(matching);
  REQUIRE(rows.size() == 6);
  CHECK(rows[0].name == "train.py:46 <module>");
  CHECK(rows[0].category == Category::optimizer_state);
  CHECK(rows[1].name == "train.py:13 __init__");
  for (const MatchedPlace& row : rows) CHECK(row.b_count == row.a_count + 1);
}

TEST_CASE("twice the batch makes the same blocks larger") {
  // Sizes that are twice another line's size must not be matched with that line's.
  const auto a = holdings_of(script(24, 1), "train.py");
  Program larger = script(24, 2);
  insert_line(larger, 5);
  const auto b = holdings_of(larger, "train.py");
  const Matching matching = match(a, b);
  CHECK(matching.in_both_bytes == total_of(a));
  CHECK(matching.only_a_bytes == 0);
  const auto rows = changed(matching);
  REQUIRE(rows.size() == 7);
  CHECK(rows[0].name == "train.py:19 forward");
  CHECK(rows[0].growth_bytes() == 24 * 16 * kMiB);
  for (const MatchedPlace& row : rows) {
    CHECK(row.a_count == row.b_count);
    CHECK(row.b_bytes == 2 * row.a_bytes);
  }
}

TEST_CASE("SGD instead of AdamW is optimizer state that is gone") {
  const Program adamw = script();
  Program sgd = adamw;
  sgd.pop_back();
  const auto a = holdings_of(adamw, "train.py");
  const auto b = holdings_of(sgd, "train.py");
  const Matching matching = match(a, b);
  CHECK(matching.in_both_bytes == total_of(b));
  CHECK(matching.only_b_bytes == 0);
  const auto rows = changed(matching);
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].category == Category::optimizer_state);
  CHECK(rows[0].growth_bytes() == -24 * 160 * kMiB);
  CHECK(holding_text(rows[0]) == "gone, 24 blocks, 3.75 GiB");
}

TEST_CASE("random edits are found, and nothing else") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 engine(seed);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(engine() % static_cast<uint32_t>(n));
  };
  const std::vector<std::string> functions = {"__init__", "forward", "step", "<module>"};
  for (int round = 0; round < 200; ++round) {
    CAPTURE(round);
    Program before;
    int64_t number = 1, size = 30;  // MiB; what is added is smaller or as large
    for (const std::string& function : functions) {
      for (int64_t i = 0; i < 2 + below(10); ++i) {
        number += 1 + below(4);
        Line line{function, number, static_cast<Category>(below(3)), {}};
        // No other line has blocks of these sizes: equal lines cannot be distinguished.
        const int64_t blocks = 1 + below(3);
        for (int64_t block = 0; block < blocks; ++block) line.mib.push_back(++size);
        before.push_back(line);
      }
    }
    Program after = before;
    std::map<std::pair<std::string, Category>, int64_t> added;
    for (int64_t edit = 0; edit < below(5); ++edit) {
      const Line at = after[static_cast<size_t>(below(std::ssize(after)))];
      insert_line(after, at.number);
      if (below(2) == 0) continue;
      const int64_t mib = 1 + below(30);
      const auto category = static_cast<Category>(below(3));
      added[{at.function, category}] += mib * kMiB;
      after.push_back({at.function, at.number, category, {mib}});
    }
    const auto a = holdings_of(before, "train.py");
    const auto b = holdings_of(after, below(2) == 0 ? "train.py" : "other.py");
    const Matching matching = match(a, b);
    CHECK(matching.in_both_bytes == total_of(a));
    CHECK(matching.only_b_bytes == total_of(b) - total_of(a));
    std::map<std::pair<std::string, Category>, int64_t> found;
    for (const MatchedPlace& row : changed(matching)) {
      found[{origin_of(row.name, "").function, row.category}] += row.growth_bytes();
    }
    CHECK(found == added);
  }
}

TEST_CASE("the rows of any two runs add up to their totals") {
  const uint32_t seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937 engine(seed);
  const auto any = [&] {
    const std::vector<std::string> labels = {"a.py:1 f", "a.py:2 f", "b.py:9 g",
                                             "mlp0",     "mlp1",     ""};
    const std::vector<std::string> actions = {"", "FORWARD mlp0", "BACKWARD mlp0"};
    std::vector<Holding> holdings;
    for (int i = 0; i < 12; ++i) {
      Holding one{.category = static_cast<Category>(engine() % 2),
                  .label = labels[engine() % labels.size()],
                  .action = actions[engine() % actions.size()],
                  .sizes = {}};
      for (uint32_t block = 0; block < engine() % 5; ++block) one.sizes.push_back(engine() % 4);
      holdings.push_back(one);
    }
    return holdings;
  };
  for (int round = 0; round < 300; ++round) {
    CAPTURE(round);
    const auto a = any();
    const auto b = any();
    const Matching matching = match(a, b);
    int64_t in_a = 0, in_b = 0;
    for (const MatchedPlace& row : matching.rows) {
      in_a += row.a_bytes;
      in_b += row.b_bytes;
      CHECK(row.only_a_bytes() >= 0);
      CHECK(row.only_b_bytes() >= 0);
    }
    CHECK(in_a == total_of(a));
    CHECK(in_b == total_of(b));
    CHECK(matching.in_both_bytes + matching.only_a_bytes == total_of(a));
    CHECK(matching.in_both_bytes + matching.only_b_bytes == total_of(b));
    CHECK(changed(match(a, a)).empty());
  }
}

TEST_CASE("layers that changed alike are one row, in the order of their numbers") {
  std::vector<Holding> a, b;
  for (int layer = 0; layer < 12; ++layer) {
    const std::string name = "block" + std::to_string(layer);
    a.push_back({Category::parameter_shard, name + " bucket 1 master", "", {8 * kMiB}});
    b.push_back({Category::parameter_shard, name + " bucket 1 master", "", {9 * kMiB}});
    a.push_back({Category::activation, name, "FORWARD " + name, {kMiB}});
    b.push_back({Category::activation, name, "RECOMPUTE " + name, {kMiB}});
  }
  b.push_back({Category::activation, "block12", "FORWARD block12", {3 * kMiB}});
  const auto rows = match(a, b).rows;
  REQUIRE(rows.size() == 3);
  CHECK(rows[0].name == "block0-11 bucket 1 master");
  CHECK(rows[0].layers == 12);
  CHECK(rows[0].growth_bytes() == 12 * kMiB);
  CHECK(rows[1].name == "block12");
  CHECK(rows[2].name == "block0-11");
  CHECK(rows[2].changed_bytes() == 0);
}

TEST_CASE("lines are matched in functions that were moved or renamed") {
  const Program before = {{"load", 5, Category::input, {7}},
                          {"forward", 20, Category::activation, {30, 9}},
                          {"loss", 40, Category::activation, {5, 11}}};
  Program after = {{"forward", 8, Category::activation, {30, 9}},
                   {"criterion", 30, Category::activation, {5, 11}},
                   {"load", 50, Category::input, {7}}};
  const auto a = holdings_of(before, "train.py");
  CHECK(changed(match(a, holdings_of(after, "train.py"))).empty());
  // Another function that holds something else is not the same one.
  after[1].mib = {6, 10};
  const auto rows = changed(match(a, holdings_of(after, "train.py")));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].b_count + rows[1].b_count == 2);
  CHECK(rows[0].in_both_bytes == 0);
}

TEST_CASE("two lines of an unchanged file are never paired") {
  const auto at = [](int64_t number) {
    return holdings_of({{"<module>", number, Category::activation, {64}}}, "train.py");
  };
  const auto lines = [](const std::vector<int64_t>& numbers) {
    ProgramLines program;
    for (const int64_t number : numbers) {
      program.lines.insert("train.py:" + std::to_string(number) + " <module>");
    }
    return program;
  };
  const auto rows_of = [&](const ProgramLines& a, const ProgramLines& b) {
    return changed(match(at(14), at(12), a, b)).size();
  };
  CHECK(rows_of({}, {}) == 0);  // nothing is known of the file: the line may have moved
  // Each run has lines that the other lacks, but those after them have not moved.
  CHECK(rows_of(lines({4, 9, 14, 15}), lines({4, 9, 11, 12, 15})) == 2);
  CHECK(rows_of(lines({14}), lines({12, 14})) == 2);
  // All lines from the ninth on have moved up by two.
  CHECK(rows_of(lines({4, 11, 14, 17}), lines({4, 9, 12, 15})) == 0);
  // A fingerprint knows better than lines.
  ProgramLines a = lines({4, 14}), b = lines({4, 12});
  CHECK(rows_of(a, b) == 0);
  a.fingerprints["train.py"] = b.fingerprints["train.py"] = "1";
  CHECK(rows_of(a, b) == 2);
  ProgramLines c = lines({14, 20}), d = lines({12, 20});
  c.fingerprints["train.py"] = "1";
  d.fingerprints["train.py"] = "2";
  CHECK(rows_of(c, d) == 0);
}

TEST_CASE("a workspace belongs to whichever place called its library first") {
  const std::vector<Holding> a = {{Category::workspace, "head", "FORWARD head", {16, 16}}};
  const std::vector<Holding> b = {{Category::workspace, "mlp9", "BACKWARD mlp9", {16, 16, 4}}};
  const auto rows = changed(match(a, b));
  REQUIRE(rows.size() == 1);
  CHECK(rows[0].name == "mlp9");
  CHECK(rows[0].growth_bytes() == 4);
}

TEST_CASE("an origin is a line of a program or a module in a kind of action") {
  CHECK(origin_of("train.py:41 forward", "") == Origin{"train.py", 41, "forward", ""});
  CHECK(origin_of("C:x.py:3 <module>", "") == Origin{"C:x.py", 3, "<module>", ""});
  CHECK(origin_of("t.py:4 forward, backward from t.py:30 main", "") ==
        Origin{"t.py", 4, "forward, backward from main", ""});
  CHECK(origin_of("src/t.py:4 forward, backward from t.py:30 main", "").function ==
        "forward, backward from main");
  CHECK(origin_of("model.py:4 forward, backward from t.py:30 main", "").function ==
        "forward, backward from t.py main");
  CHECK(origin_of("mlp3", "BACKWARD mlp3 bucket 0") == Origin{"", 0, "BACKWARD", "mlp3"});
  CHECK(origin_of("", "FORWARD mlp3") == Origin{"", 0, "FORWARD", "mlp3"});
  CHECK(origin_of("torch::unwind()", "") == Origin{"", 0, "", "torch::unwind()"});
  CHECK(short_action(3, "BACKWARD unit=a  group=b0 bucket=1") == "BACKWARD a bucket 1");
  CHECK(short_action(3, "REDUCE_SCATTER group=b0 bucket=1") == "REDUCE_SCATTER b0 bucket 1");
  CHECK(short_action(57, "") == "action 57");
  CHECK(short_action(-1, "") == "");
}

TEST_CASE("names are in natural order") {
  std::vector<std::string> names = {"mlp10", "mlp2 master", "mlp2", "a", "mlp02", "mlp", "10", "9"};
  std::ranges::sort(names, is_naturally_less);
  CHECK(names ==
        std::vector<std::string>{"9", "10", "a", "mlp", "mlp02", "mlp2", "mlp2 master", "mlp10"});
}

TEST_CASE("a snapshot without categories is paired in full with a recording that has them") {
  const std::vector<Holding> recorded = {
      {.category = Category::activation, .label = "a.py:1 f", .sizes = {8, 4}},
      {.category = Category::parameter_shard, .label = "a.py:2 g", .sizes = {16}}};
  std::vector<Holding> snapshot = recorded;
  for (Holding& one : snapshot) {
    one.category = Category::other;
    one.label = "/home/u/" + one.label;  // PyTorch names whole paths
  }
  for (const bool swapped : {false, true}) {
    const Matching matching = swapped ? match(snapshot, recorded) : match(recorded, snapshot);
    CHECK(matching.in_both_bytes == 28);
    CHECK(matching.only_a_bytes + matching.only_b_bytes == 0);
    REQUIRE(matching.rows.size() == 2);
    CHECK(matching.rows[0].category == Category::parameter_shard);
    CHECK(matching.rows[1].category == Category::activation);
  }
}
