// Declares what only the stub of NVRTC has.
#pragma once

extern "C" {
/// Lets the libnvrtc at this path compile from now on what NVIDIA's own cuDNN asks for; the first
/// call counts. Returns "", or why it cannot.
const char* shardlens_null_nvrtc(const char* path);
}
