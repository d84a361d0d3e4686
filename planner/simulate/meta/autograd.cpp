#include "planner/simulate/meta/autograd.h"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "planner/simulate/meta/operators.h"

namespace shardlens::planner::meta {

namespace {

constexpr int64_t kBeforeAll = std::numeric_limits<int64_t>::max();

/// Returns the node that takes a leaf's gradient. The graph holds the node, and the node the leaf,
/// so a leaf's memory lives as long as the graph.
std::shared_ptr<Node> accumulator_of(const Tensor& tensor) {
  Leaf& leaf = *tensor.leaf();
  if (auto node = leaf.accumulator.lock()) return node;
  auto node = std::make_shared<Node>();
  node->sequence = kBeforeAll;
  node->leaf = &leaf;
  node->backward = [variable = tensor](Node&, Tensors&& gradients) -> Tensors {
    Leaf& own = *variable.leaf();
    const bool fits = gradients[0].sizes() == variable.sizes() && gradients[0].is_contiguous();
    own.gradient = fits ? std::move(gradients[0]) : gradients[0].contiguous();
    if (own.on_gradient) own.on_gradient();
    return {};
  };
  leaf.accumulator = node;
  return node;
}

Edge edge_to(const Tensor& input) {
  if (input.edge().node) return input.edge();
  if (input.leaf()) return {accumulator_of(input), 0};
  return {};
}

/// Runs one backward: holds the nodes behind its root with the gradients that have come to them.
class Run {
 public:
  explicit Run(Context& context) : context_(context) {}

  void run(const Edge& root, Tensor gradient) {
    count_dependencies(root.node.get());
    add(root, std::move(gradient));
    while (!ready_.empty()) {
      std::pop_heap(ready_.begin(), ready_.end(), runs_later);
      Node* const node = ready_.back();
      ready_.pop_back();
      evaluate(*node);
    }
    check(tasks_.empty(), "backward ends before all of its nodes have run");
  }

 private:
  struct Task {
    int missing = 0;  // nodes that still have to give it a gradient
    Tensors gradients;
  };

  static bool runs_later(const Node* a, const Node* b) { return a->sequence < b->sequence; }

  void count_dependencies(Node* root) {
    std::vector<Node*> left{root};
    tasks_[root];
    while (!left.empty()) {
      Node* const node = left.back();
      left.pop_back();
      for (const Edge& edge : node->next) {
        if (!edge.node) continue;
        const auto [task, is_new] = tasks_.try_emplace(edge.node.get());
        ++task->second.missing;
        if (is_new) left.push_back(edge.node.get());
      }
    }
  }

  void evaluate(Node& node) {
    const CallScope call(context_);
    Tensors outputs = node.backward(node, std::move(tasks_.at(&node).gradients));
    check(outputs.size() >= node.next.size(),
          "a node's backward gives fewer gradients than it had inputs");
    for (size_t i = 0; i < node.next.size(); ++i) cast_for_leaf(node.next[i], outputs[i]);
    tasks_.erase(&node);
    for (Tensor& saved : node.saved) saved = {};
    for (size_t i = 0; i < node.next.size(); ++i) {
      const Edge& edge = node.next[i];
      if (!edge.node) continue;
      Task& task = tasks_.at(edge.node.get());
      check(task.missing > 0, "a node gets more gradients than it waits for");
      --task.missing;
      add(edge, std::move(outputs[i]));
    }
  }

  static void cast_for_leaf(const Edge& edge, Tensor& gradient) {
    const Leaf* const leaf = edge.node ? edge.node->leaf : nullptr;
    if (leaf == nullptr || !leaf->gradient_type || !gradient.defined()) return;
    gradient = gradient.to(*leaf->gradient_type);
  }

  void add(const Edge& edge, Tensor gradient) {
    Task& task = tasks_[edge.node.get()];
    check(edge.input >= 0 && edge.input < edge.node->outputs, "a gradient of an unknown output");
    task.gradients.resize(static_cast<size_t>(edge.node->outputs));
    if (gradient.defined()) {
      accumulate(task.gradients[static_cast<size_t>(edge.input)], std::move(gradient));
    }
    if (task.missing > 0) return;
    ready_.push_back(edge.node.get());
    std::push_heap(ready_.begin(), ready_.end(), runs_later);
  }

  static void accumulate(Tensor& sum, Tensor gradient) {
    if (!sum.defined()) {
      sum = std::move(gradient);
    } else if (!sum.owns_memory()) {
      sum = meta::add(sum, gradient);
    }
  }

  Context& context_;
  std::unordered_map<Node*, Task> tasks_;
  std::vector<Node*> ready_;  // a heap
};

}  // namespace

bool needs_node(std::initializer_list<const Tensor*> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const Tensor* input) {
    return input->requires_grad() && input->context().records_graph;
  });
}

std::shared_ptr<Node> add_node(std::initializer_list<const Tensor*> inputs, Tensors saved,
                               Node::Backward backward, int outputs) {
  auto node = std::make_shared<Node>();
  node->sequence = (*inputs.begin())->context().next_sequence++;
  node->outputs = outputs;
  for (const Tensor* input : inputs) node->next.push_back(edge_to(*input));
  for (Tensor& tensor : saved) node->saved.push_back(tensor.detach());
  node->backward = std::move(backward);
  return node;
}

Tensor with_node(Tensor output, std::initializer_list<const Tensor*> inputs, Tensors saved,
                 Node::Backward backward) {
  if (!needs_node(inputs)) return output;
  output.set_edge({add_node(inputs, std::move(saved), std::move(backward)), 0});
  return output;
}

void run_backward(Context& context, const Edge& root, const Tensor& gradient) {
  const GradMode off(context, false);
  Run(context).run(root, gradient);
}

}  // namespace shardlens::planner::meta
