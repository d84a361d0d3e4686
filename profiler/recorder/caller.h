// Finds the library that asked the driver for memory, from the stack of the call.
#pragma once

#include <string_view>

namespace shardlens::profiler {

/// Loads the unwinder by walking a stack for the first time. Must be called once, outside of any
/// callback.
void prepare_caller();

/// Returns the file name of the first library on the stack, or of the program, that is neither our
/// callback nor CUPTI, the CUDA driver or runtime, or the C and C++ runtimes. Call it inside a
/// callback of CUPTI. Returns an empty text if there is none; the text is valid while that library
/// is loaded. All threads may call; takes the dynamic loader's lock.
std::string_view caller_of_driver();

}  // namespace shardlens::profiler
