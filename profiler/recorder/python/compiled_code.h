// Says which code of the user's a line of torch.compile's generated code stands for. Inductor
// writes the nodes of the traced graph above each kernel, and in the first line which graph and
// direction the file is; Python tells where in the program each node is (compiled.py).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace shardlens::profiler {

/// True for a file that Inductor generates: its name is a hash.
bool is_compiled_code(std::string_view file);

/// The code that a node of a compiled graph stands for.
struct CompiledSource {
  std::string place;         // "train.py:16 forward"
  std::string module;        // "blocks.3"; empty: in no module
  bool is_backward = false;  // backward's own; else it is forward's, even in the graph of backward
};

/// Tells the source of a node. `graph` is as in the generated file: "['0_forward']".
void tell_compiled_source(std::string_view graph, std::string_view node,
                          const CompiledSource& source);

/// The purpose of what a line of generated code allocates.
struct CompiledLine {
  std::string label;         // "train.py:16 forward, compiled graph 0 forward"
  std::string module;        // or the nodes of the graph, if their source is not known
  bool is_backward = false;  // of backward, recomputed activations excluded
};

/// Returns it for the text of a generated file and a line in it, from 1.
CompiledLine compiled_line(std::string_view text, int line);
/// Returns it for a file, and remembers the answer. Any thread may call.
const CompiledLine& compiled_line_of(const std::string& file, int line);

}  // namespace shardlens::profiler
