// Tells what a call of one of PyTorch's operators does to the values in memory, from its schema and
// from the kernels that it has. values.h relies on it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <vector>

namespace shardlens::profiler {

enum class Effect : uint8_t {
  none,        // a view, or a change of what a tensor is but not of its values
  by_others,   // operators that it calls do everything, unless it launches its own kernel
  computes,    // its results follow from its arguments, and the CPU has the same operator
  writes,      // what it returns and the arguments that its schema says it writes become unknown
  unclear,     // not PyTorch's own: if it launches a kernel, that may write any argument
  unmarked,    // it writes arguments that its schema does not mark as written
  collective,  // it communicates with other ranks
};

enum class Use : uint8_t { reads, updates, overwrites };

/// A number that an operator counts on the GPU and reads, to know how large its results are. For
/// distinct truth values it asks instead how many are true.
enum class Count : uint8_t { nothing, results, results_or_true };

/// The value that decides the result of a logical operator whatever the other argument is.
enum class AbsorbingValue : uint8_t { none, zero, one };

/// Some operators ask for each number of a tensor whether it is finite, or whether it is not. An
/// unknown number is assumed to be finite, as in a training that goes well.
enum class Finiteness : uint8_t { nothing, is_finite, is_not };

struct KnownOperator {
  const c10::OperatorHandle* handle = nullptr;  // null: this is not an operator
  Effect effect = Effect::none;
  std::vector<Use> uses;  // of each argument
  size_t results = 0;
  int beta = -1;  // the argument that scales the first one's old values, if there is one
  bool writes_arguments = false;
  Count counts = Count::nothing;  // and reads from the GPU while it runs
  AbsorbingValue absorbing = AbsorbingValue::none;
  Finiteness asks = Finiteness::nothing;
  bool asks_all = false;  // or any of the elements of its first argument
  int status = -1;        // the result that says whether a factorisation succeeded, if there is one
  bool lacks_whole_numbers = false;  // the CPU cannot take whole numbers as its first argument
  bool chooses = false;              // chooses the largest of its first argument
  bool places = false;               // places something by its arguments' values (experts.h)
  bool writes_by_index = false;  // writes elements of its first argument that the second selects
  bool copies = false;           // its second argument to its first
  bool reads_host = false;       // reads arguments on the host, or writes parts of them
};

/// Returns the facts about the operator that is being called, or facts without a handle for a part
/// of a program that only has a name. The reference stays valid until the process ends. All threads
/// may call.
const KnownOperator& known_operator(const at::RecordFunction& call);

}  // namespace shardlens::profiler
