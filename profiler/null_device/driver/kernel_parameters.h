// Reads which parameters the kernels of a module have. The module is NVIDIA's machine code, an ELF
// file ("cubin") as Triton hands it to the driver. The parameters tell which device memory a launch
// is given, and so may write. Standard library only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace shardlens::profiler {

/// Holds the bytes of each parameter of a kernel, in the order of its arguments.
using ParameterSizes = std::vector<uint32_t>;

/// Returns how many bytes the ELF file at `image` has, by its own tables, or 0 if it is not a
/// 64-bit ELF file. The driver does not get a module's size, so a file's tables have to be trusted.
size_t bytes_of_elf(const void* image);

/// Returns the parameters of a module's kernels by the kernel's name. A kernel is left out if its
/// parameters are not all described; a damaged file has no kernels.
std::map<std::string, ParameterSizes> parameters_of_kernels(std::span<const std::byte> file);

}  // namespace shardlens::profiler
