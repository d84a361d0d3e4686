// An NVRTC that compiles nothing; its status distinguishes it from the stub's.
extern "C" {

int nvrtcCompileProgram(void*, int, const char* const*) { return 42; }

}  // extern "C"
