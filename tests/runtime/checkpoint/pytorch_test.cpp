// PyTorch itself reads what we write, and we continue what it writes: DCP, safetensors, .pt and the
// resulting numbers. Skipped without PyTorch (tests/support/pytorch).
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/data/image_file.h"
#include "tests/support/process.h"
#include "tests/support/pytorch.h"

using namespace shardlens::tests;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;
namespace fs = std::filesystem;

namespace {

/// PyTorch's Gloo sometimes never returns from an all-gather (it spins in the destructor of an
/// UnboundBuffer), so the script has a deadline, and is started again.
ProcessEnd run_script(const std::vector<std::string>& arguments) {
  constexpr int kTimedOut = 124, kStarts = 3;
  std::vector<std::string> script = {SHARDLENS_SOURCE_DIR "/tests/reference/interchange.py"};
  script.insert(script.end(), arguments.begin(), arguments.end());
  script = python_with_pytorch(script);
  std::vector<std::string> words = {"/usr/bin/env", "timeout", "--kill-after=5", "240"};
  words.insert(words.end(), script.begin(), script.end());
  ProcessEnd ended = run(words);
  for (int i = 1; i < kStarts && ended.exit_code == kTimedOut; ++i) ended = run(words);
  return ended;
}

/// The last line that the script prints.
std::string pytorch(const std::vector<std::string>& arguments) {
  const ProcessEnd ended = run_script(arguments);
  if (ended.exit_code == kNoPyTorch) SKIP(kWithoutPyTorch);
  CAPTURE(ended.err, ended.out);
  REQUIRE(ended.exit_code == 0);
  const std::string out = ended.out.substr(0, ended.out.find_last_not_of('\n') + 1);
  return out.substr(out.rfind('\n') + 1);
}

std::string ours(std::vector<std::string> words) {
  words.insert(words.begin(), SHARDLENS);
  const ProcessEnd ended = run(words);
  CAPTURE(words, ended.err);
  REQUIRE(ended.exit_code == 0);
  return ended.out;
}

/// The tutorial's model on some of its data, as the script trains it.
std::vector<std::string> tutorial(const TemporaryFolder& folder, int64_t steps) {
  return {"train",
          "--device",
          "cpu",
          "--storage",
          folder.path(),
          "--name",
          "r",
          "--batch",
          "8",
          "--steps",
          std::to_string(steps),
          "--workers",
          "2",
          "--epochs",
          "1",
          "--log-every",
          "1",
          "--checkpoint-every",
          "2"};
}

std::vector<double> logged_losses(const TemporaryFolder& folder) {
  std::ifstream lines(folder.file("r/metrics.jsonl"));
  std::vector<double> losses;
  for (std::string line; std::getline(lines, line);) losses.push_back(json::parse(line).at("loss"));
  return losses;
}

}  // namespace

TEST_CASE("PyTorch reads a run's checkpoint, its export and its model", "[pytorch]") {
  const TemporaryFolder folder;
  ours(tutorial(folder, 2));
  const std::string checkpoint = folder.file("r/checkpoints/step-00000002");
  CHECK(pytorch({"check-reader", checkpoint}) == "equal: 384 tensors");
  ours({"checkpoint", "export", folder.file("r"), "--dcp", folder.file("dcp")});
  for (const char* ranks : {"1", "2"}) {
    CHECK(pytorch({"check-dcp", folder.file("dcp"), checkpoint, "--world-size", ranks}) ==
          "equal: 384 tensors at step 2, epoch -1");
  }
}

TEST_CASE("torchvision's model gives the logits that infer gives", "[pytorch]") {
  const TemporaryFolder folder;
  ours(tutorial(folder, 4));
  const json logits = json::parse(pytorch({"check-model", folder.file("r/model/full-model.pt"),
                                           folder.file("r/model/model.safetensors")}));
  REQUIRE(logits.size() == 4);
  for (size_t image = 0; image < logits.size(); ++image) {
    double sum = 0;
    for (const double logit : logits[image]) sum += std::exp(logit);
    const json found = json::parse(
        ours({"infer", "--run", folder.file("r"), "--index", std::to_string(image), "--json"}));
    for (const json& guess : found.at("classes")) {
      const double logit = logits[image].at(guess.at("label").get<size_t>());
      CHECK(std::abs(guess.at("probability").get<double>() - std::exp(logit) / sum) < 1e-6);
    }
  }
}

TEST_CASE("a checkpoint that FSDP2 saved with DCP goes on as with PyTorch", "[pytorch]") {
  const TemporaryFolder folder;
  const json expected = json::parse(pytorch({"save-tutorial", folder.file("dcp")}));
  std::vector<std::string> flags = tutorial(folder, 4);
  std::vector<std::string> words = {"checkpoint", "import", folder.file("dcp")};
  words.insert(words.end(), flags.begin() + 1, flags.end());
  CHECK_THAT(ours(words), ContainsSubstring("step 2"));
  CHECK_THAT(ours(flags), ContainsSubstring("resumes from step 2 of 4"));
  const std::vector<double> found = logged_losses(folder);
  REQUIRE(found.size() == expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    CHECK(std::abs(found[i] / expected[i].get<double>() - 1) < 1e-5);
  }
}

TEST_CASE("pixels of JPEG and PNG files are those that Pillow reads", "[pytorch]") {
  const TemporaryFolder folder;
  const ProcessEnd ended =
      run(python_with_pytorch({SHARDLENS_SOURCE_DIR "/tests/reference/pictures.py", folder.path(),
                               std::to_string(Catch::getSeed())}));
  if (ended.exit_code == kNoPyTorch) SKIP(kWithoutPyTorch);
  CAPTURE(ended.err);
  REQUIRE(ended.exit_code == 0);
  int pictures = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(folder.path())) {
    fs::path path = file.path();
    if (path.extension() != ".jpg" && path.extension() != ".png") continue;
    ++pictures;
    CAPTURE(path.filename().string());
    for (const int64_t channels : {1, 3}) {
      const auto pixels = shardlens::models::decode_image(path.string(), channels).pixels;
      const std::string expected =
          read_file(fs::path(path).replace_extension(channels == 1 ? ".grey" : ".rgb").string());
      CHECK(std::string(pixels.begin(), pixels.end()) == expected);
    }
  }
  CHECK(pictures == 36);
}
