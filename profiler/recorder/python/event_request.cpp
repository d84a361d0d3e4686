#include "profiler/recorder/python/event_request.h"

#include <dlfcn.h>

namespace shardlens::profiler {

namespace {

EventRequest& the_request() {
  static auto& only = *new EventRequest();
  return only;
}

std::string& the_fault() {
  static auto& only = *new std::string();
  return only;
}

}  // namespace

void set_event_request(const EventRequest& request) { the_request() = request; }

EventTimes* follow_requested_events() {
  const EventRequest& request = the_request();
  void* const library = ::dlopen(request.library.c_str(), RTLD_NOW | RTLD_LOCAL);
  const auto begin = library == nullptr ? nullptr
                                        : reinterpret_cast<decltype(&shardlens_event_times)>(
                                              ::dlsym(library, "shardlens_event_times"));
  if (begin == nullptr) {
    the_fault() = ::dlerror();
    return nullptr;
  }
  const char* why = "";
  EventTimes* const times =
      begin(request.recording.c_str(), request.gpu.c_str(), request.calibration.c_str(), &why);
  if (times == nullptr) the_fault() = why;
  return times;
}

const std::string& event_fault() { return the_fault(); }

}  // namespace shardlens::profiler
