// Follows the operators that a thread runs: which ones, what the outermost one has allocated, and
// what it copies. Only the recorder uses it, while a recording is active.
#pragma once

#include <ATen/record_function.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/file/work_layer.h"
#include "profiler/recording/work.h"

namespace shardlens::profiler {

/// The arguments of a call that is observed for a trace of work.
struct ObservedArguments {
  std::vector<OperatorInput> inputs;  // longer than `count`, so that their memory serves again
  size_t count = 0;
  uint32_t call = 0;  // the number that the trace has for the call; 0: none yet
};

/// The outermost operator call that the thread is in, with its blocks. In a backward that is not
/// observed (see UnobservedBackward), everything that autograd does for one node is one call.
struct ThreadOperators {
  size_t depth = 0;                // of observed calls
  size_t operators = 0;            // of these, the operators; the others are marks of a profiler
  std::vector<std::string> names;  // of these, the outermost first; longer than `depth`
  const void* node = nullptr;
  std::vector<ObservedArguments> arguments;  // by depth, like the names
  uint64_t node_number = 0;                  // another node may later be at the same address
  uint64_t copied = 0;                       // address of the storage that is copied now; 0: none
  bool is_of_host = false;                   // that is on the host
  size_t copied_at = 0;                      // depth of the call that copies it
  size_t collective_depth = 0;               // of the call that asks for a collective, with it
  std::vector<uint64_t> allocated;
};

/// Returns the thread's call, which may have no operator.
ThreadOperators& thread_operator();

/// Returns the thread's call, or null outside of any call.
ThreadOperators* current_call();

/// True if the current call has allocated the block, which it then forgets.
bool forget_own(uint64_t address);

/// The callbacks of LibTorch's RecordFunction.
std::unique_ptr<at::ObserverContext> begin_operator(const at::RecordFunction& function);
void end_operator(const at::RecordFunction& function, at::ObserverContext* context);

/// Measures what PyTorch takes to call our callbacks for an operator, which OwnTime counts from
/// then on. Takes a few milliseconds, in which the calling thread is in no operator and
/// in no OwnTime.
void measure_calls();

NumberType number_type(at::ScalarType type);

/// True if the calling thread is in a call of c10d, PyTorch's collectives.
bool is_in_collective();

/// Returns the number of the innermost call of the thread in a trace of work; 0: there is none.
uint32_t number_of_call(WorkEncoder& encoder);

/// Says what is called when an outermost operator call has ended (RecorderOptions::operator_ended);
/// with null nothing is, and what operators copy is not seen.
void set_operator_ended(void (*ended)());

/// True if what operators copy is seen.
bool sees_inputs();

}  // namespace shardlens::profiler
