// Tells what a call of one of PyTorch's operators does to the values in memory, from its schema and
// from which kernels it has. values.h goes by it.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <cstdint>
#include <vector>

namespace shardlens::profiler {

enum class Effect : uint8_t {
  none,        // a view, or a change of what a tensor is and not of its values
  by_others,   // other operators, which it calls, do all, unless it launches a kernel of its own
  computes,    // its results follow from its arguments, and the CPU has the same operator
  writes,      // what it returns and the arguments that its schema says it writes become unknown
  unclear,     // not PyTorch's own: if it launches a kernel, that may write any argument
  unmarked,    // it writes arguments of which its schema does not say so
  collective,  // it speaks with other ranks
};

enum class Use : uint8_t { reads, updates, overwrites };

/// A number that an operator counts on the GPU and reads, to know how large its results are. Of
/// distinct truth values it asks instead how many are true.
enum class Count : uint8_t { nothing, results, results_or_true };

/// The value that decides the result of a logical operator whatever the other argument is.
enum class AbsorbingValue : uint8_t { none, zero, one };

/// Some operators ask of each number of a tensor whether it is finite, or is not. A number that is
/// not known is taken to be finite, as in a training that goes well.
enum class Finiteness : uint8_t { nothing, is_finite, is_not };

struct KnownOperator {
  const c10::OperatorHandle* handle = nullptr;  // null: this is no operator
  Effect effect = Effect::none;
  std::vector<Use> uses;  // of each argument
  size_t results = 0;
  int beta = -1;  // the argument that scales what the first one held, where there is one
  bool writes_arguments = false;
  Count counts = Count::nothing;  // and reads from the GPU while it runs
  AbsorbingValue absorbing = AbsorbingValue::none;
  Finiteness asks = Finiteness::nothing;
  bool asks_all = false;  // or any of the elements of its first argument
  int status = -1;  // the result that says whether a factorisation succeeded, where there is one
  bool lacks_whole_numbers = false;  // on the CPU, of its first argument
  bool chooses = false;              // the largest of its first argument
  bool places = false;               // something by the values of its arguments (experts.h)
  bool writes_by_index = false;  // the elements of its first argument that the second one selects
};

/// Returns the facts about the operator that is being called, or, for a part of a program that only
/// has a name, facts with no handle. The reference holds until the process ends. All threads may
/// call.
const KnownOperator& known_operator(const at::RecordFunction& call);

}  // namespace shardlens::profiler
