// Reads which parameters the kernels of a module have. The module is NVIDIA's machine code, an ELF
// file ("cubin") as Triton hands it to the driver. With the parameters a launch can be asked which
// device memory it is given, and so may write. Standard library only.
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

/// Returns how many bytes the ELF file at `image` has, by its own tables, or 0 if no 64-bit ELF
/// file is there. The driver is given no size of a module, so a file's tables have to be trusted.
size_t bytes_of_elf(const void* image);

/// Returns the parameters of a module's kernels by the kernel's name. Left out is a kernel whose
/// parameters are not all described; nothing is returned of a damaged file.
std::map<std::string, ParameterSizes> parameters_of_kernels(std::span<const std::byte> file);

}  // namespace shardlens::profiler
