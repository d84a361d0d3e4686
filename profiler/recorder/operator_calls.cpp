#include "profiler/recorder/operator_calls.h"

#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/ApproximateClock.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <string_view>
#include <typeinfo>

#include "profiler/recorder/own_time.h"
#include "profiler/recorder/recorder.h"

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

bool has_sizes(const at::Tensor& tensor) {
  return tensor.defined() && !tensor.unsafeGetTensorImpl()->has_symbolic_sizes_strides();
}

/// Describes a list: all tensors in it, or its numbers.
void describe_list(c10::ArrayRef<c10::IValue> list, OperatorInput& input) {
  constexpr size_t kMostNumbers = 8;
  for (const c10::IValue& value : list) {
    if (value.isInt() && input.sizes.size() < kMostNumbers) {
      input.type = NumberType::int64;
      input.sizes.push_back(value.toInt());
    }
    if (!value.isTensor() || !has_sizes(value.toTensor())) continue;
    if (input.tensors++ == 0) input.sizes = {0};
    input.type = number_type(value.toTensor().scalar_type());
    input.sizes.front() += value.toTensor().numel();
  }
}

void describe(const c10::IValue& value, OperatorInput& input) {
  input.type = NumberType::text;
  input.tensors = 0;
  input.sizes.clear();
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!has_sizes(tensor)) return;
    input.type = number_type(tensor.scalar_type());
    input.tensors = 1;
    input.sizes.assign(tensor.sizes().begin(), tensor.sizes().end());
  } else if (value.isList()) {
    describe_list(value.toListRef(), input);
  } else if (value.isBool()) {
    input.type = NumberType::boolean;
    input.sizes.push_back(value.toBool() ? 1 : 0);
  } else if (value.isInt()) {
    input.type = NumberType::int64;
    input.sizes.push_back(value.toInt());
  }
}

/// Keeps what a trace of work says of a call, since its arguments cannot be read later.
void note_arguments(const at::RecordFunction& function, ThreadOperators& call) {
  if (call.arguments.size() <= call.depth) call.arguments.resize(call.depth + 1);
  ObservedArguments& arguments = call.arguments[call.depth];
  arguments.call = 0;
  arguments.count = 0;
  if (!function.isActive()) return;
  const c10::ArrayRef<const c10::IValue> inputs = function.inputs();
  if (arguments.inputs.size() < inputs.size()) arguments.inputs.resize(inputs.size());
  for (const c10::IValue& value : inputs) describe(value, arguments.inputs[arguments.count++]);
}

/// The time that PyTorch takes to call us for one operator; 0: not measured.
std::atomic<int64_t> ticks_to_call = 0;

constexpr int kMeasuredCalls = 200;

/// Returns the ticks that operators take, without what OwnTime counts among them.
int64_t ticks_of_calls(const at::Tensor& tensor, bool is_observed) {
  const at::RecordFunctionGuard guard(is_observed);
  const int64_t counted = OwnTime::ticks();
  const auto begin = c10::getApproximateTime();
  for (int i = 0; i < kMeasuredCalls; ++i) tensor.transpose(0, 1);
  const auto taken = static_cast<int64_t>(c10::getApproximateTime() - begin);
  return taken - (OwnTime::ticks() - counted);
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

constexpr auto kCommunication = static_cast<int32_t>(ProgramPart::communication);

bool asks_for_collective(std::string_view name) {
  return name.starts_with("c10d::") ||
         (name.starts_with("_c10d_functional::") && !name.ends_with("::wait_tensor"));
}

/// Tells the recording of a program without a schedule that the call asks for a collective.
void begin_collective(ThreadOperators& call) {
  if (call.collective_depth != 0 || !sees_inputs()) return;
  if (!asks_for_collective(call.names[call.depth - 1])) return;
  Recorder* const active = Recorder::active();
  if (active == nullptr) return;
  call.collective_depth = call.depth;
  active->begin_action(kCommunication);
}

/// Says that a call at this depth has ended.
void end_collective(ThreadOperators& call, size_t depth) {
  if (call.collective_depth == 0 || depth > call.collective_depth) return;
  call.collective_depth = 0;
  if (Recorder* const active = Recorder::active()) active->end_action(kCommunication);
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

NumberType number_type(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return NumberType::fp64;
    case at::kFloat:
      return NumberType::fp32;
    case at::kHalf:
      return NumberType::fp16;
    case at::kBFloat16:
      return NumberType::bf16;
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e4m3fnuz:
      return NumberType::fp8_e4m3;
    case at::kFloat8_e5m2:
    case at::kFloat8_e5m2fnuz:
      return NumberType::fp8_e5m2;
    case at::kLong:
      return NumberType::int64;
    case at::kInt:
      return NumberType::int32;
    case at::kShort:
      return NumberType::int16;
    case at::kChar:
      return NumberType::int8;
    case at::kByte:
      return NumberType::uint8;
    case at::kBool:
      return NumberType::boolean;
    case at::kComplexFloat:
      return NumberType::complex64;
    case at::kComplexDouble:
      return NumberType::complex128;
    default:
      return NumberType::unknown;
  }
}

bool is_in_collective() {
  const ThreadOperators& call = operator_call;
  const auto is_of_c10d = [](const std::string& name) { return name.starts_with("c10d::"); };
  return std::any_of(call.names.begin(),
                     call.names.begin() + static_cast<std::ptrdiff_t>(call.depth), is_of_c10d);
}

void set_operator_ended(void (*ended)()) { operator_ended = ended; }

bool sees_inputs() { return operator_ended.load(std::memory_order_relaxed) != nullptr; }

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function) {
  const OwnTime own;
  ThreadOperators& call = operator_call;
  if (OwnTime::is_counted) {
    OwnTime::add_ticks(ticks_to_call);
    note_arguments(function, call);
  }
  if (call.names.size() == call.depth) call.names.emplace_back();
  call.names[call.depth] = function.name();
  if (sees_inputs() && call.copied == 0) note_copied(function, call);
  ++call.depth;
  begin_collective(call);
  if (is_operator(function.name()) && call.operators++ == 0) begin_outermost(call);
  return nullptr;
}

void end_operator(const at::RecordFunction& function, at::ObserverContext*) {
  const OwnTime own;
  // An asynchronous call may end on a thread other than the one it began on.
  ThreadOperators& call = operator_call;
  if (call.depth == 0) return;
  end_collective(call, call.depth);
  --call.depth;
  if (OwnTime::is_counted && call.names[call.depth] == "_c10d_functional::wait_tensor") {
    if (Recorder* const active = Recorder::active()) active->await_collectives();
  }
  if (call.operators > 0 && is_operator(function.name())) --call.operators;
  if (call.copied_at == call.depth) call.copied = 0;
  if (call.depth == 0) tell_operator_ended();
}

void measure_calls() {
  constexpr int kAttempts = 7;  // of which the shortest is disturbed least
  const c10::InferenceMode no_autograd;
  const at::Tensor tensor = at::empty({2, 3});
  const int64_t counted = OwnTime::ticks();
  const auto begin = c10::getApproximateTime();
  int64_t observed = std::numeric_limits<int64_t>::max(), unobserved = observed;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    observed = std::min(observed, ticks_of_calls(tensor, true));
    unobserved = std::min(unobserved, ticks_of_calls(tensor, false));
  }
  ticks_to_call = std::max<int64_t>(0, (observed - unobserved) / kMeasuredCalls);
  const auto taken = static_cast<int64_t>(c10::getApproximateTime() - begin);
  OwnTime::add_ticks(taken - (OwnTime::ticks() - counted));
}

uint32_t number_of_call(WorkEncoder& encoder) {
  ThreadOperators& call = operator_call;
  const bool in_backward = torch::autograd::get_current_node() != nullptr;
  const bool is_observed = call.depth > 0 && call.arguments.size() >= call.depth;
  if (!is_observed) return encoder.call({.name = 0, .in_backward = in_backward, .inputs = {}});
  ObservedArguments& arguments = call.arguments[call.depth - 1];
  if (arguments.call != 0) return arguments.call;
  const auto end = arguments.inputs.begin() + static_cast<std::ptrdiff_t>(arguments.count);
  arguments.call = encoder.call({.name = encoder.string(call.names[call.depth - 1]),
                                 .in_backward = in_backward,
                                 .inputs = {arguments.inputs.begin(), end}});
  return arguments.call;
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
