// A libcuda.so.1 that is never called: its presence is checked before CUPTI is used.
extern "C" int cuDriverGetVersion(int* version) {
  *version = 0;
  return 0;
}
