// Finds the Python functions that the calling thread is in, by asking the interpreter that this
// process runs, if it runs one. The functions of Python's C interface are looked up by name when
// they are first needed, so one library serves any version of Python and none is needed to build
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace shardlens::profiler {

/// A Python function, which is kept as long as the process lives.
struct PythonFunction {
  std::string file;
  std::string name;
};

/// Calls `visit` for the functions of this thread, the innermost first, until it returns false;
/// `line` is the line that each of them is at. Takes Python's lock, so no thread that holds it may
/// wait for the caller. Equal functions are passed as the same object. Does nothing if there is no
/// Python in the process, or if it has ended.
void visit_python_frames(
    const std::function<bool(const PythonFunction& function, int line)>& visit);

}  // namespace shardlens::profiler
