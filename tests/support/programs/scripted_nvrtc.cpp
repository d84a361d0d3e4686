// An NVRTC that compiles nothing, which its status tells from the stub's.
extern "C" {

int nvrtcCompileProgram(void*, int, const char* const*) { return 42; }

}  // extern "C"
