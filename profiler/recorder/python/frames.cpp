#include "profiler/recorder/python/frames.h"

#include <dlfcn.h>

#include <memory>
#include <unordered_map>

namespace shardlens::profiler {

namespace {

struct PyObject;

/// Functions of Python's stable interface, and those of PyFrame_ and PyCode_ below.
/// PyFrame_GetLasti came with Python 3.11, PyFrame_GetVarString with 3.12.
struct Python {
  int (*is_initialized)();
  void* (*thread_state)();
  int (*ensure_lock)();
  void (*release_lock)(int);
  PyObject* (*current_frame)();
  PyObject* (*outer_frame)(PyObject*);
  PyObject* (*code_of)(PyObject*);
  int (*line_of)(PyObject*);
  PyObject* (*attribute)(PyObject*, const char*);
  const char* (*text_of)(PyObject*, ssize_t*);
  void (*drop)(PyObject*);
  void (*clear_error)();
  int (*line_at)(PyObject*, int);
  int (*call_later)(int (*)(void*), void*);
  PyObject* (*borrow_item)(PyObject*, const char*);
  void (*clear_items)(PyObject*);
  int (*instruction_of)(PyObject*);
  PyObject* (*variable)(PyObject*, const char*);
  bool is_complete = true;

  Python() {
    find("Py_IsInitialized", is_initialized);
    find("PyGILState_GetThisThreadState", thread_state);
    find("PyGILState_Ensure", ensure_lock);
    find("PyGILState_Release", release_lock);
    find("PyEval_GetFrame", current_frame);
    find("PyFrame_GetBack", outer_frame);
    find("PyFrame_GetCode", code_of);
    find("PyFrame_GetLineNumber", line_of);
    find("PyObject_GetAttrString", attribute);
    find("PyUnicode_AsUTF8AndSize", text_of);
    find("Py_DecRef", drop);
    find("PyErr_Clear", clear_error);
    find("PyCode_Addr2Line", line_at);
    find("Py_AddPendingCall", call_later);
    find("PyDict_GetItemString", borrow_item);
    find("PyDict_Clear", clear_items);
    variable = reinterpret_cast<PyObject* (*)(PyObject*, const char*)>(
        ::dlsym(RTLD_DEFAULT, "PyFrame_GetVarString"));
    instruction_of =
        reinterpret_cast<int (*)(PyObject*)>(::dlsym(RTLD_DEFAULT, "PyFrame_GetLasti"));
  }

 private:
  template <class Call>
  void find(const char* name, Call& call) {
    call = reinterpret_cast<Call>(::dlsym(RTLD_DEFAULT, name));
    if (call == nullptr) is_complete = false;
  }
};

const Python& python() {
  static const Python calls;
  return calls;
}

std::string text_attribute(PyObject* object, const char* name) {
  const Python& py = python();
  PyObject* const value = py.attribute(object, name);
  if (value == nullptr) {
    python().clear_error();
    return {};
  }
  const char* const text = py.text_of(value, nullptr);
  std::string copy = text == nullptr ? "" : text;
  py.drop(value);
  return copy;
}

/// Returns the function of a code object, and takes over the reference to `code`: a known function
/// is never freed, so that no other one can be at its address. Python's lock guards the table.
const PythonFunction& function_of(PyObject* code) {
  static auto& known = *new std::unordered_map<PyObject*, std::unique_ptr<PythonFunction>>();
  std::unique_ptr<PythonFunction>& function = known[code];
  if (function != nullptr) {
    python().drop(code);
    return *function;
  }
  function = std::make_unique<PythonFunction>(
      PythonFunction{.file = text_attribute(code, "co_filename"),
                     .name = text_attribute(code, "co_name"),
                     .qualified_name = text_attribute(code, "co_qualname"),
                     .code = code});
  if (function->qualified_name.empty()) function->qualified_name = function->name;
  function->calls_module = function->name == "_wrapped_call_impl" &&
                           function->file.ends_with("torch/nn/modules/module.py");
  function->runs_backward = function->name == "_engine_run_backward" &&
                            function->file.ends_with("torch/autograd/graph.py");
  return *function;
}

/// Returns the instruction that a frame is at; before Python 3.11, its line serves instead.
int instruction_of(PyObject* frame) {
  const Python& py = python();
  return py.instruction_of != nullptr ? py.instruction_of(frame) : py.line_of(frame);
}

/// Returns the address of a variable of a frame; null if it has no such variable. Before
/// Python 3.12 only a copy of all variables has it, which the frame keeps: it is emptied, so that
/// no tensor lives longer than without this look.
const void* variable_of(PyObject* frame, const char* name) {
  const Python& py = python();
  if (py.variable != nullptr) {
    PyObject* const value = py.variable(frame, name);
    value == nullptr ? py.clear_error() : py.drop(value);
    return value;
  }
  PyObject* const all = py.attribute(frame, "f_locals");
  if (all == nullptr) {
    py.clear_error();
    return nullptr;
  }
  const void* const value = py.borrow_item(all, name);
  py.clear_items(all);
  py.drop(all);
  return value;
}

}  // namespace

const void* PythonFrame::self() const {
  return variable_of(static_cast<PyObject*>(frame_), "self");
}

void visit_python_frames(const std::function<bool(const PythonFrame&)>& visit) {
  const Python& py = python();
  // A thread that Python does not know is in none of its functions.
  if (!py.is_complete || py.is_initialized() == 0 || py.thread_state() == nullptr) return;
  const int lock = py.ensure_lock();
  PyObject* frame = py.current_frame();  // a borrowed reference; all others are ours
  bool is_ours = false;
  while (frame != nullptr) {
    const PythonPlace place{&function_of(py.code_of(frame)), instruction_of(frame)};
    const bool goes_on = visit(PythonFrame(place, frame));
    PyObject* const outer = goes_on ? py.outer_frame(frame) : nullptr;
    if (is_ours) py.drop(frame);
    frame = outer;
    is_ours = true;
  }
  py.release_lock(lock);
}

void call_in_main_thread(int (*function)(void*)) {
  if (python().is_complete) python().call_later(function, nullptr);
}

int line_of(const PythonPlace& place) {
  const Python& py = python();
  if (py.instruction_of == nullptr) return place.instruction;
  const int lock = py.ensure_lock();
  const int line = py.line_at(static_cast<PyObject*>(place.function->code), place.instruction);
  py.release_lock(lock);
  return line;
}

}  // namespace shardlens::profiler
