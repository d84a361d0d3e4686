// Tests `shardlens infer` as a user sees it: what it prints, which weights it takes, what it
// refuses.
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "runtime/infer/picture.h"
#include "tests/support/train_bench.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

ProcessEnd infer(const TrainBench& bench, std::vector<std::string> flags) {
  std::vector<std::string> words = {SHARDLENS, "infer", "--run", bench.file("runs/r")};
  words.insert(words.end(), flags.begin(), flags.end());
  return run(words);
}

json infer_json(const TrainBench& bench, std::vector<std::string> flags) {
  flags.emplace_back("--json");
  const ProcessEnd ended = infer(bench, flags);
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  return json::parse(ended.out);
}

std::map<int64_t, double> probabilities(const json& inference) {
  std::map<int64_t, double> all;
  for (const json& guess : inference.at("classes"))
    all[guess.at("label")] = guess.at("probability");
  return all;
}

void check_refused(const ProcessEnd& ended, const std::string& why) {
  CAPTURE(ended.err);
  CHECK(ended.exit_code == 2);
  CHECK(std::count(ended.err.begin(), ended.err.end(), '\n') == 1);
  CHECK_THAT(ended.err, ContainsSubstring(why));
}

}  // namespace

TEST_CASE("an image has the same probabilities on any number of ranks", "[infer]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--epochs", "2"}).exit_code == 0);
  for (const char* index : {"0", "19"}) {
    const json one = infer_json(bench, {"--index", index});
    CHECK(one.at("schema") == "shardlens.infer/1");
    CHECK(one.contains("label"));
    const auto expected = probabilities(one);
    REQUIRE(expected.size() == 4);
    double sum = 0, most = 0;
    for (const auto& [label, probability] : expected) {
      sum += probability;
      most = std::max(most, probability);
    }
    CHECK(std::abs(sum - 1) < 1e-9);
    CHECK(one.at("predicted").at("probability") == most);
    for (const char* workers : {"2", "3"}) {
      const auto found = probabilities(infer_json(bench, {"--index", index, "--workers", workers}));
      for (const auto& [label, probability] : expected) {
        CHECK(std::abs(found.at(label) - probability) < 1e-5);
      }
    }
  }
}

TEST_CASE("the number of right test images matches the run's accuracy", "[infer]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--epochs", "3"}).exit_code == 0);
  int right = 0;
  for (int index = 0; index < 20; ++index) {
    const json one = infer_json(bench, {"--index", std::to_string(index)});
    if (one.at("predicted").at("label") == one.at("label").at("label")) ++right;
  }
  CHECK(bench.result().at("test_accuracy") == right / 20.0);
}

TEST_CASE("infer takes the model, else the newest or the best checkpoint", "[infer]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--epochs", "3", "--keep", "0"}).exit_code == 0);
  const auto weights = [&](const std::vector<std::string>& flags) {
    std::vector<std::string> all = {"--index", "0"};
    all.insert(all.end(), flags.begin(), flags.end());
    return fs::path(infer_json(bench, all).at("weights").get<std::string>()).filename().string();
  };
  CHECK(weights({}) == "model");
  CHECK(weights({"--from", "latest"}) == "step-00000024");
  std::string best;
  double accuracy = -1;
  for (const char* name : {"step-00000008", "step-00000016", "step-00000024"}) {
    const json state =
        json::parse(read_file(bench.run_file("checkpoints/") + name + "/state.json"));
    if (state.at("test_accuracy") < accuracy) continue;
    accuracy = state.at("test_accuracy");
    best = name;
  }
  CHECK(weights({"--from", "best"}) == best);
  const auto trained = probabilities(infer_json(bench, {"--index", "0"}));
  CHECK(infer_json(bench, {"--index", "0"}).at("passed_over").empty());
  fs::resize_file(bench.run_file("model/model.safetensors"), 1000);
  CHECK(weights({}) == "step-00000024");
  const json passed_over = infer_json(bench, {"--index", "0"}).at("passed_over");
  REQUIRE(passed_over.size() == 1);
  CHECK_THAT(passed_over[0].get<std::string>(),
             ContainsSubstring("model: model.safetensors has 1000 bytes, not "));
  CHECK_THAT(infer(bench, {"--index", "0"}).out,
             ContainsSubstring("warning: damaged and passed over: "));
  CHECK(probabilities(infer_json(bench, {"--index", "0"})) == trained);
  fs::remove_all(bench.run_file("model"));
  fs::remove_all(bench.run_file("checkpoints"));
  check_refused(infer(bench, {"--index", "0"}), "has no model and no whole checkpoint");
}

TEST_CASE("a run is read from any folder, whatever its paths were relative to", "[infer]") {
  const TrainBench bench;
  const auto in = [](const std::string& folder, const std::string& words) {
    return run({"/bin/sh", "-c", "cd " + folder + " && " + words});
  };
  const std::string train = std::string(SHARDLENS_TRAIN) +
                            " --device cpu --model tiny.json --data data --name r --steps 2";
  const ProcessEnd trained = in(bench.file(""), train);
  CAPTURE(trained.err);
  REQUIRE(trained.exit_code == 0);
  const json config = json::parse(read_file(bench.run_file("config.json")));
  for (const char* key : {"model", "data", "storage"}) {
    CHECK(fs::path(config.at(key).get<std::string>()).is_absolute());
  }
  const std::string asked =
      std::string(SHARDLENS) + " infer --index 0 --json --run " + bench.run_file("");
  const ProcessEnd there = in("/", asked);
  CAPTURE(there.err);
  REQUIRE(there.exit_code == 0);
  // As an older release left it.
  json old = config;
  old["model"] = "tiny.json";
  old["data"] = "data";
  old["storage"] = "runs";
  write_file(bench.run_file("config.json"), old.dump());
  CHECK(in("/", asked).out == there.out);
  old["storage"] = "elsewhere";
  write_file(bench.run_file("config.json"), old.dump());
  CHECK(in(bench.file(""), asked).out == there.out);
  check_refused(in("/", asked), "--model tiny.json, which is missing; run infer in the folder");
  old["model"] = bench.file("gone.json");
  write_file(bench.run_file("config.json"), old.dump());
  check_refused(in("/", asked), "gone.json, which is missing; put the file back");
}

TEST_CASE("an image file is handled like the images of a folder", "[infer]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--steps", "2"}).exit_code == 0);
  const std::string image = SHARDLENS_SOURCE_DIR "/docs/images/five_strategies.png";
  const json one = infer_json(bench, {"--image", image});
  CHECK(one.at("image") == image);
  CHECK_FALSE(one.contains("label"));
  const ProcessEnd text = infer(bench, {"--image", image});
  CHECK_THAT(text.out, ContainsSubstring("predicted: "));
  CHECK(text.out.find('\x1b') == std::string::npos);  // no terminal
}

TEST_CASE("a file that cannot be classified is refused in one line", "[infer]") {
  const TrainBench bench;
  REQUIRE(bench.train({"--steps", "1"}).exit_code == 0);
  check_refused(infer(bench, {}), "give --index N of a test image, or --image");
  check_refused(infer(bench, {"--index", "20"}), "give 0 to 19");
  check_refused(infer(bench, {"--index", "-1"}), "give 0 to 19");
  check_refused(infer(bench, {"--index", "0", "--image", "x.png"}), "excludes");
  check_refused(infer(bench, {"--image", bench.file("tiny.json")}), "cannot be read as an image");
  check_refused(infer(bench, {"--index", "0", "--device", "null:h200"}), "computes nothing");
  check_refused(infer(bench, {"--index", "0", "--from", "somewhere"}), "see --help");
  check_refused(run({SHARDLENS, "infer", "--run", bench.file("data"), "--index", "0"}),
                "is not a run");
}

TEST_CASE("a picture has a block for each pixel, and at most a terminal's columns", "[infer]") {
  using namespace shardlens::runtime;
  const GreyPicture small{.height = 3, .width = 2, .light = {0, 1, 0.5F, 0, 0, 0}};
  CHECK(picture_as_text(small) == "  @@\n++\n\n");
  const std::string blocks = picture_for_terminal(small);
  CHECK(std::count(blocks.begin(), blocks.end(), '\n') == 2);
  CHECK_THAT(blocks, ContainsSubstring("\x1b[38;5;255;48;5;232m\u2580"));
  const GreyPicture large{.height = 224, .width = 224, .light = std::vector<float>(224 * 224, 1)};
  const std::string text = picture_as_text(large);
  CHECK(text.find('\n') == 112);
  CHECK(std::count(text.begin(), text.end(), '\n') == 56);
}

TEST_CASE("a small model learns that Fashion-MNIST's test image 0 is an ankle boot", "[infer]") {
  const TemporaryFolder folder;
  write_file(folder.file("small.json"),
             R"({"family": "vit", "image_px": 28, "patch_px": 7, "channels": 1, "layers": 2,
                 "heads": 2, "width": 64, "mlp_width": 64, "classes": 10})");
  const ProcessEnd trained =
      run({SHARDLENS, "train", "--device", "cpu", "--model", folder.file("small.json"), "--storage",
           folder.path(), "--name", "r", "--steps", "150", "--lr", "2e-3"});
  INFO(trained.err);
  REQUIRE(trained.exit_code == 0);
  const ProcessEnd ended = run({SHARDLENS, "infer", "--run", folder.file("r"), "--index", "0"});
  CAPTURE(ended.out, ended.err);
  CHECK(ended.exit_code == 0);
  CHECK_THAT(ended.out, ContainsSubstring("predicted: 9 (Ankle boot)"));
  CHECK_THAT(ended.out, ContainsSubstring("label:     9 (Ankle boot), right"));
}
