// A libcuda.so.1 that nobody calls: it is looked for before CUPTI is used.
extern "C" int cuDriverGetVersion(int* version) {
  *version = 0;
  return 0;
}
