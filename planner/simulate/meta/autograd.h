// Backward over tensors without values: nodes, the order in which LibTorch's engine runs them, and
// the moments at which they release what they saved.
//
// [Note: order] Among the nodes that are ready the one that was made last runs first; those that
// take a leaf's gradient come before all others. Gradients that meet are added up in the first
// one's memory if nobody else holds it. A node's saved tensors are released after it has run, in
// the order in which LibTorch's generated code declares them: by name, inputs before results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "planner/simulate/meta/tensor.h"

namespace shardlens::planner::meta {

using Tensors = std::vector<Tensor>;

struct Leaf;

struct Node {
  /// A node's backward takes the gradients of its outputs and returns those of its inputs. An
  /// undefined gradient means none.
  using Backward = std::function<Tensors(Node& node, Tensors&& gradients)>;

  int64_t sequence = 0;
  int outputs = 1;         // of forward
  std::vector<Edge> next;  // by input
  Tensors saved;
  Backward backward;
  const Leaf* leaf = nullptr;  // whose gradient it takes

  bool wants(size_t input) const { return next[input].node != nullptr; }
};

/// A leaf's gradient, and a function that is called when the gradient has come.
struct Leaf {
  Tensor gradient;
  std::optional<Type> gradient_type;  // to which the gradient is cast; nothing: no cast
  std::function<void()> on_gradient;
  std::weak_ptr<Node> accumulator;
};

/// True if an operator on these inputs has to leave a node behind.
bool needs_node(std::initializer_list<const Tensor*> inputs);

/// Adds a node behind an operator on `inputs`, whose output must get the node's edge. Call it only
/// if needs_node() is true.
std::shared_ptr<Node> add_node(std::initializer_list<const Tensor*> inputs, Tensors saved,
                               Node::Backward backward, int outputs = 1);

/// Returns `output` with the edge of a new node, or without one if no node is needed.
Tensor with_node(Tensor output, std::initializer_list<const Tensor*> inputs, Tensors saved,
                 Node::Backward backward);

/// Sets the grad mode of a context for as long as it lives.
class GradMode {
 public:
  GradMode(Context& context, bool enabled) : context_(context), before_(context.records_graph) {
    context_.records_graph = enabled;
  }
  ~GradMode() { context_.records_graph = before_; }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  Context& context_;
  bool before_;
};

/// An operator call of LibTorch, which lasts as long as this lives. Memory that is taken and freed
/// inside one call is workspace.
class CallScope {
 public:
  explicit CallScope(Context& context) : memory_(*context.memory) { memory_.begin_operator(); }
  ~CallScope() { memory_.end_operator(); }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  Memory& memory_;
};

/// Runs all nodes behind `root` that lead to a leaf. The caller holds the gradient too, so nothing
/// is added up in its memory.
void run_backward(Context& context, const Edge& root, const Tensor& gradient);

}  // namespace shardlens::planner::meta
