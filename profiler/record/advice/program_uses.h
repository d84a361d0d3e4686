// Says what a recorded program does already to take less memory, as its process reported when it
// ended (record/python/shardlens_record/uses.py).
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace shardlens::profiler {

struct UsedOptimizer {
  std::string name = {};      // of its class: "AdamW"
  std::string line = {};      // that made it: "train.py:30"
  bool has_low_bits = false;  // of state: bitsandbytes, torchao
};

struct ProgramUses {
  /// The program's lines by what they use: "fsdp2", "ddp", "recompute". A use without lines of the
  /// program has an empty list.
  std::map<std::string, std::vector<std::string>, std::less<>> lines = {};
  std::vector<UsedOptimizer> optimizers = {};
  int64_t fsdp_units = 0;              // modules that were wrapped, by FSDP1 or FSDP2
  int64_t cuda_graphs = 0;             // captured
  int64_t cuda_graph_pools = 0;        // that they have
  int64_t graphed_callable_pools = 0;  // of the graphs that make_graphed_callables captured
  std::vector<int64_t> vocabularies = {};
  int64_t unstepped_gradients = 0;  // whose parameters no optimizer has
  int64_t unstepped_gradient_bytes = 0;
  std::string largest_unstepped = {};  // the name of the largest one's parameter
  int64_t evaluation_peak_bytes = 0;   // allocated, of an evaluation that kept a graph
  bool evaluates_at_end = false;       // it was that evaluation that the process ended in
  bool has_expandable_segments = false;
  bool is_compiled = false;
  bool accumulates = false;  // gradients, over several backwards a step
  bool names_fsdp = false;   // its main module does; it may not have come there
  bool is_known = false;     // false: the process ended without reporting

  bool has(std::string_view what) const { return lines.contains(what); }
  bool has_fsdp() const { return has("fsdp2") || has("fsdp1"); }
  /// True if parameters, gradients or optimizer state are split over ranks.
  bool is_sharded() const {
    return (has_fsdp() && !has("fsdp1_no_shard")) || has("zero") || has("tensor_parallel");
  }
  /// Returns the first line that uses this; empty if no line is known.
  std::string line_of(std::string_view what) const;
};

/// Reads `uses` of rankR.json. What it lacks is not used; anything but an object is unknown.
ProgramUses read_program_uses(const nlohmann::json& uses);

}  // namespace shardlens::profiler
