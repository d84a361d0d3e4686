#include "profiler/recorder/python/compiled_code.h"

#include <catch2/catch_test_macros.hpp>
#include <string>

namespace shardlens::profiler {

namespace {

std::string code_of(const std::string& graph) {
  return "# AOT ID: ['" + graph +
         "']\n"
         "import torch\n"
         "    def call(self, args):\n"
         "        buf0 = empty_strided_cuda((4096, 2048), (2048, 1), torch.float32)\n"
         "        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]\n"
         "        extern_kernels.addmm(primals_2, out=buf0)\n"
         "        # Topologically Sorted Source Nodes: [mm_3, y], Original ATen: [aten.gelu]\n"
         "        buf1 = torch.ops.aten.gelu(buf0)\n"
         "        buf2 = empty_strided_cuda((1, ), (1, ), torch.float32)\n"
         "    def next(self):\n"
         "        # Topologically Sorted Source Nodes: [linear], Original ATen: [aten.addmm]\n";
}

}  // namespace

TEST_CASE("generated code is known by its name") {
  CHECK(is_compiled_code("/tmp/ind/ie/cieechqdwvsqmyeessmcqnkb54ggikp74aolf5njuitqccqehzaq.py"));
  CHECK_FALSE(is_compiled_code("/home/me/train.py"));
  CHECK_FALSE(is_compiled_code(
      "/home/me/a_long_name_of_a_file_that_somebody_has_written_with_much_patience.py"));
}

TEST_CASE("a line of generated code stands for a line of the program") {
  const std::string graph = "['70_forward']";
  tell_compiled_source(graph, "linear", {"train.py:16 forward", "blocks.3.up", false});
  tell_compiled_source(graph, "y", {"train.py:17 forward", "blocks.3", false});
  const std::string code = code_of("70_forward");
  const CompiledLine buffer = compiled_line(code, 4);
  CHECK(buffer.label == "train.py:16 forward, compiled graph 70 forward");
  CHECK(buffer.module == "blocks.3.up");
  CHECK_FALSE(buffer.is_backward);
  CHECK(compiled_line(code, 6).label == buffer.label);
  CHECK(compiled_line(code, 8).label == "train.py:17 forward, compiled graph 70 forward");
  CHECK(compiled_line(code, 9).label == "compiled graph 70 forward");  // another function follows
  CHECK(compiled_line(code, 900).label == "compiled graph 70 forward");
}

TEST_CASE("a backward graph has its own blocks and those that it computes again") {
  const std::string graph = "['71_backward']";
  tell_compiled_source(graph, "linear", {"train.py:16 forward", "up", false});
  tell_compiled_source(graph, "mm_3", {"train.py:17 forward", "", true});
  const std::string code = code_of("71_backward");
  CHECK(compiled_line(code, 4).label ==
        "train.py:16 forward, recomputed in compiled graph 71 backward");
  CHECK_FALSE(compiled_line(code, 4).is_backward);
  CHECK(compiled_line(code, 8).label == "train.py:17 forward, compiled graph 71 backward");
  CHECK(compiled_line(code, 8).is_backward);
}

TEST_CASE("without a source the graph and its nodes are named") {
  const CompiledLine line = compiled_line(code_of("72_inference"), 4);
  CHECK(line.label == "compiled graph 72 inference");
  CHECK(line.module == "linear");
  CHECK(compiled_line("", 1).label == "compiled code");
  CHECK(compiled_line("x = 1\n", 1).label == "compiled code");
}

}  // namespace shardlens::profiler
