// The Python functions that the calling thread is in, asked of the interpreter that this process
// runs, if it runs one. Python's own calls are looked up by name when they are first needed, so one
// library serves any version of Python and none is needed to build it.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace shardlens::profiler {

/// A Python function, for as long as the process lives.
struct PythonFunction {
  std::string file;
  std::string name;
};

/// Calls `visit` for the functions of this thread, the innermost first, until it returns false;
/// `line` is where each of them is. Takes Python's lock, so nobody who holds it may wait for the
/// caller. Equal functions are the same object. Does nothing where there is no Python, or none any
/// more.
void visit_python_frames(
    const std::function<bool(const PythonFunction& function, int line)>& visit);

}  // namespace shardlens::profiler
