// Remembers the stacks of Python functions that a thread has been in, and what each says about an
// allocation, so that seeing a stack again costs only a look at each of its frames.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "profiler/recorder/python/compiled_code.h"
#include "profiler/recorder/python/frames.h"
#include "profiler/recorder/python/module_names.h"
#include "profiler/recorder/recorder.h"
#include "profiler/recording/python_rules.h"

namespace shardlens::profiler {

/// The facts that a stack of Python functions tells about an allocation. Texts live as long as the
/// process.
struct SeenPlace {
  const PythonRule* rule = nullptr;       // of the innermost function that has one
  const std::string* place = nullptr;     // the innermost function of the program; null: none
  const std::string* of_torch = nullptr;  // the innermost function of PyTorch
  const CompiledLine* code = nullptr;     // of generated code, if the program is further out
};

/// Returns the text, kept as long as the process: equal texts are the same object.
const std::string& kept_text(const std::string& text);

/// False: each allocation has only its label. Set before a recording begins.
void set_keeps_stacks(bool keeps);

/// The number 0, which stands for a frame that the recording could not keep, is never remembered.
class ThreadStacks {
 public:
  /// Returns the stacks of the calling thread in this recording. They are never destroyed, since
  /// threads allocate while they end.
  static ThreadStacks& stacks_of(Recorder& active);

  /// Finds the Python functions that the thread is in. Returns the innermost frame, or 0 where no
  /// stacks are kept.
  uint32_t find();
  /// Returns the innermost module with a name that is called in the functions that find() has
  /// found, as far as they are in one backward; null if there is none.
  const ModuleName* module() const { return module_; }
  /// Returns the innermost frame of the functions that find() has found, called by `caller`.
  uint32_t frame_of_places(uint32_t caller);
  /// Returns the frame of an operator or a node of autograd, which has only a name.
  uint32_t frame_of(const std::string& name, uint32_t caller);
  /// Returns the innermost frame of the operators that the thread is in, called by `caller`.
  uint32_t frame_of_operators(uint32_t caller);
  /// Returns the number of a place with the stack of an innermost frame, which decides the place;
  /// 0: no stack.
  uint32_t label_of(const std::string& place, uint32_t innermost);
  /// Returns what the functions say that find() has found; `frame` is their innermost frame.
  const SeenPlace& seen_place(uint32_t frame);

 private:
  struct Call {
    uint32_t caller = 0;
    PythonPlace place;

    bool operator==(const Call&) const = default;
  };
  struct CallHash {
    size_t operator()(const Call& call) const {
      const auto function = reinterpret_cast<uint64_t>(call.place.function);
      const uint64_t at =
          uint64_t{call.caller} << 32 | static_cast<uint32_t>(call.place.instruction);
      return (at * 0x9E37'79B9'7F4A'7C15U ^ function) * 0xD6E8'FEB8'6659'FD93U >> 7;
    }
  };

  struct FoundFrame {
    PythonPlace place;
    uint32_t frame = 0;
  };

  void look_for_module(const PythonFrame& frame);
  uint32_t frame_of_found();
  uint32_t known_frame(const PythonPlace& place, uint32_t caller);
  uint32_t new_frame(const PythonPlace& place, uint32_t caller);

  Recorder* recorder_ = nullptr;
  std::vector<PythonPlace> places_;  // keeps its memory
  std::vector<FoundFrame> found_;    // what find() found last, outermost first
  const ModuleName* module_ = nullptr;
  bool is_inside_ = true;  // the functions that were found so far: of the same backward
  std::unordered_map<Call, uint32_t, CallHash> frames_;
  std::unordered_map<std::string, uint32_t> functions_;  // operators and nodes, by name
  std::unordered_map<uint64_t, uint32_t> calls_;         // frames of these, by caller and function
  std::unordered_map<uint32_t, uint32_t> labels_;        // of places, by the innermost frame
  std::unordered_map<uint32_t, SeenPlace> seen_;         // by the innermost frame
  SeenPlace unkept_;
};

}  // namespace shardlens::profiler
