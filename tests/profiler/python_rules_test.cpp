#include "profiler/recording/python_rules.h"

#include <catch2/catch_test_macros.hpp>
#include <string>
#include <string_view>

#include "profiler/recorder/python/frames.h"

using namespace shardlens;
using namespace shardlens::profiler;

namespace {

/// A function of PyTorch, by its path in the package.
Category category_in(std::string_view file, std::string_view function) {
  const PythonRule* const rule = find_python_rule(file, function);
  REQUIRE(rule != nullptr);
  return rule->category;
}

}  // namespace

TEST_CASE("a function of PyTorch says what its allocations are for") {
  CHECK(category_in("/venv/torch/distributed/fsdp/_fully_shard/_fsdp_param.py", "alloc_storage") ==
        Category::unsharded_parameter);
  CHECK(category_in("/venv/torch/distributed/fsdp/_fully_shard/_fsdp_param.py",
                    "_init_sharded_param") == Category::parameter_shard);
  CHECK(category_in("/venv/torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py",
                    "foreach_reduce") == Category::reduce_buffer);
  CHECK(category_in("/venv/torch/optim/adam.py", "_init_group") == Category::optimizer_state);
  CHECK(category_in("/venv/torch/optim/adam.py", "_multi_tensor_adam") == Category::workspace);
  CHECK(category_in("/venv/torch/nn/modules/module.py", "_apply") == Category::parameter_shard);
}

TEST_CASE("what is loaded, kept or laid out otherwise has its own rules") {
  CHECK(category_in("/venv/torch/serialization.py", "load") == Category::checkpoint_staging);
  CHECK(category_in("/venv/torch/optim/swa_utils.py", "__init__") == Category::parameter_copy);
  CHECK(find_python_rule("/venv/transformers/cache_utils.py", "update")->name == "key-value cache");
  CHECK(find_python_rule("/venv/torch/distributed/tensor/_redistribute.py", "f")->is_of_part);
}

TEST_CASE("a comprehension is a part of the function around it") {
  const std::string file = "/venv/torch/distributed/fsdp/_fully_shard/_fsdp_param.py";
  CHECK(category_in(file, "init_all_gather_outputs") == Category::unsharded_parameter);
  CHECK(find_python_rule(file, "<listcomp>") == nullptr);
  CHECK(category_in("/venv/torch/nn/modules/module.py", "<lambda>") == Category::parameter_shard);
}

TEST_CASE("the user's functions are known only by their names") {
  CHECK(category_in("/home/user/train.py", "forward") == Category::activation);
  CHECK(category_in("/home/user/model.py", "reset_parameters") == Category::parameter_shard);
  CHECK(find_python_rule("/home/user/train.py", "main") == nullptr);
  CHECK(find_python_rule("/home/user/adam.py", "_init_group") == nullptr);
}

TEST_CASE("a place is in the program, not in PyTorch nor in what records it") {
  CHECK(is_of_program("/home/user/train.py"));
  CHECK(is_of_program("/venv/site-packages/torchvision/ops.py"));
  CHECK_FALSE(is_of_program("/venv/site-packages/torch/nn/functional.py"));
  CHECK(is_of_program("/usr/lib/python3/dist-packages/mine/train.py"));
  CHECK_FALSE(is_of_program("/usr/lib/python3.11/copy.py"));
  CHECK_FALSE(is_of_program("<frozen importlib._bootstrap>"));
  CHECK_FALSE(is_of_program("/build/record/python/shardlens_record/values.py"));
}

TEST_CASE("the part of a step decides if no function does") {
  CHECK(category_of_part(StepPart::starting) == Category::other);
  CHECK(category_of_part(StepPart::before_forward) == Category::input);
  CHECK(category_of_part(StepPart::forward) == Category::activation);
  CHECK(category_of_part(StepPart::backward) == Category::gradient);
}

TEST_CASE("every rule can be reached") {
  for (const PythonRule& rule : python_rules()) {
    const std::string_view function = rule.function.empty() ? "any_other" : rule.function;
    const std::string file = std::string("/x/") + std::string(rule.file) + "y.py";
    CAPTURE(rule.file, rule.function);
    CHECK(find_python_rule(rule.file.ends_with('/') ? file : rule.file, function) == &rule);
  }
}

TEST_CASE("a process without Python is in no Python function") {
  int calls = 0;
  visit_python_frames([&](const PythonFrame&) { return ++calls > 0; });
  CHECK(calls == 0);
}
