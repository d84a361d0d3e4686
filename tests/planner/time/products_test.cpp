// Products of matrices and collectives, compared with measurements that gave no constant: shapes
// and sizes that lie between those of the tables, and tables of other GPUs.

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <string>

#include "planner/time/collectives.h"
#include "planner/time/products.h"
#include "tests/planner/time/held_out.h"

using namespace shardlens;
using namespace shardlens::planner;
using profiler::NumberType;
using profiler::Product;
using tests::ErrorsOf;

namespace {

/// torch.nn.functional.linear of m rows from k to n features.
Product linear(int64_t m, int64_t n, int64_t k, NumberType type) {
  return {.m = n, .n = m, .k = k, .a = type, .b = type, .c = type, .compute = NumberType::fp32};
}

Product shape_of(const std::vector<std::string>& row) {
  return linear(std::stoll(row[1]), std::stoll(row[2]), std::stoll(row[3]), NumberType::bf16);
}

constexpr size_t kMicroseconds = 4;

bool is_known(const std::string& name) {
  return std::ranges::any_of(gpus(), [&](const Gpu& gpu) { return gpu.name == name; });
}

}  // namespace

TEST_CASE("products of shapes between those of the tables", "[planner][time]") {
  std::map<std::string, ErrorsOf> errors;
  for (const auto& row : tests::held_out("gemm_held_out.csv")) {
    if (!is_known(row[0])) continue;
    errors[row[0]].add(product_seconds(find_gpu(row[0]), shape_of(row)) * 1e6,
                       std::stod(row[kMicroseconds]));
  }
  REQUIRE(errors.size() == 7);
  for (auto& [gpu, of_gpu] : errors) {
    of_gpu.print("products on " + gpu);
    CAPTURE(gpu);
    CHECK(of_gpu.size() == 240);
    CHECK(of_gpu.median() < 0.1);
    CHECK(of_gpu.within(0.9) < 0.3);
  }
}

TEST_CASE("products of a GPU without a table, by another one's", "[planner][time]") {
  const std::map<std::string, std::string> likes = {
      {"h200", "h100"}, {"b300", "b200"}, {"gb200", "b200"}, {"h100", "a100-80"}};
  std::map<std::string, ErrorsOf> errors;
  for (const auto& row : tests::held_out("gemm_held_out.csv")) {
    const auto like = likes.find(row[0]);
    if (like == likes.end()) continue;
    const double seconds =
        scaled_product_seconds(find_gpu(row[0]), find_gpu(like->second), shape_of(row));
    errors[row[0] + " by " + like->second].add(seconds * 1e6, std::stod(row[kMicroseconds]));
  }
  for (auto& [gpus, of_gpus] : errors) {
    of_gpus.print("products on " + gpus);
    CAPTURE(gpus);
    CHECK(of_gpus.median() < 0.25);
    CHECK(of_gpus.within(0.9) < 0.6);
  }
}

TEST_CASE("a product takes longer with more of each size, and with wider numbers",
          "[planner][time]") {
  for (const Gpu& gpu : gpus()) {
    CAPTURE(gpu.name);
    const double seconds = product_seconds(gpu, linear(2048, 2048, 2048, NumberType::fp16));
    CHECK(seconds > 0);
    CHECK(product_seconds(gpu, linear(65536, 2048, 2048, NumberType::fp16)) > 12 * seconds);
    CHECK(product_seconds(gpu, linear(2048, 2048, 32768, NumberType::fp16)) > 8 * seconds);
    CHECK(product_seconds(gpu, linear(2048, 2048, 2048, NumberType::fp32)) > 1.5 * seconds);
    const double flops = product_flops(linear(8192, 8192, 8192, NumberType::fp16));
    CHECK(flops == 2.0 * 8192 * 8192 * 8192);
    CHECK(product_seconds(gpu, linear(1, 1, 1, NumberType::fp32)) < 1e-5);
  }
}

TEST_CASE("collectives of sizes between those of the tables", "[planner][time]") {
  std::map<std::string, ErrorsOf> errors;
  for (const auto& row : tests::held_out("nccl_held_out.csv")) {
    const auto kind = choice_named<profiler::CollectiveKind>(row[1]);
    REQUIRE(kind);
    const RankLayout ranks = {.size = std::stoi(row[2]), .a_node = std::stoi(row[2])};
    CHECK(has_measured_collectives(find_gpu(row[0]), ranks));
    const double seconds = collective_seconds(find_gpu(row[0]), *kind, std::stoll(row[3]), ranks);
    errors[row[0]].add(seconds * 1e6, std::stod(row[kMicroseconds]));
  }
  REQUIRE(errors.size() == 6);
  for (auto& [gpu, of_gpu] : errors) {
    of_gpu.print("collectives on " + gpu);
    CAPTURE(gpu);
    CHECK(of_gpu.median() < 0.1);
    CHECK(of_gpu.within(0.9) < 0.3);
  }
}

TEST_CASE("large messages take the time of a ring over the slowest link", "[planner][time]") {
  const Gpu& gpu = find_gpu("v100");  // in no table: a link of 150 GB/s, a network of 6.25
  constexpr int64_t kBytes = int64_t{8} << 30;
  const auto seconds = [&](profiler::CollectiveKind kind, RankLayout ranks) {
    return collective_seconds(gpu, kind, kBytes, ranks);
  };
  using enum profiler::CollectiveKind;
  const double gather = seconds(all_gather, {.size = 8, .a_node = 8});
  CHECK(std::abs(gather / (kBytes * 7.0 / 8 / (150e9 * 0.8)) - 1) < 0.01);
  CHECK(std::abs(seconds(all_reduce, {.size = 8, .a_node = 8}) / gather - 2) < 0.01);
  // One rank a node has one adapter; eight of them share eight.
  const double apart = seconds(all_gather, {.size = 8, .a_node = 1});
  CHECK(std::abs(apart / (kBytes * 7.0 / 8 / (6.25e9 * 0.85)) - 1) < 0.01);
  const double together = seconds(all_gather, {.size = 64, .a_node = 8});
  CHECK(std::abs(together / (kBytes * 63.0 / 64 / (8 * 6.25e9 * 0.85)) - 1) < 0.01);
}
