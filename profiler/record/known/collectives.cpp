#include "profiler/record/known/collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>

#include "profiler/record/known/experts.h"
#include "profiler/record/known/tensors.h"
#include "profiler/recorder/operator_calls.h"
#include "profiler/recorder/recorder.h"

namespace shardlens::profiler {

namespace {

/// The size of the group and this process's place in it, and how it reduces.
struct Group {
  std::string name = "";
  int64_t size = 1;
  int64_t rank = 0;
  c10d::ReduceOp::RedOpType reduction = c10d::ReduceOp::UNUSED;
};

/// A call's arguments by kind, in their order.
struct Call {
  Group group;
  std::vector<at::Tensor> tensors;             // arguments that are one tensor
  std::vector<std::vector<at::Tensor>> lists;  // arguments that are a list of tensors
  std::vector<std::vector<int64_t>> numbers;   // arguments that are a list of numbers
};

void read_object(const c10::IValue& argument, Group& group) {
  const auto name = argument.toObjectRef().type()->name();
  if (!name) return;
  if (name->name() == "ProcessGroup") {
    const auto processes = argument.toCustomClass<c10d::ProcessGroup>();
    group.name = processes->getGroupName();
    group.size = processes->getSize();
    group.rank = processes->getRank();
  } else if (name->name() == "ReduceOp") {
    group.reduction = argument.toCustomClass<c10d::ReduceOp>()->op_;
  }
}

void add_tensors(const c10::IValue& list, std::vector<at::Tensor>& tensors) {
  for (const c10::IValue& element : list.toListRef()) {
    if (element.isTensor()) tensors.push_back(element.toTensor());
    if (element.isList()) add_tensors(element, tensors);
  }
}

Call call_of(const std::vector<c10::IValue>& arguments) {
  Call call;
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor()) {
      if (argument.toTensor().defined()) call.tensors.push_back(argument.toTensor());
    } else if (argument.isIntList()) {
      call.numbers.push_back(argument.toIntVector());
    } else if (argument.isList()) {
      add_tensors(argument, call.lists.emplace_back());
    } else if (argument.isObject()) {
      read_object(argument, call.group);
    }
  }
  return call;
}

std::optional<at::Tensor> values_of(KnownMemory& memory, const at::Tensor& tensor) {
  return is_plain(tensor) ? known_values(memory, tensor) : std::nullopt;
}

/// Reduces the values of one rank over the group, whose ranks all have the same values. Returns
/// nothing for a reduction whose result is not clear.
std::optional<at::Tensor> reduced(const at::Tensor& values, const Group& group) {
  switch (group.reduction) {
    case c10d::ReduceOp::SUM:
      return values.mul(group.size);
    case c10d::ReduceOp::AVG:
    case c10d::ReduceOp::MIN:
    case c10d::ReduceOp::MAX:
    case c10d::ReduceOp::BAND:
    case c10d::ReduceOp::BOR:
      return values;
    default:
      return std::nullopt;
  }
}

void give(KnownMemory& memory, const at::Tensor& output, const std::optional<at::Tensor>& values) {
  if (!is_plain(output)) return;
  if (!values || values->numel() != output.numel() || values->dtype() != output.dtype()) {
    return make_unknown(memory, output);
  }
  make_known(memory, output, values->reshape(output.sizes()));
}

void all_reduce(KnownMemory& memory, const Call& call) {
  if (call.lists.empty()) return;
  for (const at::Tensor& tensor : call.lists.front()) {
    const auto values = values_of(memory, tensor);
    give(memory, tensor, values ? reduced(*values, call.group) : std::nullopt);
  }
}

void all_gather(KnownMemory& memory, const Group& group, const at::Tensor& output,
                const at::Tensor& input) {
  auto values = values_of(memory, input);
  if (values) values = values->reshape({1, -1}).expand({group.size, -1}).reshape({-1});
  give(memory, output, values);
}

void reduce_scatter(KnownMemory& memory, const Group& group, const at::Tensor& output,
                    const at::Tensor& input) {
  auto values = values_of(memory, input);
  if (!values || values->numel() != output.numel() * group.size) {
    return give(memory, output, std::nullopt);
  }
  give(memory, output, reduced(values->reshape({group.size, -1})[group.rank], group));
}

/// Returns what this rank sends to itself, if that is certain.
std::optional<at::Tensor> own_part(const Call& call, const at::Tensor& values) {
  const auto& [_, size, rank, reduction] = call.group;
  if (call.numbers.size() != 2) return std::nullopt;
  const std::vector<int64_t>& sent = call.numbers[1];
  if (sent.empty()) {
    if (values.size(0) % size != 0) return std::nullopt;
    return values.narrow(0, rank * (values.size(0) / size), values.size(0) / size);
  }
  if (sent.size() != static_cast<size_t>(size)) return std::nullopt;
  const auto before = std::accumulate(sent.begin(), sent.begin() + rank, int64_t{0});
  const int64_t own = sent[static_cast<size_t>(rank)];
  return before + own <= values.size(0) ? std::optional(values.narrow(0, before, own))
                                        : std::nullopt;
}

/// Every rank is assumed to send this one what this one sends to itself. If that is not as much as
/// this rank expects, the output is unknown.
void all_to_all(KnownMemory& memory, const Call& call) {
  const at::Tensor& output = call.tensors[0];
  const at::Tensor& input = call.tensors[1];
  note_exchange(call.group.size);
  const auto values = input.dim() > 0 ? values_of(memory, input) : std::nullopt;
  const auto own = values ? own_part(call, *values) : std::nullopt;
  if (!own || output.numel() != own->numel() * call.group.size) {
    return give(memory, output, std::nullopt);
  }
  const std::vector<at::Tensor> parts(static_cast<size_t>(call.group.size), *own);
  give(memory, output, at::cat(parts));
}

/// Gives each tensor of a list what this rank sends to itself, as all_to_all does each part.
void all_to_all_lists(KnownMemory& memory, const Call& call) {
  const std::vector<at::Tensor>& inputs = call.lists[1];
  const auto rank = static_cast<size_t>(call.group.rank);
  note_exchange(call.group.size);
  const auto own = rank < inputs.size() ? values_of(memory, inputs[rank]) : std::nullopt;
  for (const at::Tensor& output : call.lists[0]) give(memory, output, own);
}

void forget_all_of(KnownMemory& memory, const Call& call) {
  for (const at::Tensor& tensor : call.tensors) make_unknown(memory, tensor);
  for (const auto& list : call.lists) {
    for (const at::Tensor& tensor : list) make_unknown(memory, tensor);
  }
}

/// True if the call writes nothing new to this rank: a broadcast is assumed to bring what this rank
/// already has.
bool leaves_all(std::string_view name) {
  return name == "c10d::broadcast_" || name == "c10d::send" || name == "c10d::barrier" ||
         name == "c10d::monitored_barrier_" || name == "c10d::check_for_nan";
}

struct NamedCollective {
  std::string_view name;
  CollectiveKind kind;
};

constexpr NamedCollective kTraced[] = {
    {"c10d::_allgather_base_", CollectiveKind::all_gather},
    {"c10d::allgather_", CollectiveKind::all_gather},
    {"c10d::allgather_coalesced_", CollectiveKind::all_gather},
    {"c10d::allgather_into_tensor_coalesced_", CollectiveKind::all_gather},
    {"c10d::_reduce_scatter_base_", CollectiveKind::reduce_scatter},
    {"c10d::reduce_scatter_", CollectiveKind::reduce_scatter},
    {"c10d::reduce_scatter_tensor_coalesced_", CollectiveKind::reduce_scatter},
    {"c10d::allreduce_", CollectiveKind::all_reduce},
    {"c10d::allreduce_coalesced_", CollectiveKind::all_reduce},
    {"c10d::reduce_", CollectiveKind::reduce},
    {"c10d::broadcast_", CollectiveKind::broadcast},
    {"c10d::alltoall_base_", CollectiveKind::all_to_all},
    {"c10d::alltoall_", CollectiveKind::all_to_all},
    {"c10d::send", CollectiveKind::send},
    {"c10d::recv_", CollectiveKind::receive}};

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<int64_t>(tensor.nbytes());
  return bytes;
}

/// Returns the larger of what the call reads and what it writes.
int64_t bytes_of(const Call& call) {
  int64_t most = 0;
  for (const at::Tensor& tensor : call.tensors) most = std::max(most, bytes_of({tensor}));
  for (const std::vector<at::Tensor>& list : call.lists) most = std::max(most, bytes_of(list));
  return most;
}

/// Returns the root, or the other rank of a message: the first number among the arguments.
int32_t peer_of(CollectiveKind kind, const std::vector<c10::IValue>& arguments) {
  const bool has_peer = kind == CollectiveKind::broadcast || kind == CollectiveKind::reduce ||
                        kind == CollectiveKind::send || kind == CollectiveKind::receive;
  if (!has_peer) return -1;
  const auto number = std::ranges::find_if(arguments, &c10::IValue::isInt);
  return number == arguments.end() ? -1 : static_cast<int32_t>(number->toInt());
}

/// True if the program goes on beside the call: the last truth value among its arguments, which
/// messages do not have.
bool is_async(const std::vector<c10::IValue>& arguments) {
  for (auto argument = arguments.rbegin(); argument != arguments.rend(); ++argument) {
    if (argument->isBool()) return argument->toBool();
  }
  return true;
}

}  // namespace

void trace_collective(std::string_view name, const std::vector<c10::IValue>& arguments) {
  Recorder* const recorder = Recorder::active();
  const auto found = std::ranges::find(kTraced, name, &NamedCollective::name);
  if (recorder == nullptr || !recorder->has_work() || found == std::end(kTraced)) return;
  const Call call = call_of(arguments);
  std::vector<at::Tensor> tensors = call.tensors;
  for (const auto& list : call.lists) tensors.insert(tensors.end(), list.begin(), list.end());
  if (tensors.empty() || !tensors.front().is_cuda()) return;
  recorder->trace_collective({.name = found->name,
                              .kind = found->kind,
                              .bytes = bytes_of(call),
                              .type = number_type(tensors.front().scalar_type()),
                              .peer = peer_of(found->kind, arguments),
                              .group = call.group.name,
                              .ranks = static_cast<int32_t>(call.group.size),
                              .rank = static_cast<int32_t>(call.group.rank),
                              .is_async = is_async(arguments)});
}

void apply_collective(KnownMemory& memory, std::string_view name,
                      const std::vector<c10::IValue>& arguments) {
  if (leaves_all(name)) return;
  const Call call = call_of(arguments);
  const bool has_pair = call.tensors.size() == 2;
  if (name == "c10d::allreduce_" || name == "c10d::allreduce_coalesced_") {
    all_reduce(memory, call);
  } else if (name == "c10d::_allgather_base_" && has_pair) {
    all_gather(memory, call.group, call.tensors[0], call.tensors[1]);
  } else if (name == "c10d::_reduce_scatter_base_" && has_pair) {
    reduce_scatter(memory, call.group, call.tensors[0], call.tensors[1]);
  } else if (name == "c10d::alltoall_base_" && has_pair) {
    all_to_all(memory, call);
  } else if (name == "c10d::alltoall_" && call.lists.size() == 2) {
    all_to_all_lists(memory, call);
  } else if (name == "c10d::allgather_" && call.lists.size() == 2 && call.lists[1].size() == 1) {
    for (const at::Tensor& output : call.lists[0]) {
      give(memory, output, values_of(memory, call.lists[1][0]));
    }
  } else {
    forget_all_of(memory, call);
  }
}

}  // namespace shardlens::profiler
