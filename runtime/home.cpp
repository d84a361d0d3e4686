// Installed as it is, and compiled into programs that link Shardlens::runtime: where Shardlens
// lies.
extern "C" __attribute__((weak)) const char* shardlens_home() { return SHARDLENS_HOME; }
