// Calibrations that are written here, from the model's own times with known ratios, must give these
// ratios back; files that are damaged, of another GPU or of a later version are refused.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "planner/time/calibration.h"
#include "planner/time/collectives.h"
#include "planner/time/operators.h"
#include "planner/time/products.h"
#include "planner/time/step_time.h"
#include "tests/support/temporary_folder.h"

using namespace shardlens;
using namespace shardlens::planner;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using nlohmann::json;
using profiler::CollectiveKind;
using profiler::CopyKind;
using profiler::NumberType;
using profiler::Product;
using profiler::Work;
using profiler::WorkKind;
using profiler::WorkTrace;

namespace {

/// How much longer than a GPU of the model the measured one takes, by the part of the file.
struct Ratios {
  double products = 1;
  double streaming = 1;
  double copies = 1;
  double attention = 1;
  double collectives = 1;
};

Product product_of(int64_t rows, int64_t columns, int64_t depth,
                   NumberType type = NumberType::bf16) {
  const bool is_tf32 = type == NumberType::tf32;
  const NumberType a = is_tf32 ? NumberType::fp32 : type;
  return {.m = columns,
          .n = rows,
          .k = depth,
          .a = a,
          .b = a,
          .c = a,
          .compute = is_tf32 ? NumberType::tf32 : NumberType::fp32};
}

json products_on(const Gpu& gpu, double ratio) {
  json rows = json::array();
  for (const NumberType type : {NumberType::bf16, NumberType::tf32, NumberType::fp32}) {
    for (const int64_t m : {64, 512, 2048, 8192}) {
      for (const auto& [n, k] : {std::pair(1024, 4096), {4096, 4096}, {8192, 1024}}) {
        rows.push_back({{"type", to_string(type)},
                        {"rows", m},
                        {"columns", n},
                        {"depth", k},
                        {"seconds", ratio * product_seconds(gpu, product_of(m, n, k, type))}});
      }
    }
  }
  return rows;
}

json streaming_on(const Gpu& gpu, double ratio) {
  json rows = json::array();
  for (int64_t bytes = 12; bytes < int64_t{1} << 32; bytes *= 8) {
    const double seconds = ratio * streaming_seconds(gpu, static_cast<double>(bytes));
    rows.push_back({{"bytes", bytes}, {"seconds", seconds}});
  }
  return rows;
}

json copies_on(const Gpu& gpu, double ratio) {
  json rows = json::array();
  for (const CopyKind kind : {CopyKind::host_to_device, CopyKind::device_to_host}) {
    for (const bool is_pageable : {false, true}) {
      for (const int64_t bytes : {1 << 16, 1 << 27}) {
        const profiler::Copy copy{.bytes = bytes, .kind = kind, .is_pageable = is_pageable};
        rows.push_back({{"kind", to_string(kind)},
                        {"is_pageable", is_pageable},
                        {"bytes", bytes},
                        {"seconds", ratio * copy_seconds(gpu, copy)}});
      }
    }
  }
  return rows;
}

Attention attention_over(double tokens, bool is_backward) {
  return {.batch = 8,
          .heads = 16,
          .queries = tokens,
          .keys = tokens,
          .width = 64,
          .is_causal = true,
          .is_backward = is_backward,
          .type = NumberType::bf16};
}

json attention_on(const Gpu& gpu, double ratio) {
  json rows = json::array();
  for (const int tokens : {512, 2048, 8192}) {
    for (const bool is_backward : {false, true}) {
      rows.push_back(
          {{"batch", 8},
           {"heads", 16},
           {"tokens", tokens},
           {"width", 64},
           {"is_causal", true},
           {"is_backward", is_backward},
           {"seconds", ratio * attention_seconds(gpu, attention_over(tokens, is_backward))}});
    }
  }
  return rows;
}

json collectives_on(const Gpu& gpu, double ratio) {
  json rows = json::array();
  for (int64_t bytes = 1 << 10; bytes <= 1 << 28; bytes *= 4) {
    const double seconds =
        collective_seconds(gpu, CollectiveKind::all_reduce, bytes, {.size = 8, .a_node = 8});
    rows.push_back(
        {{"kind", "all_reduce"}, {"ranks", 8}, {"bytes", bytes}, {"seconds", ratio * seconds}});
  }
  return rows;
}

/// Returns the measurements of a GPU that takes longer than `model`, under the name of `named`.
json calibration_of(const Gpu& named, const Gpu& model, const Ratios& ratios) {
  return {{"schema", "shardlens.calibration/1"},
          {"gpu", named.display_name},
          {"torch", "2.15.0"},
          {"products", products_on(model, ratios.products)},
          {"streaming", streaming_on(model, ratios.streaming)},
          {"copies", copies_on(model, ratios.copies)},
          {"attention", attention_on(model, ratios.attention)},
          {"collectives", collectives_on(model, ratios.collectives)},
          {"spread", 0.01}};
}

class CalibrationFile {
 public:
  explicit CalibrationFile(const std::string& text) { std::ofstream(path()) << text; }
  explicit CalibrationFile(const json& document) : CalibrationFile(document.dump()) {}
  std::string path() const { return folder_.file("calibration.json"); }

 private:
  tests::TemporaryFolder folder_;
};

/// A step that the GPU bounds, with work of each class that is calibrated.
WorkTrace whole_step() {
  WorkTrace trace;
  trace.communicators.push_back({.size = 8, .rank = 0, .world_ranks = {}});
  const auto call = [&](const std::string& name, std::vector<profiler::OperatorInput> inputs) {
    trace.strings.push_back(name);
    profiler::OperatorCall one;
    one.name = static_cast<uint32_t>(trace.strings.size()) - 1;
    one.inputs = std::move(inputs);
    trace.calls.push_back(one);
    return static_cast<uint32_t>(trace.calls.size()) - 1;
  };
  const auto tensor = [](std::vector<int64_t> sizes, NumberType type) {
    return profiler::OperatorInput{.type = type, .tensors = 1, .sizes = std::move(sizes)};
  };
  const auto number = [](int64_t value) {
    return profiler::OperatorInput{.type = NumberType::int64, .sizes = {value}};
  };
  const auto large = tensor({1 << 26}, NumberType::fp32);
  const auto q = tensor({8, 16, 2048, 64}, NumberType::bf16);
  trace.work = {
      {.kind = WorkKind::step},
      {.kind = WorkKind::product, .product = product_of(3000, 5000, 2500)},
      {.kind = WorkKind::product, .product = product_of(1000, 3000, 6000, NumberType::tf32)},
      {.kind = WorkKind::kernel, .call = call("aten::add", {large, large})},
      {.kind = WorkKind::kernel,
       .call = call("aten::_scaled_dot_product_flash_attention", {q, q, q, number(0), number(1)})},
      {.kind = WorkKind::copy, .copy = {.bytes = 50 << 20, .kind = CopyKind::host_to_device}},
      {.kind = WorkKind::collective,
       .collective = {.kind = CollectiveKind::all_reduce, .bytes = 40 << 20, .communicator = 1}}};
  trace.work[3].launch.grid = trace.work[4].launch.grid = {4096, 1, 1};
  trace.work[3].launch.block = trace.work[4].launch.block = {128, 1, 1};
  for (int step = 0; step < 5; ++step) {
    for (uint32_t piece = 0; piece < trace.work.size(); ++piece) {
      const int64_t time = 1000 * static_cast<int64_t>(trace.items.size());
      trace.items.push_back({.time_ns = time, .about = step, .work = piece});
    }
  }
  return trace;
}

StepTime time_with(const json& document, const Gpu& gpu) {
  const CalibrationFile file(document);
  const TimeCalibration calibration = TimeCalibration::read(file.path(), gpu);
  return step_time(whole_step(), gpu, {.calibration = &calibration});
}

double of(const StepTime& time, WorkClass work_class) {
  return time.work_by_class[static_cast<size_t>(work_class)];
}

void expect_refused(const std::string& text, const std::string& why) {
  const CalibrationFile file(text);
  INFO(why);
  CHECK_THROWS_MATCHES(
      TimeCalibration::read(file.path(), find_gpu("h100")), std::invalid_argument,
      MessageMatches(ContainsSubstring(file.path() + ": ") && ContainsSubstring(why)));
}

}  // namespace

TEST_CASE("a calibration gives back the ratios with which it was made", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  const Ratios ratios{1.3, 0.8, 2, 1.5, 0.6};
  const StepTime cold = step_time(whole_step(), gpu);
  const StepTime time = time_with(calibration_of(gpu, gpu, ratios), gpu);
  CHECK(cold.seconds > 1e-3);
  CHECK(of(time, WorkClass::products) == Approx(1.3 * of(cold, WorkClass::products)));
  CHECK(of(time, WorkClass::kernels) == Approx(0.8 * of(cold, WorkClass::kernels)));
  CHECK(of(time, WorkClass::copies) == Approx(2 * of(cold, WorkClass::copies)));
  CHECK(of(time, WorkClass::attention) == Approx(1.5 * of(cold, WorkClass::attention)));
  CHECK(of(time, WorkClass::collectives) == Approx(0.6 * of(cold, WorkClass::collectives)));
  CHECK(time.is_calibrated);
  CHECK_FALSE(cold.is_calibrated);
  // Equal ratios are predicted without error, so half of the cold error remains.
  CHECK(time.error == Approx(cold.error / 2).epsilon(0.2));
  const StepTime same = time_with(calibration_of(gpu, gpu, {}), gpu);
  CHECK(same.seconds == Approx(cold.seconds));
}

TEST_CASE("a calibration makes one GPU of the model into another", "[planner][time]") {
  for (const auto& [from, to] :
       {std::pair("h100", "a100-80"), {"a100-80", "l40s"}, {"l4", "h200"}}) {
    INFO(from << " as " << to);
    const Gpu &model = find_gpu(from), &real = find_gpu(to);
    const StepTime wanted = step_time(whole_step(), real);
    const StepTime time = time_with(calibration_of(model, real, {}), model);
    const StepTime cold = step_time(whole_step(), model);
    for (const WorkClass one : {WorkClass::products, WorkClass::kernels, WorkClass::attention,
                                WorkClass::copies, WorkClass::collectives}) {
      INFO(to_string(one) << ", cold " << of(cold, one) << " s");
      CHECK(of(time, one) == Approx(of(wanted, one)).epsilon(0.15));
    }
    CHECK(time.seconds == Approx(wanted.seconds).epsilon(0.1));
  }
}

TEST_CASE("corrections lie between those that were measured, and are exact there",
          "[planner][time]") {
  const unsigned seed = std::random_device{}();
  INFO("seed " << seed);
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> place(0, 20), ratio(-2, 2);
  for (int i = 0; i < 200; ++i) {
    Corrections corrections;
    double least = 10, most = -10;
    std::vector<Correction> all;
    for (int j = 0; j < 8; ++j) {
      all.push_back(
          {.place = {place(random), place(random), place(random)}, .log_ratio = ratio(random)});
      corrections.add(all.back());
      least = std::min(least, all.back().log_ratio);
      most = std::max(most, all.back().log_ratio);
    }
    const double between = std::log2(corrections.at({place(random), place(random), 3}));
    CHECK(between >= least - 1e-9);
    CHECK(between <= most + 1e-9);
    CHECK(corrections.at(all[0].place) == Approx(std::exp2(all[0].log_ratio)).epsilon(0.05));
    CHECK(corrections.errors().size() == all.size());
  }
  CHECK(Corrections().at({1, 2, 3}) == 1);
}

TEST_CASE("work that a calibration lacks stays cold, and the answer says so", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  json document = calibration_of(gpu, gpu, {.products = 1.3});
  document["attention"] = json::array();
  document["spread"] = 0.3;
  const StepTime time = time_with(document, gpu), cold = step_time(whole_step(), gpu);
  CHECK(of(time, WorkClass::attention) == of(cold, WorkClass::attention));
  std::string doubts;
  for (const std::string& doubt : time.doubts) doubts += doubt + "\n";
  CHECK_THAT(doubts, ContainsSubstring("the calibration has no attention"));
  CHECK_THAT(doubts, ContainsSubstring("differ by 30 % when repeated"));
  for (auto& row : document["products"]) {
    row["seconds"] = row["seconds"].get<double>() * (row["rows"] == 64 ? 3 : 1);
  }
  CHECK(time_with(document, gpu).error > time.error);
}

TEST_CASE("calibrations that cannot be used are refused in one line", "[planner][time]") {
  const Gpu &h100 = find_gpu("h100"), &l4 = find_gpu("l4");
  const json good = calibration_of(h100, h100, {});
  const auto with = [&](const char* path, const json& value) {
    json changed = good;
    changed[json::json_pointer(path)] = value;
    return changed.dump();
  };
  expect_refused(calibration_of(l4, l4, {}).dump(),
                 "measured on NVIDIA L4, but the time is asked for NVIDIA H100 80GB HBM3");
  expect_refused(with("/schema", "shardlens.calibration/2"), "written by a later version");
  expect_refused(with("/schema", "shardlens.advice/1"), "its schema is shardlens.advice/1");
  expect_refused(good.dump().substr(0, 5000), "not a calibration");
  expect_refused("", "not a calibration");
  expect_refused("[]", "not a calibration");
  expect_refused(with("/products/3/seconds", -1), "products, row 3");
  expect_refused(with("/products/3/seconds", 1e9), "is not a time of NVIDIA H100");
  expect_refused(with("/products/3/seconds", "soon"), "not a calibration");
  expect_refused(with("/products/3/rows", 0), "rows 0 is not a size");
  expect_refused(with("/products/3/type", "fp1"), "the type fp1 is not known");
  expect_refused(with("/copies/0/kind", "sideways"), "the copy sideways is not known");
  expect_refused(with("/streaming", 7), "streaming is not a list");
  expect_refused(with("/streaming", nullptr), "streaming is not a list");
  json empty = good;
  for (const char* part : {"products", "streaming", "copies", "attention", "collectives"}) {
    empty[part] = json::array();
  }
  expect_refused(empty.dump(), "it has no measurements");
  empty.erase("copies");
  expect_refused(empty.dump(), "copies");
  CHECK_THROWS_MATCHES(TimeCalibration::read("/nowhere/calibration.json", h100),
                       std::invalid_argument, MessageMatches(ContainsSubstring("cannot be read")));
}
