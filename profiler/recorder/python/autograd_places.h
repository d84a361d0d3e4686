// Ties what backward allocates to the program. A backward on a GPU runs on threads of autograd's
// own, which are in no function of the program. But each node of a graph has the number that its
// thread counted when forward made it, and a thread that runs nodes gets the thread-local state of
// the one that called backward.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/recorder/python/module_names.h"

namespace torch::autograd {
struct Node;
}

namespace shardlens::profiler {

/// The place where forward made a node, and the innermost module that was called; null: it is not
/// known. Both are kept as long as the process.
struct NodePlace {
  const std::string* place = nullptr;
  const ModuleName* module = nullptr;

  bool operator==(const NodePlace&) const = default;
};

/// True if the calling thread has made nodes of autograd that have no place yet.
bool has_new_nodes();
/// Notes where the calling thread is: it has made all nodes since its last call there. The places
/// of the last 262144 calls of a thread are remembered.
void place_new_nodes(const NodePlace& place);
/// Returns the place at which forward made the node.
NodePlace place_of(const torch::autograd::Node& node);

/// The call of a backward: its innermost function in the program, and its stack's innermost frame.
struct BackwardCall {
  const std::string* place = nullptr;
  uint32_t frame = 0;
};

/// Says that the calling thread calls backward from there, until the matching end.
void begin_backward(const BackwardCall& call);
void end_backward();
/// Returns the call of the backward that the calling thread works for.
BackwardCall backward_call();

}  // namespace shardlens::profiler
