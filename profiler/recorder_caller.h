// Which library asked: the recorder attributes what the driver gives by the stack of the call.
#pragma once

#include <string_view>

namespace shardlens::profiler {

/// To be called once, outside of any callback: the first walk loads the unwinder.
void prepare_caller();

/// Inside a callback of CUPTI: the file name of the first library on the stack, or of the program,
/// that is neither our callback nor CUPTI, the CUDA driver or runtime, or the C and C++ runtimes.
/// Empty where there is none. Valid while that library is loaded. All threads may call; takes the
/// dynamic loader's lock.
std::string_view caller_of_driver();

}  // namespace shardlens::profiler
