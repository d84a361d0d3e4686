#include "runtime/infer/infer_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "runtime/execute/device.h"
#include "runtime/infer/infer.h"

namespace shardlens::runtime {

namespace {

constexpr size_t kShown = 5;

struct InferRequest {
  InferOptions options;
  bool as_json = false;
  std::string help;  // not empty: only print it
};

/// Returns a run's folder. A name stands for the run of that name in the default storage.
std::filesystem::path run_folder(const std::string& run) {
  const std::filesystem::path in_storage = std::filesystem::path("runs") / run;
  const bool is_name = !std::filesystem::exists(run) && std::filesystem::exists(in_storage);
  return is_name ? in_storage : std::filesystem::path(run);
}

InferRequest parse(const std::vector<std::string>& arguments) {
  InferRequest asked;
  InferOptions& options = asked.options;
  std::string run;
  const std::map<std::string, WeightsSource> froms = {{"model", WeightsSource::model},
                                                      {"latest", WeightsSource::latest},
                                                      {"best", WeightsSource::best}};
  CLI::App app("Classifies one image with a trained model.", "shardlens infer");
  app.add_option("--run", run, "the run's folder, or its name under runs/")->required();
  auto* const index =
      app.add_option("--index", options.index, "number of a test image in the run's data");
  app.add_option("--image", options.image, "an image file instead (png, jpg)")->excludes(index);
  app.add_option(
         "--from", options.from,
         "use the run's model/, or its latest or best checkpoint; default: model, else latest")
      ->option_text("model|latest|best")
      ->transform(CLI::CheckedTransformer(froms));
  app.add_option("--workers", options.workers,
                 "ranks that each keep a part of the model, 1 to 4096")
      ->option_text("N")
      ->check(CLI::Range(1, 4096));
  app.add_option("--device", options.device, "where the model computes")
      ->option_text("auto|cpu|cuda");
  app.add_option("--timeout", options.timeout_s, "seconds that ranks wait for each other")
      ->option_text("S")
      ->check(positive_number());
  app.add_flag("--json", asked.as_json, "print JSON");
  asked.help = parse_program(app, arguments);
  if (!asked.help.empty()) return asked;
  if (!options.index && options.image.empty()) {
    throw std::invalid_argument("which image? give --index N of a test image, or --image FILE.png");
  }
  options.run = run_folder(run);
  return asked;
}

std::string words_of(const Guess& guess) {
  return guess.name.empty() ? fmt::format("{}", guess.label)
                            : fmt::format("{} ({})", guess.label, shown(guess.name));
}

std::string text_of(const InferRequest& asked, const Inference& inference) {
  const bool on_terminal = ::isatty(STDOUT_FILENO) == 1;
  std::string text =
      on_terminal ? picture_for_terminal(inference.picture) : picture_as_text(inference.picture);
  const Guess& first = inference.guesses.front();
  text += fmt::format("predicted: {}, {:.2f} %\n", words_of(first), 100 * first.probability);
  if (inference.truth) {
    text += fmt::format("label:     {}{}\n", words_of(*inference.truth),
                        inference.truth->label == first.label ? ", right" : ", wrong");
  }
  for (size_t i = 0; i < std::min(kShown, inference.guesses.size()); ++i) {
    const Guess& guess = inference.guesses[i];
    text += fmt::format("  {:<18}{:7.2f} %\n", words_of(guess), 100 * guess.probability);
  }
  for (const std::string& one : inference.passed_over) {
    text += fmt::format("warning: damaged and passed over: {}\n", shown(one));
  }
  return text + fmt::format("weights: {}{}\n", shown(inference.weights.string()),
                            asked.options.workers == 1
                                ? ""
                                : fmt::format(", on {} ranks", asked.options.workers));
}

nlohmann::ordered_json json_of(const Guess& guess) {
  nlohmann::ordered_json json = {{"label", guess.label}};
  if (!guess.name.empty()) json["name"] = guess.name;
  json["probability"] = guess.probability;
  return json;
}

nlohmann::ordered_json json_of(const InferRequest& asked, const Inference& inference) {
  nlohmann::ordered_json json = {{"schema", "shardlens.infer/1"},
                                 {"weights", inference.weights.string()},
                                 {"ranks", asked.options.workers},
                                 {"passed_over", inference.passed_over}};
  if (asked.options.index) json["index"] = *asked.options.index;
  if (!asked.options.image.empty()) json["image"] = asked.options.image;
  json["predicted"] = json_of(inference.guesses.front());
  if (inference.truth) json["label"] = json_of(*inference.truth);
  json["classes"] = nlohmann::ordered_json::array();
  for (const Guess& guess : inference.guesses) json["classes"].push_back(json_of(guess));
  return json;
}

}  // namespace

std::string infer_command(const std::vector<std::string>& arguments) {
  const InferRequest asked = parse(arguments);
  if (!asked.help.empty()) return asked.help;
  check_libtorch_version();
  const Inference inference = infer(asked.options);
  return asked.as_json ? json_text(json_of(asked, inference)) : text_of(asked, inference);
}

}  // namespace shardlens::runtime
