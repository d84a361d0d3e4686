#include "runtime/infer_command.h"

int main(int argc, char** argv) {
  return shardlens::runtime::infer_command({argv + 1, argv + argc});
}
