// Returns the folder of the installation. This file is installed as source, and compiled into
// programs that link Shardlens::runtime.
extern "C" __attribute__((weak)) const char* shardlens_home() { return SHARDLENS_HOME; }
