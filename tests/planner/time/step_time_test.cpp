// A step's time from a trace of work, on traces that are written here, so that the answer follows
// from them; and the costs of kernels, compared with those that an H100 took.

#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>

#include "planner/time/operators.h"
#include "planner/time/products.h"
#include "planner/time/step_time.h"
#include "tests/planner/time/held_out.h"
#include "tests/planner/time/trace_writer.h"

using namespace shardlens;
using namespace shardlens::planner;
using namespace shardlens::tests;
using Catch::Approx;
using profiler::NumberType;
using profiler::OperatorCall;
using profiler::OperatorInput;
using profiler::Work;
using profiler::WorkItem;
using profiler::WorkKind;
using profiler::WorkTrace;

namespace {

OperatorInput list(int64_t numbers, uint32_t tensors = 2) {
  return {.type = NumberType::fp32, .tensors = tensors, .sizes = {numbers}};
}

OperatorInput number(int64_t value) { return {.type = NumberType::int64, .sizes = {value}}; }

OperatorInput none() { return {}; }

/// Steps of `kernels` additions of 2^24 numbers each, whose host takes `host_ns` a kernel.
WorkTrace additions(int steps, int kernels, int64_t host_ns) {
  TraceWriter writer;
  const uint32_t mark = writer.piece({.kind = WorkKind::step});
  const uint32_t add =
      writer.kernel(writer.call("aten::add", {tensor({1 << 24}), tensor({1 << 24}), number(1)}));
  for (int step = 0; step <= steps; ++step) {
    writer.ask(mark, 0, 0, step);
    for (int i = 0; i < kernels; ++i) writer.ask(add, host_ns);
  }
  return writer.trace;
}

double bytes(const std::string& name, std::vector<OperatorInput> inputs) {
  return operator_bytes(name, call_of(std::move(inputs)));
}

}  // namespace

TEST_CASE("a step takes as long as its kernels, or as its host", "[planner][time]") {
  const Gpu& gpu = find_gpu("h100");
  const double kernel = streaming_seconds(gpu, 3.0 * 4 * (1 << 24));
  const StepTime fast = step_time(additions(5, 100, 1000), gpu);
  CHECK(fast.seconds == Approx(100 * kernel));
  CHECK(fast.are_steps);
  CHECK(fast.kernels == 100);
  CHECK(fast.waiting_for_host == Approx(0).margin(1e-9));
  CHECK(fast.by_class[static_cast<size_t>(WorkClass::kernels)] == Approx(100 * kernel));
  CHECK(fast.low() < fast.seconds);

  const StepTime slow = step_time(additions(5, 100, 1'000'000), gpu);
  CHECK(slow.seconds == Approx(slow.host_seconds));
  CHECK(slow.seconds > 20 * 1e-3);
  CHECK(slow.waiting_for_host == Approx(slow.seconds - 100 * kernel));
  CHECK(slow.error > fast.error);
  const StepTime faster = step_time(additions(5, 100, 1'000'000), gpu, {.host = 0.5});
  CHECK(faster.host_seconds < 0.6 * slow.host_seconds);
  CHECK(faster.seconds == Approx(faster.host_seconds));
}

TEST_CASE("rounds between two waits are steps where no step is marked", "[planner][time]") {
  TraceWriter writer;
  const uint32_t add =
      writer.kernel(writer.call("aten::mul", {tensor({1 << 24}), tensor({1 << 24})}));
  const uint32_t wait = writer.piece({.kind = WorkKind::device_synchronize});
  const uint32_t other = writer.kernel(0);
  for (int i = 0; i < 7; ++i) writer.ask(other, 5000);
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 10; ++i) writer.ask(add, 1000);
    writer.ask(wait, 1000);
  }
  writer.ask(other, 1000);
  const StepTime time = step_time(writer.trace, find_gpu("a100-80"));
  CHECK(!time.are_steps);
  CHECK(time.kernels == 10);
  CHECK(time.rounds >= 3);
  const double kernel = streaming_seconds(find_gpu("a100-80"), 3.0 * 4 * (1 << 24));
  CHECK(time.seconds > 10 * kernel);
  CHECK(time.seconds < 10 * kernel + 20e-6);
}

TEST_CASE("a step without a mark is a forward and a backward", "[planner][time]") {
  TraceWriter writer;
  const auto sizes = tensor({1 << 24});
  const uint32_t forward = writer.kernel(writer.call("aten::mul", {sizes, sizes}));
  const uint32_t backward_call = writer.call("aten::mul", {sizes, sizes});
  writer.trace.calls[backward_call].in_backward = true;
  const uint32_t backward = writer.kernel(backward_call);
  const uint32_t update = writer.kernel(writer.call("aten::sub_", {sizes, sizes}));
  const uint32_t wait = writer.piece({.kind = WorkKind::device_synchronize});
  for (int step = 0; step < 5; ++step) {
    for (int layer = 0; layer < 3; ++layer) {
      writer.ask(forward, 1000);
      writer.ask(wait, 1000);  // as a print would
    }
    for (int layer = 0; layer < 6; ++layer) writer.ask(backward, 1000);
    writer.ask(update, 1000);
  }
  const StepTime time = step_time(writer.trace, find_gpu("h100"));
  CHECK(time.kernels == 10);
  CHECK(!time.are_steps);
  CHECK(time.stands_for.starts_with("a forward and a backward"));
}

TEST_CASE("a step that a graph has captured takes as long as the graph", "[planner][time]") {
  TraceWriter writer;
  const uint32_t mark = writer.piece({.kind = WorkKind::step});
  const uint32_t launch = writer.piece({.kind = WorkKind::graph_launch});
  const uint32_t multiply = writer.piece({.kind = WorkKind::product,
                                          .product = {.m = 4096,
                                                      .n = 4096,
                                                      .k = 4096,
                                                      .batch = 1,
                                                      .a = NumberType::fp32,
                                                      .b = NumberType::fp32,
                                                      .c = NumberType::fp32,
                                                      .compute = NumberType::fp32}});
  const auto step = [&](uint32_t graph) {
    for (int i = 0; i < 20; ++i) {
      writer.ask(multiply, 1000);
      writer.trace.items.back().graph = graph;
    }
  };
  for (int i = 0; i < 3; ++i) {  // it warms up, and captures the last one
    writer.ask(mark, 1000, 0, i);
    step(i == 2 ? 1 : 0);
  }
  writer.ask(mark, 1000, 0, 3);
  for (int i = 0; i < 10; ++i) writer.ask(launch, 1000, 0, 1);
  const Gpu& gpu = find_gpu("h100");
  const StepTime time = step_time(writer.trace, gpu);
  const double one = product_seconds_in_step(gpu, writer.trace.work[multiply].product);
  CHECK(time.seconds == Approx(20 * one).epsilon(0.01));
  CHECK(time.stands_for.find("CUDA graph") != std::string::npos);
  CHECK(time.used_flops() > 0.5);
  CHECK(time.used_flops() < 1);
}

TEST_CASE("steps with an evaluation are left out where others are alike", "[planner][time]") {
  TraceWriter writer;
  const uint32_t mark = writer.piece({.kind = WorkKind::step});
  const uint32_t add = writer.kernel(writer.call("aten::mul", {tensor({1 << 24})}));
  const uint32_t evaluate = writer.kernel(writer.call("aten::mul", {tensor({1 << 20})}));
  for (int step = 0; step < 9; ++step) {
    writer.ask(mark, 1000, 0, step);
    for (int i = 0; i < 10; ++i) writer.ask(add, 1000);
    for (int i = 0; step % 2 == 1 && i < 50 + step; ++i) writer.ask(evaluate, 1000);
  }
  const StepTime time = step_time(writer.trace, find_gpu("h100"));
  CHECK(time.kernels == 10);
  CHECK(time.doubts.back() ==
        "4 of 8 steps do other work, such as an evaluation, and are left out");
}

TEST_CASE("a program that generates takes a step for each token", "[planner][time]") {
  const auto trace_of = [](int layers) {
    TraceWriter writer;
    const uint32_t look_up =
        writer.kernel(writer.call("aten::embedding", {tensor({32000, 64}), tensor({8, 1})}));
    const uint32_t layer = writer.kernel(writer.call("aten::mul", {tensor({1 << 20})}));
    for (int token = 0; token < 12; ++token) {
      writer.ask(look_up, 1000);
      for (int i = 0; i < layers; ++i) writer.ask(layer, 1000);
    }
    return writer.trace;
  };
  const StepTime time = step_time(trace_of(24), find_gpu("h100"));
  CHECK(time.kernels == 25);
  CHECK(time.stands_for.find("from one aten::embedding to the next") != std::string::npos);
  // A round of two pieces may be one layer of a model.
  const StepTime unknown = step_time(trace_of(1), find_gpu("h100"));
  CHECK(unknown.stands_for.empty());
  CHECK(unknown.doubts.back().starts_with("nothing repeats"));
}

TEST_CASE("a program that only copies has no step", "[planner][time]") {
  TraceWriter writer;
  Work brought{.kind = WorkKind::copy};
  brought.copy = {.bytes = 1 << 20, .kind = profiler::CopyKind::host_to_device};
  const uint32_t copy = writer.piece(brought);
  const uint32_t wait = writer.piece({.kind = WorkKind::stream_synchronize});
  const auto bring_model = [&] {
    for (int i = 0; i < 100; ++i) {
      writer.ask(copy, 1000);
      writer.ask(wait, 1000);
    }
  };
  bring_model();
  CHECK(step_time(writer.trace, find_gpu("h100")).seconds == 0);
  const uint32_t add = writer.kernel(writer.call("aten::mul", {tensor({1 << 24})}));
  for (int round = 0; round < 4; ++round) {
    for (int i = 0; i < 10; ++i) writer.ask(add, 1000);
    writer.ask(wait, 1000);
  }
  bring_model();  // and back, at the end
  CHECK(step_time(writer.trace, find_gpu("h100")).kernels == 10);
}

TEST_CASE("communication is exposed where nothing runs beside it", "[planner][time]") {
  TraceWriter writer;
  writer.trace.communicators.push_back({.size = 8, .rank = 0, .world_ranks = {}});
  const uint32_t mark = writer.piece({.kind = WorkKind::step});
  const uint32_t add =
      writer.kernel(writer.call("aten::add_", {tensor({1 << 28}), tensor({1 << 28})}));
  Work gather{.kind = WorkKind::collective};
  gather.collective = {.kind = profiler::CollectiveKind::all_gather,
                       .bytes = 256 << 20,
                       .type = NumberType::bf16,
                       .communicator = 1};
  const uint32_t all_gather = writer.piece(gather);
  const uint32_t record = writer.piece({.kind = WorkKind::event_record});
  const uint32_t wait = writer.piece({.kind = WorkKind::event_wait});
  for (int step = 0; step < 4; ++step) {
    writer.ask(mark, 0, 0, step);
    writer.ask(all_gather, 1000, 1);
    const int64_t gathered = writer.ask(record, 1000, 1);
    writer.ask(wait, 1000, 0, gathered);
    writer.ask(add, 1000);
    const int64_t added = writer.ask(record, 1000);
    writer.ask(wait, 1000, 1, added);
  }
  const StepTime time = step_time(writer.trace, find_gpu("h100"));
  const auto exposed = time.by_class[static_cast<size_t>(WorkClass::collectives)];
  CHECK(exposed == Approx(1401e-6).epsilon(0.5));
  CHECK(exposed == Approx(time.work_by_class[static_cast<size_t>(WorkClass::collectives)]));
  CHECK(time.seconds ==
        Approx(exposed + time.by_class[static_cast<size_t>(WorkClass::kernels)]).epsilon(0.02));
}

TEST_CASE("a trace without work has no step, and captured work runs when its graph does",
          "[planner][time]") {
  CHECK(step_time({}, find_gpu("h100")).seconds == 0);
  TraceWriter writer;
  const uint32_t mark = writer.piece({.kind = WorkKind::step});
  const uint32_t add =
      writer.kernel(writer.call("aten::add", {tensor({1 << 24}), tensor({1 << 24})}));
  const uint32_t launch = writer.piece({.kind = WorkKind::graph_launch});
  for (int i = 0; i < 50; ++i) {
    writer.ask(add, 100'000);
    writer.trace.items.back().graph = 1;
  }
  for (int step = 0; step < 4; ++step) {
    writer.ask(mark, 1000, 0, step);
    writer.ask(launch, 1000, 0, 1);
  }
  const StepTime time = step_time(writer.trace, find_gpu("h100"));
  CHECK(time.kernels == 50);
  CHECK(time.seconds ==
        Approx(50 * streaming_seconds(find_gpu("h100"), 3.0 * 4 * (1 << 24))).epsilon(0.01));
}

TEST_CASE("an operator on more than 2 GiB is divided among launches", "[planner][time]") {
  const auto launches = [](std::vector<int64_t> sizes, NumberType type) {
    return launches_of(call_of({tensor(std::move(sizes), type)}));
  };
  CHECK(launches({1 << 28}, NumberType::fp32) == 1);
  CHECK(launches({1 << 29}, NumberType::fp32) == 2);
  CHECK(launches({81920, 50368}, NumberType::fp32) == 8);  // as PyTorch 2.15 launches a copy
  TraceWriter writer;
  const uint32_t call = writer.call("aten::copy_", {tensor({1 << 30}), tensor({1 << 30})});
  Work work{.kind = WorkKind::kernel, .call = call};
  const double whole = kernel_cost(find_gpu("h100"), writer.trace, work).seconds;
  writer.trace.strings.push_back("void at::native::vectorized_elementwise_kernel<4, ...>");
  work.name = static_cast<uint32_t>(writer.trace.strings.size()) - 1;
  const double part = kernel_cost(find_gpu("h100"), writer.trace, work).seconds;
  CHECK(part == Approx(whole / 4).epsilon(0.01));
}

TEST_CASE("a step's tokens are an embedding's, its samples a convolution's", "[planner][time]") {
  TraceWriter writer;
  const auto indices = [](int64_t batch, int64_t tokens) {
    return tensor({batch, tokens}, NumberType::int64);
  };
  const uint32_t words =
      writer.kernel(writer.call("aten::embedding", {tensor({50000, 64}), indices(8, 128)}));
  const uint32_t places =
      writer.kernel(writer.call("aten::embedding", {tensor({128, 64}), indices(1, 128)}));
  for (int microbatch = 0; microbatch < 3; ++microbatch) {
    writer.ask(words, 1000);
    writer.ask(places, 1000);
  }
  const Throughput batch = throughput_of(writer.trace, 0, writer.trace.items.size());
  CHECK(batch.tokens == 3 * 8 * 128);
  CHECK(batch.samples == 3 * 8);
  CHECK(throughput_of(writer.trace, 0, 0).tokens == 0);

  TraceWriter images;
  images.ask(images.kernel(images.call("aten::cudnn_convolution",
                                       {tensor({32, 3, 224, 224}), tensor({64, 3, 7, 7})})),
             1000);
  images.ask(images.kernel(images.call("aten::cudnn_convolution",
                                       {tensor({32, 64, 56, 56}), tensor({64, 64, 3, 3})})),
             1000);
  CHECK(throughput_of(images.trace, 0, 2).samples == 32);
}

TEST_CASE("operators read their arguments and write their results", "[planner][time]") {
  const auto n = tensor({64, 1024});
  constexpr double kBytes = 4.0 * 64 * 1024;
  CHECK(bytes("aten::add", {n, n}) == 3 * kBytes);
  CHECK(bytes("aten::add", {n, tensor({1024})}) == 2 * kBytes + 4096);
  CHECK(bytes("aten::add", {tensor({64, 1}), tensor({1024})}) == kBytes + 256 + 4096);
  CHECK(bytes("aten::mul_", {n, number(2)}) == 2 * kBytes);
  CHECK(bytes("aten::zero_", {n}) == kBytes);
  CHECK(bytes("aten::copy_", {tensor({64, 1024}, NumberType::bf16), n}) == 1.5 * kBytes);
  CHECK(bytes("aten::sum", {n, number(1)}) == kBytes);
  CHECK(bytes("aten::_softmax", {n, number(-1)}) == 2 * kBytes);
  CHECK(bytes("aten::lt", {n, n}) == 2 * kBytes + kBytes / 4);
  CHECK(bytes("aten::embedding", {tensor({50000, 64}), tensor({8, 16}, NumberType::int64)}) ==
        8 * 16 * 8 + 2 * 8 * 16 * 64 * 4);
  CHECK(bytes("aten::_foreach_add_", {list(1000), list(1000)}) == 12000);
  CHECK(bytes("aten::_fused_adamw_", {list(1000), list(1000), list(1000), list(1000)}) == 28000);
}

TEST_CASE("attention and convolutions have the operations of closed formulas", "[planner][time]") {
  const auto half = [](std::vector<int64_t> sizes) {
    return tensor(std::move(sizes), NumberType::bf16);
  };
  const auto q = half({2, 1024, 16, 64});
  const OperatorCall forward =
      call_of({q, q, q, none(), none(), number(1024), number(1024), number(0), number(1)});
  const auto causal = attention_of("aten::_flash_attention_forward", forward);
  REQUIRE(causal);
  CHECK(causal->is_causal);
  CHECK(causal->flops() == 4.0 * 2 * 16 * 1024 * 1024 * 64 / 2);
  const OperatorCall outer = call_of({half({2, 16, 1024, 64}), half({2, 16, 2048, 64})});
  CHECK(attention_of("aten::_scaled_dot_product_flash_attention", outer)->flops() ==
        4.0 * 2 * 16 * 1024 * 2048 * 64);

  const OperatorCall convolution = call_of(
      {half({32, 3, 224, 224}), half({64, 3, 7, 7}), number(3), number(2), number(1), number(1)});
  const auto sizes = convolution_of("aten::cudnn_convolution", convolution);
  REQUIRE(sizes);
  CHECK(sizes->rows == 32 * 112 * 112);
  CHECK(sizes->columns == 64);
  CHECK(sizes->depth == 3 * 7 * 7);
  CHECK(!convolution_of("aten::add", convolution));
}

namespace {

/// The cost that the model gives a case of the H100's measurements; 0 for those that gave it
/// constants (copies of 2^28, attention with heads of 128) and those that are bound by launches.
double cost_of_case(const std::string& name, double moved) {
  const Gpu& gpu = find_gpu("h100");
  const bool is_large = name.find("2^28") != std::string::npos;
  for (const std::string operation : {"zero", "gelu", "softmax", "sum"}) {
    if (is_large && name.starts_with(operation)) return streaming_seconds(gpu, moved);
  }
  if (name.find("2^24 pinned") != std::string::npos) {
    return copy_seconds(
        gpu, {.bytes = static_cast<int64_t>(moved), .kind = profiler::CopyKind::host_to_device});
  }
  int heads = 0, batch = 0, tokens = 0, width = 0;
  if (std::sscanf(name.c_str(), "attention b%dh%dt%dd%d", &batch, &heads, &tokens, &width) == 4 &&
      width == 64 && tokens >= 1024) {
    WorkTrace trace;
    trace.strings.push_back("aten::_scaled_dot_product_flash_attention");
    const auto q = tensor({batch, heads, tokens, width}, NumberType::bf16);
    trace.calls.push_back(call_of({q, q, q, number(0), number(name.ends_with("causal") ? 1 : 0)}));
    trace.calls.back().name = 1;
    return kernel_cost(gpu, trace, {.kind = WorkKind::kernel, .call = 1}).seconds;
  }
  return 0;
}

}  // namespace

TEST_CASE("kernels take as long as on an H100", "[planner][time]") {
  std::ifstream file(SHARDLENS_SOURCE_DIR "/tests/fixtures/gpu/h100/6-time.json");
  const auto phase = nlohmann::json::parse(file);
  tests::ErrorsOf errors;
  for (const auto& row : phase["steps"][0]["rows"]) {
    const auto name = row["case"].get<std::string>();
    const double moved = row.value("bytes", row.value("operations", 0.0));
    const double predicted = cost_of_case(name, moved);
    if (predicted == 0) continue;
    const double measured = row["median_us"].get<double>() * 1e-6;
    std::printf("  %-40s %8.1f us, predicted %8.1f us\n", name.c_str(), measured * 1e6,
                predicted * 1e6);
    errors.add(predicted, measured);
  }
  errors.print("kernels and copies on h100");
  CHECK(errors.size() == 14);
  CHECK(errors.median() < 0.15);
  CHECK(errors.within(0.9) < 0.5);
}
