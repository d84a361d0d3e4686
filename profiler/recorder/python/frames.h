// Finds the Python functions that the calling thread is in, by asking the interpreter that this
// process runs, if it runs one. The functions of Python's C interface are looked up by name when
// they are first needed, so one library serves any version of Python and none is needed to build
// it.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace shardlens::profiler {

/// A Python function, which is kept as long as the process lives.
struct PythonFunction {
  std::string file;
  std::string name;            // "forward"
  std::string qualified_name;  // "Attention.forward"; before Python 3.11 the same as `name`
  void* code = nullptr;        // Python's object
};

/// A function at an instruction. Equal functions are the same object, so two places can be compared
/// without looking into them.
struct PythonPlace {
  const PythonFunction* function = nullptr;
  int instruction = 0;

  bool operator==(const PythonPlace&) const = default;
};

/// Replaces `places` by those that this thread is in, the innermost first. Takes Python's lock, so
/// no thread that holds it may wait for the caller. There are none if there is no Python in the
/// process, or if it has ended.
void find_python_places(std::vector<PythonPlace>& places);
/// Calls `visit` with each of these places, until it returns false. Python's lock is held then.
void visit_python_places(const std::function<bool(const PythonPlace&)>& visit);

/// Arranges for Python's main thread to call a function soon, between two instructions, with
/// Python's lock.
void call_in_main_thread(int (*function)(void*));

/// Returns the line of a place. Takes Python's lock.
int line_of(const PythonPlace& place);

}  // namespace shardlens::profiler
