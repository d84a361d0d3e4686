#include "profiler/record/known/values.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/cuda/CUDACachingAllocator.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "profiler/record/known/collectives.h"
#include "profiler/record/known/experts.h"
#include "profiler/record/known/given_blocks.h"
#include "profiler/record/known/operators.h"
#include "profiler/record/known/tensors.h"
#include "profiler/record/known/unknown_numbers.h"
#include "profiler/record/known/unseen.h"
#include "profiler/recorder/own_time.h"

namespace shardlens::profiler {

namespace {

using c10::IValue;

using Values = std::vector<IValue>;        // arguments or results of a call
using ValuesView = c10::ArrayRef<IValue>;  // values that another object owns
using Tensors = std::vector<at::Tensor>;

/// An argument's tensor on the GPU, and the one on the CPU that stands for it.
struct WrittenTensor {
  at::Tensor on_gpu;
  at::Tensor values;
};

/// A call of an operator, from its beginning to its end.
struct Frame final : at::ObserverContext {
  const KnownOperator* facts = nullptr;
  Frame* outer = nullptr;
  bool launched = false;               // a kernel, in this frame but not in one within it
  bool is_followed = false;            // false if a mode or a transform calls the operator again
  std::optional<Values> on_cpu;        // its arguments, if everything that it reads is known
  std::optional<Values> results;       // if they had to be computed when it began
  int64_t count = 0;                   // that it then reads from the GPU
  std::vector<WrittenTensor> written;  // arguments on the GPU that it writes
  Values arguments;                    // of a collective, or of an operator that may write any
  Values asked;                        // arguments of the choosing operator
  bool is_of_choices = false;          // its inputs are chosen experts, or made from these
  bool is_of_nothing = false;          // one of its inputs is empty
  std::optional<bool> answer;          // for all elements, if these are too many to know each
};

thread_local Frame* innermost = nullptr;

KnownMemory* known_memory = nullptr;  // set once, before any frame

std::atomic<bool> has_unknown_counts{false};  // a shape depends on unknown values

/// Returns the blocks that were handed out since values are followed. They are never destroyed: a
/// program's last frees come after static objects are gone.
GivenBlocks& blocks() {
  static auto& all = *new GivenBlocks;
  return all;
}

/// True if a mode or a transform that the program has put over operators will call this operator,
/// or another one in its place, again on the tensors that it wraps.
bool is_called_again() {
  if (c10::impl::dispatch_mode_enabled()) return true;
  const auto included = c10::impl::tls_local_dispatch_key_set().included_;
  return included.has_any(
      c10::DispatchKeySet({c10::DispatchKey::FuncTorchDynamicLayerFrontMode,
                           c10::DispatchKey::Functionalize, c10::DispatchKey::PythonDispatcher}));
}

// ---- arguments ----------------------------------------------------------------------------------

/// Makes the arguments on the CPU for a frame.
class Arguments {
 public:
  explicit Arguments(Frame& frame) : frame_(frame) {}

  /// Returns nothing if the CPU cannot compute what the GPU would.
  std::optional<Values> make(c10::ArrayRef<const IValue> arguments) {
    Values made;
    made.reserve(arguments.size());
    for (size_t i = 0; i < arguments.size(); ++i) {
      auto one = made_of(arguments[i], use_of(arguments, i));
      if (!one) return std::nullopt;
      made.push_back(std::move(*one));
    }
    return is_on_gpu_ ? std::optional(std::move(made)) : std::nullopt;
  }

 private:
  /// A product that is added to its target with a factor of 0 does not read the target.
  Use use_of(c10::ArrayRef<const IValue> arguments, size_t i) const {
    const KnownOperator& facts = *frame_.facts;
    if (i != 0 || facts.beta < 0 || facts.uses[0] != Use::updates) return facts.uses[i];
    const IValue& beta = arguments[static_cast<size_t>(facts.beta)];
    return beta.isScalar() && beta.toScalar().toDouble() == 0 ? Use::overwrites : Use::updates;
  }

  std::optional<IValue> made_of(const IValue& argument, Use use) {
    if (argument.isTensor()) return made_of_tensor(argument.toTensor(), use);
    if (argument.isTensorList()) return made_of_list(argument, use);
    if (argument.isList()) return made_of_optionals(argument, use);
    if (argument.isDevice()) return made_of_device(argument.toDevice());
    if (argument.isGenerator()) return std::nullopt;
    return argument;
  }

  std::optional<IValue> made_of_device(c10::Device device) {
    is_on_gpu_ = is_on_gpu_ || device.is_cuda();
    return IValue(c10::Device(c10::kCPU));
  }

  std::optional<IValue> made_of_tensor(const at::Tensor& tensor, Use use) {
    if (!tensor.defined()) return IValue(tensor);
    if (tensor.device().is_cpu() && use == Use::reads && !is_wrapper(tensor)) {
      return IValue(tensor);
    }
    if (!is_plain(tensor)) return std::nullopt;
    is_on_gpu_ = true;
    auto values = use == Use::overwrites ? empty_of(tensor) : known_values(*known_memory, tensor);
    if (!values) return std::nullopt;
    if (use != Use::reads) frame_.written.push_back({tensor, *values});
    return IValue(*values);
  }

  static std::optional<at::Tensor> empty_of(const at::Tensor& tensor) {
    if (!is_small(tensor)) return std::nullopt;
    return empty_like_on_cpu(tensor);
  }

  std::optional<IValue> made_of_list(const IValue& argument, Use use) {
    c10::List<at::Tensor> made;
    for (const IValue& element : argument.toListRef()) {
      const auto one = made_of_tensor(element.toTensor(), use);
      if (!one) return std::nullopt;
      made.push_back(one->toTensor());
    }
    return IValue(std::move(made));
  }

  /// Makes a list of optional tensors, as indexing takes them. Lists of numbers stay as they are.
  std::optional<IValue> made_of_optionals(const IValue& argument, Use use) {
    const auto elements = argument.toListRef();
    const auto is_tensor = [](const IValue& element) { return element.isTensor(); };
    if (std::ranges::none_of(elements, is_tensor)) return argument;
    c10::List<std::optional<at::Tensor>> made;
    for (const IValue& element : elements) {
      if (!element.isTensor()) {
        made.push_back(std::nullopt);
        continue;
      }
      const auto one = made_of_tensor(element.toTensor(), use);
      if (!one) return std::nullopt;
      made.push_back(one->toTensor());
    }
    return IValue(made);
  }

  Frame& frame_;
  bool is_on_gpu_ = false;
};

/// Returns the values of `one` if they decide the operator's result for all elements of `other`.
std::optional<at::Tensor> deciding_values(AbsorbingValue absorbing, const at::Tensor& one,
                                          const at::Tensor& other) {
  const auto is_whole = [](const at::Tensor& tensor) {
    return at::isIntegralType(tensor.scalar_type(), /*includeBool=*/true);
  };
  if (!is_whole(one) || !is_whole(other)) return std::nullopt;
  if (one.numel() < other.numel() || !is_small(other)) return std::nullopt;
  if (absorbing == AbsorbingValue::one && one.scalar_type() != at::kBool) return std::nullopt;
  auto values = known_values(*known_memory, one);
  if (!values || values->numel() == 0) return std::nullopt;
  const UnobservedSection unseen;
  const bool decides =
      absorbing == AbsorbingValue::zero ? !values->any().item<bool>() : values->all().item<bool>();
  return decides ? values : std::nullopt;
}

/// Returns the arguments of a logical operator if one of them decides the result whatever the other
/// is: ones for an `or`, zeros for an `and`. The unknown one is then assumed to be zeros.
std::optional<Values> decided_by_one(const KnownOperator& facts,
                                     c10::ArrayRef<const IValue> arguments) {
  const size_t count = arguments.size();
  if (facts.absorbing == AbsorbingValue::none || count < 2 || count > 3) return std::nullopt;
  if (!std::ranges::all_of(arguments, &IValue::isTensor)) return std::nullopt;
  const at::Tensor& left = arguments[0].toTensor();
  const at::Tensor& right = arguments[1].toTensor();
  if (!is_plain(left) || !is_plain(right)) return std::nullopt;
  Values made;
  if (const auto deciding = deciding_values(facts.absorbing, left, right)) {
    made = {*deciding, zeros_like_on_cpu(right)};
  } else if (const auto other = deciding_values(facts.absorbing, right, left)) {
    made = {zeros_like_on_cpu(left), *other};
  } else {
    return std::nullopt;
  }
  if (count == 3)
    made.emplace_back(empty_like_on_cpu(arguments[2].toTensor()));  // the out argument
  return made;
}

/// Notes what the operator writes, because tensors that it does not return must become unknown too.
void note_written(Frame& frame, c10::ArrayRef<const IValue> arguments) {
  frame.written.clear();
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (frame.facts->uses[i] == Use::reads) continue;
    each_tensor(arguments[i], [&](const at::Tensor& tensor) {
      if (is_plain(tensor)) frame.written.push_back({tensor, {}});
    });
  }
}

// ---- results ------------------------------------------------------------------------------------

/// Returns the results of an operator that takes whole numbers only on the GPU.
Values computed_in_double(const KnownOperator& facts, Values arguments) {
  const auto type = arguments[0].toTensor().scalar_type();
  arguments[0] = arguments[0].toTensor().to(at::kDouble);
  facts.handle->callBoxed(&arguments);
  for (IValue& result : arguments) {
    if (result.isTensor()) result = result.toTensor().to(type);
  }
  return arguments;
}

/// Returns the results of the operator on the CPU, or nothing if it fails there. The caller holds
/// an UnobservedSection.
std::optional<Values> compute_results(const KnownOperator& facts, Values arguments) {
  try {
    if (facts.lacks_whole_numbers) return computed_in_double(facts, std::move(arguments));
    facts.handle->callBoxed(&arguments);
    return arguments;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// Returns the number of elements of the largest tensor, or nothing if one of them may not be
/// computed, or if no tensor's values could be kept.
std::optional<int64_t> elements_of(const Frame& frame, ValuesView outputs) {
  int64_t most = 0;
  bool are_small = true, is_any_kept = false;
  const auto look = [&](const at::Tensor& tensor) {
    most = std::max(most, tensor.numel());
    are_small = are_small && is_small(tensor);
    is_any_kept = is_any_kept || !is_plain(tensor) || !has_too_many_bytes(tensor);
  };
  for (const IValue& value : outputs) each_tensor(value, look);
  for (const WrittenTensor& one : frame.written) look(one.on_gpu);
  return are_small && (is_any_kept || most == 0) ? std::optional(most) : std::nullopt;
}

/// True if a CPU has the results within a few milliseconds. A matrix product sums, for each
/// element, as many products as the last dimension of its first argument has.
bool is_quick(const Frame& frame, ValuesView outputs) {
  const auto most = elements_of(frame, outputs);
  if (!most) return false;
  const Values& arguments = *frame.on_cpu;
  if (arguments.size() < 2 || !arguments[0].isTensor() || !arguments[1].isTensor()) return true;
  const at::Tensor& first = arguments[0].toTensor();
  if (!first.defined() || first.dim() < 2) return true;
  constexpr int64_t kMostProducts = int64_t{1} << 24;
  return *most * first.size(-1) <= kMostProducts || first.numel() >= *most;
}

void give(const at::Tensor& output, const at::Tensor& values) {
  if (!is_plain(output)) return;
  if (!values.defined() || values.sizes() != output.sizes() || values.dtype() != output.dtype()) {
    return make_unknown(*known_memory, output);
  }
  make_known(*known_memory, output, values);
}

Tensors tensors_of(const IValue& value) {
  Tensors tensors;
  each_tensor(value, [&](const at::Tensor& tensor) { tensors.push_back(tensor); });
  return tensors;
}

/// Gives one of the call's results, a tensor or a list of tensors, the values from the CPU.
void give_result(const IValue& output, const IValue& result) {
  const Tensors on_gpu = tensors_of(output), values = tensors_of(result);
  for (size_t i = 0; i < on_gpu.size(); ++i) {
    give(on_gpu[i], on_gpu.size() == values.size() ? values[i] : at::Tensor());
  }
}

void forget_tensor(const at::Tensor& tensor) {
  drop_answer(blocks(), tensor);
  make_unknown(*known_memory, tensor);
}

void forget(ValuesView values) {
  for (const IValue& value : values) each_tensor(value, forget_tensor);
}

/// Makes everything unknown that the operator may have written.
void forget_written(const Frame& frame, ValuesView outputs) {
  for (const WrittenTensor& one : frame.written) forget_tensor(one.on_gpu);
  forget(frame.arguments);
  forget(outputs);
}

/// Marks blocks that hold chosen experts, or values made from them.
void mark_choices(const Frame& frame, ValuesView outputs) {
  const auto mark = [](const at::Tensor& tensor) {
    const auto span = is_plain(tensor) ? span_of(tensor) : std::nullopt;
    if (span) blocks().mark(span->address);
  };
  for (const WrittenTensor& one : frame.written) mark(one.on_gpu);
  for (const IValue& output : outputs) each_tensor(output, mark);
}

/// Returns true if an argument that is read is a floating-point tensor without elements.
bool reads_nothing(const Frame& frame) {
  const Values& arguments = *frame.on_cpu;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (frame.facts->uses[i] == Use::reads && is_empty_of_numbers(arguments[i])) return true;
  }
  return false;
}

/// Returns true for the mean of no numbers and the like, if there may be none only because a count
/// is unknown: a GPU has a number there.
bool lacks_numbers(const Frame& frame) {
  return frame.is_of_nothing && has_unknown_counts && std::ranges::any_of(*frame.results, has_nan);
}

/// Returns true if everything that the operator has written is known now.
bool give_results(Frame& frame, ValuesView outputs) {
  if (!frame.results && (!frame.on_cpu || !is_quick(frame, outputs))) return false;
  const UnobservedSection unseen;
  if (!frame.results) {
    frame.is_of_nothing = reads_nothing(frame);
    frame.results = compute_results(*frame.facts, std::move(*frame.on_cpu));
    if (!frame.results || lacks_numbers(frame)) return false;
  }
  if (outputs.size() != frame.results->size()) return false;
  for (const WrittenTensor& one : frame.written) {
    drop_answer(blocks(), one.on_gpu);
    give(one.on_gpu, one.values);
  }
  for (size_t i = 0; i < outputs.size(); ++i) give_result(outputs[i], (*frame.results)[i]);
  if (frame.is_of_choices) mark_choices(frame, outputs);
  return true;
}

// ---- frames -------------------------------------------------------------------------------------

/// Computes at once the number that the operator itself will read from the GPU.
void count_results(Frame& frame, const IValue& counted) {
  if (frame.facts->counts == Count::nothing) return;
  if (!frame.on_cpu) {
    has_unknown_counts = has_unknown_counts || is_plain(counted.toTensor());
    return;
  }
  const UnobservedSection unseen;
  const at::Tensor input = frame.on_cpu->at(0).toTensor();
  frame.results = compute_results(*frame.facts, std::move(*frame.on_cpu));
  frame.on_cpu.reset();
  if (!frame.results) return;
  const at::Tensor& first = frame.results->at(0).toTensor();
  const bool asks_for_true =
      frame.facts->counts == Count::results_or_true && input.scalar_type() == at::kBool;
  frame.count = asks_for_true ? input.sum().item<int64_t>() : first.size(0);
}

/// Returns true if one of the indices is a mask whose values are unknown. PyTorch then counts 0
/// selected elements, as for any shape that depends on values, and so writes none.
bool selects_nothing(const IValue& indices) {
  bool has_unknown_mask = false;
  each_tensor(indices, [&](const at::Tensor& index) {
    const bool is_mask = index.scalar_type() == at::kBool || index.scalar_type() == at::kByte;
    has_unknown_mask |= is_mask && is_plain(index) && !known_values(*known_memory, index);
  });
  return has_unknown_mask;
}

bool has_choices(c10::ArrayRef<const IValue> arguments) {
  bool has = false;
  for (const IValue& argument : arguments) {
    each_tensor(argument, [&](const at::Tensor& tensor) {
      const auto span = is_plain(tensor) ? span_of(tensor) : std::nullopt;
      has = has || (span && blocks().is_marked(span->address));
    });
  }
  return has;
}

void note_choices(Frame& frame, c10::ArrayRef<const IValue> arguments) {
  if (frame.facts->chooses) frame.asked.assign(arguments.begin(), arguments.end());
  frame.is_of_choices = blocks().has_marks() && has_choices(arguments);
  if (frame.is_of_choices && frame.facts->places) note_placed();
}

void prepare_computing(Frame& frame, c10::ArrayRef<const IValue> arguments) {
  note_choices(frame, arguments);
  if (frame.facts->writes_by_index && selects_nothing(arguments[1])) {
    frame.is_followed = false;
    return;
  }
  frame.on_cpu = Arguments(frame).make(arguments);
  if (!frame.on_cpu) {
    note_written(frame, arguments);
    frame.on_cpu = decided_by_one(*frame.facts, arguments);
    if (frame.facts->asks_all) frame.answer = answer_in(blocks(), arguments[0]);
  }
  count_results(frame, arguments[0]);
}

void prepare(Frame& frame, c10::ArrayRef<const IValue> arguments) {
  switch (frame.facts->effect) {
    case Effect::computes:
      return prepare_computing(frame, arguments);
    case Effect::writes:
    case Effect::by_others:
      if (frame.facts->writes_arguments) note_written(frame, arguments);
      return;
    case Effect::unclear:
    case Effect::unmarked:
    case Effect::collective:
      frame.arguments.assign(arguments.begin(), arguments.end());
      return;
    case Effect::none:
      return;
  }
}

/// Returns the operator's results: a boxed call shows the whole interpreter stack, whose last
/// entries are its own.
ValuesView results_of(const at::RecordFunction& call, size_t count) {
  const ValuesView shown = call.outputs();
  return shown.size() <= count ? shown : shown.slice(shown.size() - count);
}

void apply_effect(Frame& frame, const at::RecordFunction& call, ValuesView outputs) {
  switch (frame.facts->effect) {
    case Effect::computes:
      if (give_results(frame, outputs)) return;
      forget_written(frame, outputs);
      if (frame.facts->chooses && outputs.size() == 2 && outputs[1].isTensor() &&
          choose(*known_memory, frame.asked, outputs[1].toTensor())) {
        mark_choices(frame, outputs.slice(1));
      }
      return;
    case Effect::writes:
    case Effect::unmarked:
      return forget_written(frame, outputs);
    case Effect::by_others:
    case Effect::unclear:
      if (frame.launched) forget_written(frame, outputs);
      return;
    case Effect::collective: {
      const UnobservedSection unseen;
      for (const IValue& argument : frame.arguments)
        each_tensor(argument, [](const at::Tensor& tensor) { drop_answer(blocks(), tensor); });
      trace_collective(call.name(), frame.arguments);
      return apply_collective(*known_memory, call.name(), frame.arguments);
    }
    case Effect::none:
      return;
  }
}

void conclude(Frame& frame, const at::RecordFunction& call) {
  const ValuesView outputs = results_of(call, frame.facts->results);
  apply_effect(frame, call, outputs);
  take_to_be_finite(*known_memory, blocks(), frame.facts->asks, outputs);
  give_answer(*known_memory, frame.answer, outputs);
  take_to_succeed(*known_memory, frame.facts->status, outputs);
}

/// Follows the call if it is an operator's and will not be made again. A boxed call shows more than
/// its own arguments, which are the last. No error here may reach the program.
void begin_frame(Frame& frame, c10::ArrayRef<const IValue> shown) {
  const size_t count = frame.facts->uses.size();
  if (frame.facts->handle == nullptr || shown.size() < count || is_called_again()) return;
  frame.is_followed = true;
  try {
    prepare(frame, shown.slice(shown.size() - count));
  } catch (const std::exception&) {
    frame.on_cpu.reset();
  }
}

std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& call) {
  const OwnTime own;
  auto frame = std::make_unique<Frame>();
  frame->facts = &known_operator(call);
  frame->outer = std::exchange(innermost, frame.get());
  begin_frame(*frame, call.inputs());
  return frame;
}

void end_operator(const at::RecordFunction& call, at::ObserverContext* context) {
  const OwnTime own;
  auto& frame = static_cast<Frame&>(*context);
  innermost = frame.outer;
  if (!frame.is_followed) return;
  try {
    conclude(frame, call);
  } catch (const std::exception&) {
    known_memory->forget_all();
  }
}

namespace allocator = c10::cuda::CUDACachingAllocator;

/// Makes everything unknown that a kernel given these addresses may write: the blocks around them,
/// and the blocks that known tables of pointers in these lead to.
void forget_reachable(std::vector<uint64_t> addresses) {
  const size_t given = addresses.size();
  std::set<uint64_t> seen;
  for (size_t i = 0; i < addresses.size(); ++i) {
    const auto block = blocks().block_around(addresses[i]);
    if (!block && i < given) return known_memory->forget_all();  // memory of another allocator
    if (!block || !seen.insert(block->first).second) continue;
    const auto pointers = known_memory->addresses_in(block->first, block->second);
    addresses.insert(addresses.end(), pointers.begin(), pointers.end());
    blocks().note_written(block->first);
    known_memory->forget(block->first, block->second);
  }
}

/// Answers for the frames of the thread that the null device asks on.
class Observer final : public KernelObserver {
 public:
  void note_launch() override {
    const OwnTime own;
    if (!note_in_frame()) known_memory->forget_all();
  }

  void note_launch_with(const uint64_t* addresses, size_t count) override {
    const OwnTime own;
    if (!note_in_frame()) forget_reachable({addresses, addresses + count});
  }

  /// Answers an operator, or one that it calls, that reads the number it has counted.
  bool answer(void* target, size_t bytes) override {
    const Frame* frame = innermost;
    while (frame != nullptr && !frame->results) frame = frame->outer;
    if (frame == nullptr) return false;
    if (bytes != sizeof(int32_t) && bytes != sizeof(int64_t)) return false;
    std::memcpy(target, &frame->count, bytes);  // its lower bytes come first
    return true;
  }

 private:
  /// Returns false if the kernel was launched outside of every operator.
  static bool note_in_frame() {
    if (innermost == nullptr || innermost->facts->handle == nullptr) return false;
    innermost->launched = true;
    return true;
  }
};

/// Follows the allocator's blocks, and forgets what memory held before it was handed out.
void note_memory(const allocator::TraceEntry& entry) {
  const OwnTime own;
  using Action = allocator::TraceEntry;
  const auto address = static_cast<uint64_t>(entry.addr_);
  const bool is_new = entry.action_ == Action::ALLOC;
  if (!is_new && entry.action_ != Action::FREE_COMPLETED) return;
  if (is_new) blocks().add(address, entry.size_);
  if (!is_new) blocks().remove(address);
  known_memory->forget(address, entry.size_);
}

void follow() {
  static auto& observer = *new Observer;
  known_memory->observe(observer);
  allocator::attachAllocatorTraceTracker(note_memory);
  at::addGlobalCallback(at::RecordFunctionCallback(begin_operator, end_operator)
                            .scopes({at::RecordScope::FUNCTION})
                            .needsInputs(true)
                            .needsOutputs(true));
}

}  // namespace
}  // namespace shardlens::profiler

void shardlens_follow_known_values() {
  using shardlens::profiler::known_memory;
  if (known_memory != nullptr) return;
  known_memory = shardlens::profiler::find_known_memory();
  if (known_memory != nullptr) shardlens::profiler::follow();
}
