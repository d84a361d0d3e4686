// Converts checkpoints to PyTorch's formats and back, and reads what PyTorch itself has written
// (fixtures made by tests/reference/interchange.py). That PyTorch reads ours is tested by
// tests/runtime/checkpoint/pytorch_test.cpp.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "base/document/pickle_writer.h"
#include "models/weights/torch_file.h"
#include "runtime/checkpoint/checkpoint_commands.h"
#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/interchange/dcp_writer.h"
#include "runtime/checkpoint/interchange/saved_state.h"
#include "runtime/checkpoint/interchange/trained_model.h"
#include "tests/support/memory_folder.h"
#include "tests/support/small_checkpoint.h"

using namespace shardlens;
using namespace shardlens::runtime;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

const std::string kFixtures = SHARDLENS_SOURCE_DIR "/tests/fixtures/interchange/";

using Values = std::map<std::string, std::vector<float>>;

std::vector<float> floats_of(const models::SafetensorsTensor& tensor) {
  std::vector<float> values(tensor.data.size() / sizeof(float));
  std::memcpy(values.data(), tensor.data.data(), tensor.data.size());
  return values;
}

Values values_in(const fs::path& checkpoint) {
  CHECK_FALSE(fault_of(checkpoint));
  const CheckpointReader reader(checkpoint);
  Values values;
  for (const models::SafetensorsFile& file : reader.files()) {
    for (const auto& tensor : file.tensors()) values[tensor.name] = floats_of(tensor);
  }
  return values;
}

/// PyTorch's own account of a fixture; parameters' steps are not tensors in our checkpoints.
Values recorded(const std::string& name) {
  Values values;
  const json all = json::parse(tests::read_file(kFixtures + name));
  for (const auto& [key, list] : all.items()) {
    if (!key.ends_with(".step")) values[key] = list.get<std::vector<float>>();
  }
  return values;
}

fs::path import(const fs::path& source, const tests::TemporaryFolder& folder) {
  const std::string out = folder.file("imported");
  checkpoint_command({"import", source.string(), "--out", out});
  return CheckpointStore(out).list().back().path;
}

fs::path small_checkpoint(const tests::TemporaryFolder& folder, int64_t step) {
  const CheckpointStore store(folder.file("checkpoints"));
  CheckpointState position = tests::small_position(step);
  position.optimizer_steps = static_cast<double>(step);
  position.configuration = R"({"optimizer": "adamw", "lr": 0.25, "weight_decay": 0.5})";
  tests::write_small_checkpoint({.store = store,
                                 .wanted = {.wanted = true},
                                 .rank = 0,
                                 .world_size = 1,
                                 .deadline = std::chrono::seconds(20)},
                                step, position);
  return store.list().back().path;
}

/// A file of torch.save that holds one pickle.
std::string archive_of(const std::string& pickle) {
  std::ostringstream out;
  models::write_torch_value(out, pickle);
  return out.str();
}

void check_refused(const std::string& path, const std::string& why) {
  INFO(path);
  CHECK_THROWS_MATCHES(read_saved_state(path), std::runtime_error,
                       MessageMatches(ContainsSubstring(why) && ContainsSubstring(path)));
}

void check_wrong_use(const std::vector<std::string>& arguments, const std::string& why) {
  CHECK_THROWS_MATCHES(checkpoint_command(arguments), std::invalid_argument,
                       MessageMatches(ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("what two ranks of FSDP2 saved with DCP is imported whole", "[interchange]") {
  const tests::MemoryFolder folder;
  const fs::path checkpoint = import(kFixtures + "fsdp2", folder);
  CHECK(values_in(checkpoint) == recorded("fsdp2.json"));
  CHECK(checkpoint.filename() == "step-00000003");
  CHECK(CheckpointReader(checkpoint).state()->optimizer_steps == 3);
  const SavedState state = read_saved_state(kFixtures + "fsdp2");
  const TrainedModel model = find_model(state, "fsdp2");
  CHECK(model.settings.at("lr") == 0.01);
  CHECK(model.order == std::vector<std::string>{"0.weight", "0.bias", "1.weight", "1.bias"});
}

TEST_CASE("a model without an optimizer is imported from each kind of file", "[interchange]") {
  const tests::MemoryFolder folder;
  const std::string name = GENERATE("plain", "state_dict.pt", "nested.pt");
  INFO(name);
  const fs::path checkpoint = import(kFixtures + name, folder);
  CHECK(values_in(checkpoint) == recorded("plain.json"));
  models::SafetensorsFile file((checkpoint / "model-00001-of-00001.safetensors").string());
  CHECK(file.find("0.weight")->shape == std::vector<int64_t>{5, 3});
}

TEST_CASE("tensors with other strides or dtypes keep their values", "[interchange]") {
  const tests::MemoryFolder folder;
  const Values values = values_in(import(kFixtures + "odd.pt", folder));
  CHECK(values.at("transposed") == std::vector<float>{0, 3, 1, 4, 2, 5});
  CHECK(values.at("view") == std::vector<float>{4, 5, 6, 7});
  CHECK(values.at("half") == std::vector<float>{1, -2.5F, 0x1p-24F, 65504});
  CHECK(values.at("brain") == std::vector<float>{1, -3});
  CHECK(values.at("double") == std::vector<float>{0.1F});
  CHECK(values.at("parameter") == std::vector<float>{4});
  CHECK_FALSE(values.contains("count"));  // an integer is not a weight
}

TEST_CASE("an export in any format has what was saved", "[interchange]") {
  const tests::MemoryFolder folder;
  const fs::path checkpoint = small_checkpoint(folder, 9);
  const Values expected = values_in(checkpoint);
  checkpoint_command({"export", checkpoint.string(), "--dcp", folder.file("dcp"), "--pt",
                      folder.file("m.pt"), "--safetensors", folder.file("m.safetensors")});
  CHECK(values_in(import(folder.file("dcp"), folder)) == expected);
  Values weights = expected;
  std::erase_if(weights, [](const auto& one) {
    return one.first.ends_with(".exp_avg") || one.first.ends_with(".exp_avg_sq");
  });
  REQUIRE(weights.size() < expected.size());
  for (const char* file : {"m.pt", "m.safetensors"}) {
    const tests::MemoryFolder other;
    CHECK(values_in(import(folder.file(file), other)) == weights);
  }
  const SavedState state = read_saved_state(folder.file("dcp"));
  const TrainedModel model = find_model(state, "dcp");
  CHECK(model.steps == 9);
  CHECK(model.settings.at("lr") == 0.25);
  CHECK(model.settings.at("weight_decay") == 0.5);
}

TEST_CASE("a tensor that DCP keeps in pieces is assembled", "[interchange]") {
  const tests::MemoryFolder folder;
  std::vector<float> values(60);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const models::SafetensorsTensor tensor{"w", "F32", {12, 5}, std::as_bytes(std::span(values))};
  for (const int64_t most_bytes : {1, 20, 50, 100, 1000}) {
    const std::string path = folder.file(std::to_string(most_bytes));
    write_dcp(path, {{{"model", "w"}, tensor}}, {}, most_bytes);
    const SavedState state = read_saved_state(path);
    const size_t rows = static_cast<size_t>(std::clamp<int64_t>(most_bytes / 20, 1, 12));
    CHECK(state.tensors.at(0).pieces.size() == (12 + rows - 1) / rows);
    const tests::MemoryFolder other;
    CHECK(values_in(import(path, other)).at("w") == values);
  }
}

TEST_CASE("boxes of columns are assembled, and holes and overlaps are found", "[interchange]") {
  const std::vector<float> values = {0, 1, 2, 3, 4, 5};
  const auto bytes = std::as_bytes(std::span(values));
  SavedTensor tensor{
      {"w"},
      "F32",
      {3, 2},
      {{{0, 1}, {3, 1}, bytes.subspan(0, 12)}, {{0, 0}, {3, 1}, bytes.subspan(12, 12)}}};
  const PlacedTensor placed{.name = "w", .shape = {3, 2}};
  Fp32Ranges ranges;
  ranges.add(placed, tensor);
  std::vector<float> found(6);
  std::memcpy(found.data(), ranges.ranges().at(0).data.data(), 24);
  CHECK(found == std::vector<float>{3, 0, 4, 1, 5, 2});
  tensor.pieces[1].begin = {0, 1};
  CHECK_THROWS_MATCHES(Fp32Ranges().add(placed, tensor), std::runtime_error,
                       MessageMatches(ContainsSubstring("leave a gap, or overlap")));
  const auto find = [&] { find_model({{tensor}, {}, {}}, "here"); };
  tensor.pieces.pop_back();
  CHECK_THROWS_MATCHES(find(), std::runtime_error,
                       MessageMatches(ContainsSubstring("leave a gap")));
  tensor.pieces[0].begin = {1, 1};
  CHECK_THROWS_MATCHES(find(), std::runtime_error,
                       MessageMatches(ContainsSubstring("leave a gap")));
  tensor.shape = {int64_t{1} << 40, int64_t{1} << 40};
  CHECK_THROWS_MATCHES(find(), std::runtime_error,
                       MessageMatches(ContainsSubstring("leave a gap")));
}

TEST_CASE("pickles that ask for more than tensors are refused by name", "[interchange]") {
  const tests::MemoryFolder folder;
  PickleWriter call;
  call.global("os", "system").text("true").tuple_of_one().reduce();
  tests::write_file(folder.file("evil.pt"), archive_of(std::move(call).stop()));
  check_refused(folder.file("evil.pt"), "GLOBAL of os.system is refused");

  fs::create_directory(folder.file("evil"));
  PickleWriter metadata;
  metadata.global("builtins", "eval").text("1").tuple_of_one().reduce();
  tests::write_file(folder.file("evil/.metadata"), std::move(metadata).stop());
  check_refused(folder.file("evil"), "GLOBAL of builtins.eval is refused");

  PickleWriter tensors;
  tensors.global("torch._utils", "_rebuild_device_tensor_from_numpy").empty_tuple().reduce();
  tests::write_file(folder.file("odd.pt"), archive_of(std::move(tensors).stop()));
  check_refused(folder.file("odd.pt"), "not one of the classes that are read here");
  tests::write_file(folder.file("text.pt"), std::string(100, 'x'));
  check_refused(folder.file("text.pt"), "no archive directory");
}

TEST_CASE("a DCP folder that lacks a file or names one elsewhere is refused", "[interchange]") {
  const tests::MemoryFolder folder;
  fs::copy(kFixtures + "plain", folder.file("d"));
  fs::remove(folder.file("d/__0_0.distcp"));
  check_refused(folder.file("d"), "__0_0.distcp");
  std::string metadata = tests::read_file(kFixtures + "plain/.metadata");
  const size_t name = metadata.find("__0_0.distcp");
  tests::write_file(folder.file("d/.metadata"), metadata.replace(name, 12, "../evil.dist"));
  check_refused(folder.file("d"), "is not in a file of the folder");
}

TEST_CASE("damage of any kind is refused, and nothing is read beyond the file", "[interchange]") {
  const uint64_t seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937_64 engine(seed);
  const tests::MemoryFolder folder;
  fs::copy(kFixtures + "fsdp2", folder.file("fsdp2"));
  fs::copy(kFixtures + "odd.pt", folder.file("odd.pt"));
  fs::copy(kFixtures + "nested.pt", folder.file("nested.pt"));
  const std::vector<std::pair<std::string, std::string>> files = {{"fsdp2/.metadata", "fsdp2"},
                                                                  {"fsdp2/__1_0.distcp", "fsdp2"},
                                                                  {"odd.pt", "odd.pt"},
                                                                  {"nested.pt", "nested.pt"}};
  int refused = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto& [file, source] = files[engine() % files.size()];
    const std::string whole = tests::read_file(folder.file(file));
    std::string bytes = whole;
    for (size_t n = engine() % 4 + 1; n-- > 0;) {
      bytes[engine() % bytes.size()] = static_cast<char>(engine());
    }
    if (engine() % 8 == 0) bytes.resize(engine() % bytes.size());
    tests::write_file(folder.file(file), bytes);
    try {
      import(folder.file(source), folder);
      fs::remove_all(folder.file("imported"));
    } catch (const std::invalid_argument&) {  // any other error fails this test
      ++refused;
      CHECK_FALSE(fs::exists(folder.file("imported")));
    }
    tests::write_file(folder.file(file), whole);
  }
  CHECK(refused > 1000);
  CHECK(values_in(import(folder.file("fsdp2"), folder)) == recorded("fsdp2.json"));
}

TEST_CASE("an import only becomes a run of its own model and optimizer", "[interchange]") {
  const tests::MemoryFolder folder;
  const std::string fixture = kFixtures + "fsdp2";
  const std::vector<std::string> base = {"import", fixture, "--storage", folder.file("runs")};
  const auto with = [&](std::vector<std::string> more) {
    std::vector<std::string> all = base;
    all.insert(all.end(), more.begin(), more.end());
    return all;
  };
  check_wrong_use(with({"--name", "r", "--model", "simple-model"}), "give the --model");
  check_wrong_use(with({"--model", "simple-model"}), "give --out FOLDER, or --name RUN");
  check_wrong_use({"import"}, "give checkpoint import SOURCE");
  check_wrong_use({"import", folder.file("none"), "--out", folder.file("o")}, "does not exist");
  check_wrong_use({"import", fixture, "--out", kFixtures}, "give a new folder");
  check_wrong_use({"export", folder.path()}, "one of --dcp");
  CHECK_FALSE(fs::exists(folder.file("runs")));
}

TEST_CASE("an export as DCP becomes a run again that goes on", "[interchange]") {
  const tests::MemoryFolder folder;
  const models::ModelSpec spec = models::find_spec("simple-model");
  const FileLayout layout = checkpoint_layout(
      spec,
      std::vector<std::vector<std::string>>(spec.parameters.size(), {"exp_avg", "exp_avg_sq"}));
  const std::vector<float> values = tests::small_state(layout, 250);
  const CheckpointStore store(folder.file("checkpoints"));
  write_checkpoint({.store = store,
                    .wanted = {.wanted = true},
                    .rank = 0,
                    .world_size = 1,
                    .deadline = std::chrono::seconds(20)},
                   layout, {.ranges = tests::small_ranges(layout, values, 0, 1), .progress = {}},
                   {.step = 250, .optimizer_steps = 250, .configuration = "{}"});
  const fs::path checkpoint = store.list().back().path;
  checkpoint_command({"export", checkpoint.string(), "--dcp", folder.file("dcp")});
  const std::string said =
      checkpoint_command({"import", folder.file("dcp"), "--name", "r", "--storage",
                          folder.file("runs"), "--model", "simple-model", "--epochs", "4",
                          "--batch", "8", "--workers", "2", "--lr", "0.5"})
          .out;
  CHECK_THAT(said, ContainsSubstring("it was saved with lr 0.001; train continues with 0.5"));
  CHECK_THAT(said, ContainsSubstring("epoch 3 of 4"));
  const CheckpointStore run(folder.file("runs/r/checkpoints"));
  REQUIRE(run.list().size() == 1);
  CHECK(values_in(run.list()[0].path) == values_in(checkpoint));
  const CheckpointReader reader(run.list()[0].path);
  CHECK(reader.state()->epoch == 2);
  CHECK(reader.state()->epoch_samples == 50 * 16);
  CHECK(json::parse(reader.state()->configuration).at("data") == "synthetic");
  check_wrong_use(
      {"import", folder.file("dcp"), "--name", "r", "--storage", folder.file("runs"), "--model",
       "simple-model", "--epochs", "4", "--batch", "8", "--workers", "2", "--lr", "0.5"},
      "checkpoints of its own");
}
