// Finds the Python functions that the calling thread is in, by asking the interpreter that this
// process runs, if it runs one. The functions of Python's C interface are looked up by name when
// they are first needed, so one library serves any version of Python and none is needed to build
// it.
#pragma once

#include <functional>
#include <string>

namespace shardlens::profiler {

/// A Python function, which is kept as long as the process lives.
struct PythonFunction {
  std::string file;
  std::string name;            // "forward"
  std::string qualified_name;  // "Attention.forward"; before Python 3.11 the same as `name`
  void* code = nullptr;        // Python's object
  bool calls_module = false;   // PyTorch's, with the module as `self`
  bool runs_backward = false;  // PyTorch's: what is further out has called this backward
};

/// A function at an instruction. Equal functions are the same object, so two places can be compared
/// without looking into them.
struct PythonPlace {
  const PythonFunction* function = nullptr;
  int instruction = 0;

  bool operator==(const PythonPlace&) const = default;
};

/// A call of a function that runs.
class PythonFrame {
 public:
  PythonFrame(const PythonPlace& place, void* frame) : place_(place), frame_(frame) {}

  const PythonPlace& place() const { return place_; }
  /// Returns the address of the object whose method this is; null if that is not known.
  const void* self() const;

 private:
  PythonPlace place_;
  void* frame_;  // Python's object
};

/// Calls `visit` with each call that this thread is in, the innermost first, until it returns
/// false. Takes Python's lock, so no thread that holds it may wait for the caller. There are no
/// calls if there is no Python in the process, or if it has ended.
void visit_python_frames(const std::function<bool(const PythonFrame&)>& visit);

/// Arranges for Python's main thread to call a function soon, between two instructions, with
/// Python's lock.
void call_in_main_thread(int (*function)(void*));

/// Returns the line of a place. Takes Python's lock.
int line_of(const PythonPlace& place);

}  // namespace shardlens::profiler
