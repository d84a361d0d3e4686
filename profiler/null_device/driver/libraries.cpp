// Defines the driver's calls with which cuDNN links and loads what it has compiled: each succeeds,
// and every library has every kernel. If one failed, cuDNN would silently take another kernel than
// on a GPU, and ask for another workspace.
#include <cuda.h>

// cuDNN asks for some calls by their original names, which the header replaces.
#undef cuLinkCreate

namespace {

/// Stands for everything that is linked and loaded: it is never read.
int a_thing = 0;

template <class Handle>
CUresult give(Handle* handle) {
  *handle = reinterpret_cast<Handle>(&a_thing);
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {

// ---- linking ------------------------------------------------------------------------------------

CUresult cuLinkCreate(unsigned, CUjit_option*, void**, CUlinkState* state) { return give(state); }
CUresult cuLinkCreate_v2(unsigned, CUjit_option*, void**, CUlinkState* state) {
  return give(state);
}

CUresult cuLinkComplete(CUlinkState, void** program, size_t* bytes) {
  *bytes = sizeof a_thing;
  return give(program);
}

// ---- loading ------------------------------------------------------------------------------------

CUresult cuLibraryLoadData(CUlibrary* library, const void*, CUjit_option*, void**, unsigned,
                           CUlibraryOption*, void**, unsigned) {
  return give(library);
}

CUresult cuLibraryLoadFromFile(CUlibrary* library, const char*, CUjit_option*, void**, unsigned,
                               CUlibraryOption*, void**, unsigned) {
  return give(library);
}

CUresult cuLibraryGetModule(CUmodule* module, CUlibrary) { return give(module); }
CUresult cuLibraryGetKernel(CUkernel* kernel, CUlibrary, const char*) { return give(kernel); }

CUresult cuLibraryGetGlobal(CUdeviceptr* address, size_t* bytes, CUlibrary, const char*) {
  if (address != nullptr) *address = 0;
  if (bytes != nullptr) *bytes = 0;
  return CUDA_SUCCESS;
}

CUresult cuKernelGetFunction(CUfunction* function, CUkernel) { return give(function); }

CUresult cuKernelGetAttribute(int* value, CUfunction_attribute name, CUkernel, CUdevice) {
  return cuFuncGetAttribute(value, name, nullptr);
}

CUresult cuModuleLoadFatBinary(CUmodule* module, const void*) { return give(module); }

CUresult cuModuleGetGlobal(CUdeviceptr* address, size_t* bytes, CUmodule, const char* name) {
  return cuLibraryGetGlobal(address, bytes, nullptr, name);
}

// ---- asking -------------------------------------------------------------------------------------

CUresult cuStreamGetGreenCtx(CUstream, CUgreenCtx* context) {
  *context = nullptr;  // the stream has an ordinary one
  return CUDA_SUCCESS;
}

CUresult cuStreamGetCtx(CUstream, CUcontext* context) { return cuCtxGetCurrent(context); }

CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction, const CUlaunchConfig*) {
  *size = 8;  // the largest that every kernel may have
  return CUDA_SUCCESS;
}

CUresult cuGetErrorName(CUresult error, const char** text) { return cuGetErrorString(error, text); }

}  // extern "C"
