// Tests checkpoints: their files on any number of ranks, their texts, which damage is found, and
// which are kept.
#include "runtime/checkpoint/checkpoint.h"

#include <algorithm>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cstring>
#include <filesystem>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "base/background_task.h"
#include "base/fault.h"
#include "models/families.h"
#include "runtime/checkpoint/checkpoint_commands.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "tests/support/memory_folder.h"
#include "tests/support/small_checkpoint.h"

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
namespace fs = std::filesystem;

namespace {

/// A store, and ranks as threads that write into it.
class Bench {
 public:
  const CheckpointStore& store() const { return store_; }
  planner::Checkpointing wanted{.wanted = true};

  fs::path write(int64_t step, CheckpointState position, int world_size = 2) const {
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < world_size; ++rank) {
      ranks.emplace_back([&, rank] {
        tests::write_small_checkpoint({.store = store_,
                                       .wanted = wanted,
                                       .rank = rank,
                                       .world_size = world_size,
                                       .deadline = std::chrono::seconds(20)},
                                      step, position);
      });
    }
    for (std::thread& rank : ranks) rank.join();
    return store_.list().back().path;
  }
  fs::path write(int64_t step, int world_size = 2) const {
    return write(step, tests::small_position(step), world_size);
  }
  std::vector<int64_t> steps() const {
    std::vector<int64_t> steps;
    for (const StoredCheckpoint& one : store_.list()) steps.push_back(one.step);
    return steps;
  }

 private:
  tests::MemoryFolder folder_;
  CheckpointStore store_{folder_.file("checkpoints")};
};

std::map<std::string, std::string> tensors_in(const fs::path& checkpoint) {
  std::map<std::string, std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().extension() != ".safetensors") continue;
    files[entry.path().filename().string()] = tests::read_file(entry.path().string());
  }
  return files;
}

void flip_bit(const fs::path& file, size_t bit) {
  std::string bytes = tests::read_file(file.string());
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
  tests::write_file(file.string(), bytes);
}

}  // namespace

TEST_CASE("a checkpoint's files do not depend on the number of ranks", "[checkpoint][threads]") {
  const Bench one;
  const auto expected = tensors_in(one.write(7, 1));
  CHECK(expected.size() > 4);
  for (const int world_size : {2, 3, 4, 7}) {
    const Bench bench;
    CHECK(tensors_in(bench.write(7, world_size)) == expected);
  }
}

TEST_CASE("what was written is read back, tensor by tensor", "[checkpoint]") {
  const Bench bench;
  const fs::path path = bench.write(7, 3);
  CHECK_FALSE(fault_of(path));
  const CheckpointReader reader(path);
  const FileLayout layout = tests::small_layout();
  CHECK_NOTHROW(reader.expect(layout));
  const std::vector<float> expected = tests::small_state(layout, 7);
  size_t at = 0;
  for (const auto& tensors : layout.parameters) {
    for (const PlacedTensor& tensor : tensors) {
      const auto* found = reader.find(tensor.name);
      REQUIRE(found != nullptr);
      CHECK(found->shape == tensor.shape);
      CHECK(std::memcmp(found->data.data(), expected.data() + at, found->data.size()) == 0);
      at += static_cast<size_t>(tensor.numel());
    }
  }
  REQUIRE(reader.state().has_value());
  CHECK(reader.state()->ranks.size() == 3);
  CHECK(reader.state()->ranks[2].logged.sum == 1.0);
  CHECK(tests::read_file((bench.store().folder() / "LATEST").string()) == "step-00000007\n");
}

TEST_CASE("a state survives a round trip through text", "[checkpoint]") {
  CheckpointState state = tests::small_position(11);
  state.optimizer_steps = 9;
  state.loss_scale = {.scale = 32768, .steps_without_overflow = 5};
  state.train_loss = 0.1;
  state.ranks = {{.logged = {.sum = 1.0 / 3, .batches = 2}, .logged_ms = 0.7, .generator = "00ff"},
                 {.epoch = {.sum = 1e-300, .batches = 4}}};
  CHECK(parse_state(to_json(state)) == state);
  state.ranks[0].epoch.sum = std::numeric_limits<double>::quiet_NaN();
  CHECK(std::isnan(parse_state(to_json(state)).ranks[0].epoch.sum));
  CHECK_THROWS_MATCHES(parse_state("{"), std::runtime_error,
                       MessageMatches(ContainsSubstring("is damaged")));
  CHECK_THROWS_MATCHES(parse_state(R"({"schema": "other/1"})"), std::runtime_error,
                       MessageMatches(ContainsSubstring("schema")));
}

TEST_CASE("every bit of a manifest counts", "[checkpoint]") {
  const Bench bench;
  const fs::path path = bench.write(1);
  const fs::path manifest = path / "manifest.json";
  const std::string text = tests::read_file(manifest.string());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    flip_bit(manifest, bit);
    CAPTURE(bit, text[bit / 8]);
    CHECK(fault_of(path));
    tests::write_file(manifest.string(), text);
  }
  CHECK_FALSE(fault_of(path));
}

TEST_CASE("any damage to a checkpoint is found and named", "[checkpoint]") {
  const Bench bench;
  bench.write(1);
  const fs::path path = bench.write(2);
  const uint64_t seed = std::random_device{}();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  std::vector<fs::path> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(path))
    files.push_back(entry.path());
  for (const fs::path& file : files) {
    CAPTURE(file.string());
    const std::string name = file.filename().string();
    const std::string whole = tests::read_file(file.string());
    for (int i = 0; i < 20; ++i) {
      flip_bit(file, engine() % (whole.size() * 8));
      CHECK(fault_of(path));
      tests::write_file(file.string(), whole.substr(0, engine() % (whole.size() - 1)));
      CHECK_THAT(fault_of(path).value_or(""), ContainsSubstring(name));
      tests::write_file(file.string(), whole);
    }
    tests::write_file(file.string(), whole + "x");
    CHECK_THAT(fault_of(path).value_or(""), ContainsSubstring(name));
    fs::remove(file);
    const NewestCheckpoint newest = bench.store().newest_checkpoint();
    REQUIRE(newest.found.has_value());
    CHECK(newest.found->step == 1);
    REQUIRE(newest.damaged.size() == 1);
    CHECK_THAT(newest.damaged[0].fault, ContainsSubstring(name));
    tests::write_file(file.string(), whole);
  }
  CHECK(bench.store().newest_checkpoint().found->step == 2);
}

namespace {

/// The messages of `ranks` ranks that each copy an equal part of every tensor, and of their
/// replicas; empty if all is as it was written. `state` has what they copied.
std::string read_by(const CheckpointStore& store, int ranks, int replicas,
                    std::vector<float>& state) {
  const FileLayout layout = tests::small_layout();
  const fs::path path = store.list().back().path;
  std::string fault;
  std::vector<std::vector<float>> copies(static_cast<size_t>(replicas),
                                         tests::small_state(layout, 0));
  const auto be_rank = [&](int rank) {
    std::vector<float>& copy = copies[static_cast<size_t>(rank / ranks)];
    CheckpointReader reader(path);
    float* tensor_begin = copy.data();
    for (const auto& tensors : layout.parameters) {
      for (const PlacedTensor& tensor : tensors) {
        const int64_t begin = tensor.numel() * (rank % ranks) / ranks;
        const int64_t end = tensor.numel() * (rank % ranks + 1) / ranks;
        reader.read(tensor.name, begin * int64_t{sizeof(float)},
                    std::as_writable_bytes(std::span(tensor_begin + begin, tensor_begin + end)));
        tensor_begin += tensor.numel();
      }
    }
    try {
      reader.verify({.rank = rank,
                     .world_size = ranks * replicas,
                     .folder = store.being_read(1),
                     .patience = {.deadline = std::chrono::seconds(20)}});
    } catch (const Failure& failure) {
      fault = failure.fault() == Fault::damaged ? failure.what() : "another fault";
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 1; rank < ranks * replicas; ++rank) threads.emplace_back(be_rank, rank);
  be_rank(0);
  for (std::thread& thread : threads) thread.join();
  state = copies.back();
  return fault;
}

}  // namespace

TEST_CASE("ranks verify together what each one reads", "[checkpoint][threads]") {
  const Bench bench;
  const fs::path path = bench.write(3);
  const int ranks = GENERATE(1, 2, 5);
  const int replicas = GENERATE(1, 2);
  const auto seed = Catch::getSeed();
  CAPTURE(ranks, replicas, seed);
  std::mt19937_64 random(seed);
  std::vector<float> state;
  CHECK(read_by(bench.store(), ranks, replicas, state) == "");
  CHECK(state == tests::small_state(tests::small_layout(), 3));
  CHECK_FALSE(fs::exists(bench.store().being_read(1)));
  int64_t padded = 0;
  for (const auto& [name, bytes] : tensors_in(path)) {
    CAPTURE(name);
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    const size_t data_begin = sizeof header_bytes + header_bytes;
    for (int i = 0; i < 5; ++i) {
      flip_bit(path / name, 8 * data_begin + random() % (8 * (bytes.size() - data_begin)));
      CHECK_FALSE(fault_of(path, Look::sizes));
      CHECK_THAT(read_by(bench.store(), ranks, replicas, state),
                 ContainsSubstring(name + " is damaged: its checksum is"));
      tests::write_file((path / name).string(), bytes);
    }
    if (bytes[data_begin - 1] != ' ') continue;
    ++padded;
    std::string same_to_json = bytes;
    same_to_json[data_begin - 1] = '\n';
    tests::write_file((path / name).string(), same_to_json);
    CHECK_THAT(read_by(bench.store(), ranks, replicas, state),
               ContainsSubstring(name + " is damaged"));
    tests::write_file((path / name).string(), bytes);
  }
  CHECK(padded > 0);
}

TEST_CASE("a rank that never comes to read is named", "[checkpoint]") {
  const Bench bench;
  CheckpointReader reader(bench.write(3));
  CHECK_THROWS_MATCHES(reader.verify({.rank = 0,
                                      .world_size = 2,
                                      .folder = bench.store().being_read(3),
                                      .patience = {.deadline = std::chrono::milliseconds(20)}}),
                       Failure, MessageMatches(ContainsSubstring("rank 1 has not read its part")));
}

TEST_CASE("nothing is given up for a checkpoint that no rank has read", "[checkpoint]") {
  const Bench bench;
  bench.write(1);
  const fs::path path = bench.write(2);
  const auto files = tensors_in(path);
  const auto& [name, bytes] = *files.rbegin();
  flip_bit(path / name, 8 * bytes.size() - 1);
  const planner::Checkpointing wanted{.wanted = true, .keep = 1};
  bench.store().take_over(bench.store().newest_checkpoint(Look::sizes), wanted);
  CHECK(bench.steps() == std::vector<int64_t>{1, 2});
  bench.store().take_over(bench.store().newest_checkpoint(), wanted);
  CHECK(bench.steps() == std::vector<int64_t>{1});
}

TEST_CASE("a checkpoint under another step's name is damaged", "[checkpoint]") {
  const Bench bench;
  const fs::path path = bench.write(2);
  fs::copy(path, bench.store().folder() / "step-00000009");
  CHECK(bench.store().newest_checkpoint().found->step == 2);
  CHECK_THAT(bench.store().newest_checkpoint().damaged[0].fault, ContainsSubstring("step 2"));
}

TEST_CASE("a checkpoint of another model is refused", "[checkpoint]") {
  const Bench bench;
  const CheckpointReader reader(bench.write(2));
  const models::ModelSpec other = models::make_spec(
      "small", models::MlpSizes{.inputs = 12, .width = 11, .layers = 1, .classes = 3});
  CHECK_THROWS_MATCHES(reader.expect(checkpoint_layout(other, {})), std::invalid_argument,
                       MessageMatches(ContainsSubstring("another model") &&
                                      ContainsSubstring("[10, 12], not F32 [11, 12]")));
  CHECK_THROWS_MATCHES(reader.expect(checkpoint_layout(tests::small_spec(), {})),
                       std::invalid_argument, MessageMatches(ContainsSubstring("tensors")));
}

TEST_CASE("the latest and the best are kept", "[checkpoint]") {
  Bench bench;
  const auto write_all = [&] {
    const double accuracies[] = {0.5, 0.9, 0.7, 0.9, 0.6};
    for (int64_t step = 1; step <= 5; ++step) {
      CheckpointState position = tests::small_position(step);
      position.test_accuracy = accuracies[step - 1];
      position.train_loss = step == 2 ? 0.1 : 1.0 / static_cast<double>(step);
      bench.write(step, position);
    }
  };
  bench.wanted.keep = 3;
  SECTION("newest") {
    write_all();
    CHECK(bench.steps() == std::vector<int64_t>{3, 4, 5});
  }
  SECTION("accuracy") {
    bench.wanted.by = planner::KeepRule::accuracy;
    write_all();
    CHECK(bench.steps() == std::vector<int64_t>{2, 4, 5});
  }
  SECTION("loss") {
    bench.wanted.by = planner::KeepRule::loss;
    write_all();
    CHECK(bench.steps() == std::vector<int64_t>{2, 4, 5});
  }
  SECTION("one") {
    bench.wanted.keep = 1;
    write_all();
    CHECK(bench.steps() == std::vector<int64_t>{5});
  }
  SECTION("all") {
    bench.wanted.keep = 0;
    write_all();
    CHECK(bench.steps().size() == 5);
  }
}

TEST_CASE("files that a run did not write are never removed", "[checkpoint]") {
  Bench bench;
  bench.wanted.keep = 1;
  const fs::path folder = bench.store().folder();
  const fs::path noted = bench.write(1);
  tests::write_file((noted / "notes.txt").string(), "mine");
  for (const char* name :
       {"step-1", "step-00000002-backup", "mine", ".tmp-mine", "step-00000003"}) {
    fs::create_directories(folder / name);
    tests::write_file((folder / name / "notes.txt").string(), "mine");
  }
  tests::write_file((folder / "step-00000004").string(), "a file");
  bench.write(5);
  bench.write(6);
  bench.store().clear();
  for (const char* name :
       {"step-00000001", "step-1", "step-00000002-backup", "mine", ".tmp-mine", "step-00000003"}) {
    CHECK(tests::read_file((folder / name / "notes.txt").string()) == "mine");
  }
  CHECK(fs::exists(folder / "step-00000004"));
  CHECK_FALSE(fs::exists(folder / "step-00000005"));
  CHECK_FALSE(fs::exists(folder / "step-00000006"));
  CHECK_FALSE(fs::exists(folder / "LATEST"));
}

TEST_CASE("a folder under a taken name is set aside, not overwritten", "[checkpoint]") {
  const Bench bench;
  const fs::path path = bench.write(2);
  flip_bit(path / "state.json", 80);
  bench.write(2);
  CHECK_FALSE(fault_of(path));
  CHECK(fault_of(bench.store().folder() / "damaged-step-00000002"));
}

TEST_CASE("a part that is missing, or appears twice, is a logic error", "[checkpoint]") {
  const tests::TemporaryFolder folder;
  const FileLayout layout = tests::small_layout();
  const std::vector<float> state = tests::small_state(layout, 1);
  auto ranges = tests::small_ranges(layout, state, 0, 1);
  const Patience patience{.deadline = std::chrono::milliseconds(50)};
  ranges.pop_back();
  write_part(
      {.layout = layout, .folder = folder.path(), .rank = 0, .ranges = ranges, .progress = {}});
  CHECK_THROWS_MATCHES(collect_parts(layout, folder.path(), 2, "it", patience), std::runtime_error,
                       MessageMatches(ContainsSubstring("rank 1 has not written its part")));
  CHECK_THROWS_AS(collect_parts(layout, folder.path(), 1, "it", patience), std::logic_error);
}

TEST_CASE("work beside the training reports its failure", "[checkpoint][threads]") {
  BackgroundTask task;
  std::atomic<int> done = 0;
  task.start([&](const std::atomic<bool>&) { ++done; });
  task.start([&](const std::atomic<bool>&) {
    ++done;
    throw std::runtime_error("the disk is full");
  });
  CHECK_THROWS_MATCHES(task.wait(), std::runtime_error, MessageMatches(ContainsSubstring("full")));
  CHECK_NOTHROW(task.check());
  CHECK(done == 2);
  {
    BackgroundTask stopped;
    stopped.start([&](const std::atomic<bool>& is_stopped) {
      while (!is_stopped) std::this_thread::yield();
      ++done;
    });
  }
  CHECK(done == 3);
}

TEST_CASE("shardlens checkpoint says which checkpoints are whole", "[checkpoint]") {
  const Bench bench;
  bench.write(1);
  const fs::path path = bench.write(2);
  const std::string folder = bench.store().folder().string();
  CheckpointOutcome outcome = checkpoint_command({"verify", folder});
  CHECK(outcome.exit_code == 0);
  CHECK(std::count(outcome.out.begin(), outcome.out.end(), '\n') == 2);
  CHECK_THAT(checkpoint_command({"inspect", folder}).out, ContainsSubstring("step 2\n"));
  fs::remove(path / "state.json");
  outcome = checkpoint_command({"verify", path.string()});
  CHECK(outcome.exit_code == 1);
  CHECK_THAT(outcome.out, ContainsSubstring("damaged: state.json is missing"));
  CHECK_THAT(checkpoint_command({"inspect", folder}).out, ContainsSubstring("step 1\n"));
  CHECK_THAT(checkpoint_command({"inspect", folder, "--json"}).out, ContainsSubstring("\"state\""));
  CHECK_THROWS_AS(checkpoint_command({"inspect", path.string()}), std::runtime_error);
  for (const std::vector<std::string>& wrong : std::vector<std::vector<std::string>>{
           {}, {"verify"}, {"repair", folder}, {"verify", "/proc"}}) {
    CHECK_THROWS_AS(checkpoint_command(wrong), std::invalid_argument);
  }
}
