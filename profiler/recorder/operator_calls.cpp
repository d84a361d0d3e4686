#include "profiler/recorder/operator_calls.h"

#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <string_view>
#include <typeinfo>

namespace shardlens::profiler {

namespace {

thread_local ThreadOperators operator_call;

/// Notes the storage that an operator copies: that of the argument of a cast or a clone.
void note_copied(const at::RecordFunction& function, ThreadOperators& call) {
  const std::string_view name = call.names[call.depth];
  if (name != "aten::_to_copy" && name != "aten::clone") return;
  if (!function.isActive() || function.inputs().empty()) return;
  const c10::IValue& input = function.inputs()[0];
  if (!input.isTensor() || !input.toTensor().has_storage()) return;
  const at::Tensor& tensor = input.toTensor();
  call.copied = reinterpret_cast<uint64_t>(tensor.unsafeGetTensorImpl()->unsafe_storage().data());
  call.is_of_host = tensor.device().is_cpu();
  call.copied_at = call.depth;
}

/// RecorderOptions::operator_ended of the recording that is active.
std::atomic<void (*)()> operator_ended = nullptr;

void tell_operator_ended() {
  if (const auto ended = operator_ended.load(std::memory_order_relaxed)) ended();
}

/// True for "aten::mm". Marks of a profiler, as compiled code has them, have other names, and
/// autograd's mark around a node says no more than the node itself.
bool is_operator(std::string_view name) {
  return name.find("::") != std::string_view::npos && !name.starts_with("autograd::");
}

/// True for a node that Python runs: a function of the program's own, or compiled code. What such a
/// node allocates and frees is more than one operator's.
bool is_of_python(const torch::autograd::Node& node) {
  return std::string_view(typeid(node).name()).ends_with("PyNodeE");
}

/// Blocks that a node allocates stay known until the next node, also between its operators.
void begin_node(const torch::autograd::Node& node, ThreadOperators& call) {
  if (&node == call.node && node.sequence_nr() == call.node_number) return;
  call.allocated.clear();
  call.node = &node;
  call.node_number = node.sequence_nr();
}

void begin_outermost(ThreadOperators& call) {
  const auto node = torch::autograd::get_current_node();
  if (node != nullptr && !is_of_python(*node)) return begin_node(*node, call);
  call.allocated.clear();
  call.node = nullptr;
}

}  // namespace

ThreadOperators& thread_operator() { return operator_call; }

void set_operator_ended(void (*ended)()) { operator_ended = ended; }

bool sees_inputs() { return operator_ended.load(std::memory_order_relaxed) != nullptr; }

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  ThreadOperators& call = operator_call;
  if (call.names.size() == call.depth) call.names.emplace_back();
  call.names[call.depth] = function.name();
  if (sees_inputs() && call.copied == 0) note_copied(function, call);
  ++call.depth;
  if (is_operator(function.name()) && call.operators++ == 0) begin_outermost(call);
  return nullptr;
}

void end_operator(const at::RecordFunction& function, at::ObserverContext*) {
  // An asynchronous call may end on a thread other than the one it began on.
  ThreadOperators& call = operator_call;
  if (call.depth == 0) return;
  --call.depth;
  if (call.operators > 0 && is_operator(function.name())) --call.operators;
  if (call.copied_at == call.depth) call.copied = 0;
  if (call.depth == 0) tell_operator_ended();
}

ThreadOperators* current_call() {
  ThreadOperators& call = operator_call;
  if (call.operators > 0) return &call;
  const auto node = torch::autograd::get_current_node();
  if (node == nullptr || is_of_python(*node)) return nullptr;
  begin_node(*node, call);
  return &call;
}

bool forget_own(uint64_t address) {
  ThreadOperators* const call = current_call();
  if (call == nullptr) return false;
  const auto found = std::find(call->allocated.rbegin(), call->allocated.rend(), address);
  if (found == call->allocated.rend()) return false;
  *found = call->allocated.back();
  call->allocated.pop_back();
  return true;
}

}  // namespace shardlens::profiler
