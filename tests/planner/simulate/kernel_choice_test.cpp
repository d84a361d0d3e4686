// Compares what operators take on GPUs of unlike compute capability with what LibTorch 2.15 took
// for them on the null device, where that was recorded: "+3:8" is the fourth block, of 8 bytes, and
// "-3" its end. operators_test.cpp compares every operator where LibTorch is built in.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <utility>

#include "base/gpus.h"
#include "models/torch_rules.h"
#include "planner/simulate/meta/attention.h"
#include "planner/simulate/meta/autograd.h"
#include "planner/simulate/meta/operators.h"

using namespace shardlens;
using namespace shardlens::planner::meta;

namespace {

class WrittenMemory : public Memory {
 public:
  int64_t allocate(int64_t bytes) override {
    text += fmt::format("+{}:{} ", next_, bytes);
    return next_++;
  }
  void free(int64_t block) override {
    if (!is_closed) text += fmt::format("-{} ", block);
  }

  std::string text;
  bool is_closed = false;

 private:
  int64_t next_ = 0;
};

/// A GPU with PyTorch 2.15, and all that operators on it take.
struct Device {
  explicit Device(const char* gpu) {
    context.memory = &memory;
    context.gpu = &find_gpu(gpu);
    context.torch = &models::torch_rules("2.15");
    context.records_graph = true;
  }

  /// Runs backward from `output` and returns the events up to there.
  std::string finish(Tensor output) {
    Tensor gradient = Tensor::empty(context, output.sizes(), output.scalar_type());
    Edge edge = output.edge();
    output = {};
    run_backward(context, edge, gradient);
    edge = {};
    gradient = {};
    memory.is_closed = true;
    return memory.text;
  }

  WrittenMemory memory;
  Context context;
};

/// A ViT's attention, which reads queries, keys and values from one tensor.
std::string attention_events(const char* gpu, int64_t b, int64_t t, int64_t h, int64_t e,
                             Type type) {
  Device device(gpu);
  const Tensor one = Tensor::empty(device.context, {1}, type);
  Tensor leaf = Tensor::empty(device.context, {b, t, 3 * h * e}, type);
  leaf.requires_grad_(true);
  const Tensor sum = add(leaf, one);
  const auto parts = sum.view({b, t, 3, h, e}).unbind(2);
  return device.finish(attention(parts[0].transpose(1, 2), parts[1].transpose(1, 2),
                                 parts[2].transpose(1, 2), {.causal = false, .grouped = false})
                           .transpose(1, 2)
                           .reshape({b, t, h * e}));
}

/// The look-up of `ids` rows in a table [rows, width] in fp32.
std::string embedding_events(const char* gpu, int64_t ids, int64_t rows, int64_t width) {
  Device device(gpu);
  const Tensor numbers = Tensor::empty(device.context, {ids}, Type::int64);
  Tensor table = Tensor::empty(device.context, {rows, width}, Type::fp32);
  table.requires_grad_(true);
  return device.finish(embedding(table, numbers));
}

}  // namespace

TEST_CASE("attention takes on older and smaller GPUs what LibTorch took", "[planner][meta]") {
  // Half precision has no flash attention on Turing and Volta.
  CHECK(attention_events("t4", 19, 25, 1, 56, Type::fp16) ==
        "+0:2 +1:159600 +2:159600 +3:8 +4:8 +5:53200 +6:2432 +7:53200 +8:53200 +9:53200 +10:53200 "
        "+11:1900 +12:311600 -11 -12 -6 -4 -3 +13:159600 -8 -9 -10 -7 ");
  CHECK(attention_events("t4", 10, 247, 1, 128, Type::fp16) ==
        "+0:2 +1:1896960 +2:1896960 +3:8 +4:8 +5:632320 +6:10240 +7:632320 +8:632320 +9:632320 "
        "+10:632320 +11:9880 +12:1311360 -11 -12 -6 -4 -3 +13:1896960 -8 -9 -10 -7 ");
  CHECK(attention_events("t4", 27, 25, 2, 184, Type::fp16) ==
        "+0:2 +1:1490400 +2:1490400 +3:8 +4:8 +5:496800 +6:6912 +7:993600 -7 +8:496800 +9:496800 "
        "+10:496800 +11:496800 +12:5400 +13:12388896 -12 -13 -6 -4 -3 +14:1490400 -9 -10 -11 -8 ");
  // Volta's kernel for wide heads leaves the sums of rows to other operators.
  CHECK(attention_events("v100", 27, 25, 2, 184, Type::fp16) ==
        "+0:2 +1:1490400 +2:1490400 +3:8 +4:8 +5:496800 +6:6912 +7:993600 -7 +8:496800 +9:496800 "
        "+10:496800 +11:496800 +12:993600 +13:993600 +14:993600 +15:5400 +16:5400 -15 -14 -13 -12 "
        "+17:12388896 -16 -17 -6 -4 -3 +18:1490400 -9 -10 -11 -8 ");
  // bf16 has no fused kernel there.
  CHECK(attention_events("t4", 1, 17, 4, 16, Type::bf16)
            .starts_with("+0:2 +1:6528 +2:6528 +3:4352 +4:4352 +5:4352 +6:4352 +7:4352 +8:4624 "
                         "+9:8519680 -9 +10:4624 +11:1156 +12:68 +13:4 -13 -12 -11 -8 +14:2312 "));
  // The RTX 5090 has little shared memory, and no flash attention for 193 to 224 wide heads.
  CHECK(attention_events("rtx5090", 1, 257, 48, 128, Type::fp32) ==
        "+0:4 +1:18948096 +2:18948096 +3:8 +4:8 +5:6316032 +6:55296 +7:6316032 +8:6316032 "
        "+9:6316032 +10:6316032 +11:6316032 +12:49344 +13:49344 -12 -11 +14:7872000 -13 -14 -6 -4 "
        "-3 +15:18948096 -8 -9 -10 -7 ");
  CHECK(attention_events("rtx5090", 3, 11, 6, 224, Type::fp16) ==
        "+0:2 +1:266112 +2:266112 +3:8 +4:8 +5:88704 +6:2304 +7:177408 -7 +8:88704 +9:88704 "
        "+10:88704 +11:88704 +12:792 +13:4719744 -12 -13 -6 -4 -3 +14:266112 -9 -10 -11 -8 ");
}

TEST_CASE("an embedding's gradient sorts on Turing in tiles of Volta", "[planner][meta]") {
  CHECK(embedding_events("t4", 8 * 2048, 20, 32) ==
        "+0:131072 +1:2560 +2:2097152 +3:2097152 -2 +4:131072 +5:131072 +6:131072 +7:8703 -7 -6 "
        "+8:2560 +9:131072 +10:8 +11:131072 +12:2047 -12 -11 +13:160 +14:160 +15:1279 -15 +16:8 "
        "+17:13264 +18:13264 -18 -17 -16 -14 -13 -10 -9 -5 -4 -3 ");
}
