#include "profiler/recorder/python/thread_stacks.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <string_view>
#include <unordered_set>

namespace shardlens::profiler {

namespace {

bool keeps_stacks = true;

/// The facts about a Python function that never change.
struct KnownFunction {
  const PythonRule* rule = nullptr;
  bool is_of_program = false;
  bool is_of_torch = false;
  bool is_compiled = false;
};

KnownFunction known_function_of(const PythonFunction& function) {
  const bool is_compiled = is_compiled_code(function.file);
  return {.rule = find_python_rule(function.file, function.name),
          .is_of_program = !is_compiled && is_of_program(function.file),
          .is_of_torch = function.file.find("/torch/") != std::string::npos,
          .is_compiled = is_compiled};
}

const KnownFunction& known_function(const PythonFunction& function) {
  static auto& guard = *new std::mutex();
  static auto& table = *new std::unordered_map<const PythonFunction*, KnownFunction>();
  const std::lock_guard lock(guard);
  const auto found = table.find(&function);
  if (found != table.end()) return found->second;
  return table.emplace(&function, known_function_of(function)).first->second;
}

const std::string& text_of(const PythonPlace& place) {
  const PythonFunction& function = *place.function;
  const size_t folder = function.file.rfind('/');
  const size_t name = folder == std::string::npos ? 0 : folder + 1;
  return kept_text(fmt::format("{}:{} {}", std::string_view(function.file).substr(name),
                               line_of(place), function.name));
}

/// Adds to `seen` what the next place says, from the innermost on. Returns false if nothing more
/// can be seen.
bool look_at(const PythonPlace& place, SeenPlace& seen) {
  const KnownFunction& what = known_function(*place.function);
  const bool is_innermost = seen.place == nullptr;
  if (what.is_compiled && is_innermost && seen.code == nullptr) {
    seen.code = &compiled_line_of(place.function->file, line_of(place));
  }
  if (what.is_of_torch && is_innermost && seen.of_torch == nullptr) seen.of_torch = &text_of(place);
  const bool replaces = what.rule != nullptr && what.rule->is_of_part;
  if (seen.rule == nullptr || replaces) seen.rule = what.rule;
  if (seen.place == nullptr && what.is_of_program) seen.place = &text_of(place);
  return seen.rule == nullptr || seen.place == nullptr;
}

SeenPlace look_at(const std::vector<PythonPlace>& places) {
  SeenPlace seen;
  for (const PythonPlace& place : places) {
    if (!look_at(place, seen)) break;
  }
  return seen;
}

/// Looks at the functions that the thread is in only until no more can be learned.
SeenPlace look_without_stack() {
  SeenPlace seen;
  visit_python_frames([&seen](const PythonFrame& frame) { return look_at(frame.place(), seen); });
  return seen;
}

}  // namespace

const std::string& kept_text(const std::string& text) {
  static auto& guard = *new std::mutex();
  static auto& texts = *new std::unordered_set<std::string>();
  const std::lock_guard lock(guard);
  return *texts.insert(text).first;
}

void set_keeps_stacks(bool keeps) { keeps_stacks = keeps; }

ThreadStacks& ThreadStacks::stacks_of(Recorder& active) {
  thread_local auto& stacks = *new ThreadStacks();
  if (stacks.recorder_ != &active) stacks = ThreadStacks();
  stacks.recorder_ = &active;
  return stacks;
}

uint32_t ThreadStacks::find() {
  module_ = nullptr;
  is_inside_ = true;
  if (!keeps_stacks) return 0;
  places_.clear();
  visit_python_frames([this](const PythonFrame& frame) {
    places_.push_back(frame.place());
    if (module_ == nullptr && is_inside_) look_for_module(frame);
    return true;
  });
  return frame_of_found();
}

/// The outer functions are most often those of the last stack, whose frames are known.
uint32_t ThreadStacks::frame_of_found() {
  const auto [last, place] = std::mismatch(
      found_.begin(), found_.end(), places_.rbegin(), places_.rend(),
      [](const FoundFrame& known, const PythonPlace& now) { return known.place == now; });
  found_.erase(last, found_.end());
  uint32_t caller = found_.empty() ? 0 : found_.back().frame;
  for (auto inner = place; inner != places_.rend(); ++inner) {
    caller = known_frame(*inner, caller);
    if (caller == 0) return 0;
    found_.push_back({*inner, caller});
  }
  return caller;
}

uint32_t ThreadStacks::known_frame(const PythonPlace& place, uint32_t caller) {
  uint32_t& frame = frames_[{caller, place}];
  if (frame == 0) frame = new_frame(place, caller);
  return frame;
}

void ThreadStacks::look_for_module(const PythonFrame& frame) {
  const PythonFunction& function = *frame.place().function;
  is_inside_ = !function.runs_backward;
  if (function.calls_module) module_ = name_of_module(frame.self());
}

uint32_t ThreadStacks::frame_of_places(uint32_t caller) {
  for (auto place = places_.rbegin(); place != places_.rend(); ++place) {
    caller = known_frame(*place, caller);
    if (caller == 0) return 0;
  }
  return caller;
}

uint32_t ThreadStacks::label_of(const std::string& place, uint32_t innermost) {
  if (innermost == 0) return recorder_->label(place);
  uint32_t& number = labels_[innermost];
  if (number == 0) number = recorder_->label(place, innermost);
  return number;
}

uint32_t ThreadStacks::frame_of(const std::string& name, uint32_t caller) {
  if (!keeps_stacks) return 0;
  uint32_t& function = functions_[name];
  if (function == 0) function = recorder_->label(name);
  if (function == 0) return 0;
  uint32_t& frame = calls_[uint64_t{caller} << 32 | function];
  if (frame == 0) frame = recorder_->frame({.caller = caller, .function = function});
  return frame;
}

uint32_t ThreadStacks::frame_of_operators(uint32_t caller) {
  for (const std::string& name : Recorder::running_operators()) {
    if (caller != 0) caller = frame_of(name, caller);
  }
  return caller;
}

const SeenPlace& ThreadStacks::seen_place(uint32_t frame) {
  if (!keeps_stacks) return unkept_ = look_without_stack();
  if (frame == 0) return unkept_ = look_at(places_);
  const auto [found, added] = seen_.try_emplace(frame);
  if (added) found->second = look_at(places_);
  return found->second;
}

uint32_t ThreadStacks::new_frame(const PythonPlace& place, uint32_t caller) {
  const uint32_t file = recorder_->label(place.function->file);
  const uint32_t function = recorder_->label(place.function->qualified_name);
  if (file == 0 || function == 0) return 0;
  const auto line = static_cast<uint32_t>(std::max(0, line_of(place)));
  return recorder_->frame({.caller = caller, .file = file, .function = function, .line = line});
}

}  // namespace shardlens::profiler
