#include <cstdint>

/// LibTorch's own call, which names the version 2.12.1.
extern "C" uint64_t aoti_torch_abi_version() {
  return uint64_t{2} << 56 | uint64_t{12} << 48 | uint64_t{1} << 40;
}
