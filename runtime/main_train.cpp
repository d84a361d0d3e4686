#include "runtime/runtime.h"

int main(int argc, char** argv) { return shardlens::runtime::train({argv + 1, argv + argc}); }
