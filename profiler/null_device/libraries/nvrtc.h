// Declares functions that only the stub of NVRTC has.
#pragma once

extern "C" {
/// Makes the libnvrtc at this path compile for NVIDIA's own cuDNN from now on; only the first call
/// counts. Returns "", or why it cannot.
const char* shardlens_null_nvrtc(const char* path);
}
