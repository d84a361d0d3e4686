// Stands for users' libraries that call functions that PyTorch does not.
extern "C" {

int cudaMallocManaged(void** address, unsigned long bytes, unsigned flags);
int cudaFree(void* address);
int cudaMemRangeGetAttribute(void* data, unsigned long bytes, int name, const void* address,
                             unsigned long of_bytes);
int cusparseSpMMOp();

int fill_managed_memory() {
  void* address = nullptr;
  if (cudaMallocManaged(&address, 1 << 20, 1) != 0) return -1;
  static_cast<char*>(address)[1 << 19] = 1;
  return cudaFree(address);
}

int call_what_is_not_supported() {
  return cudaMemRangeGetAttribute(nullptr, 0, 0, nullptr, 0) * 100 + cusparseSpMMOp();
}

void* PyInit_more_calls() { return nullptr; }

}  // extern "C"
