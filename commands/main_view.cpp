#include "base/process/program.h"
#include "viewer/app/viewer.h"

int main(int argc, char** argv) {
  return shardlens::run_program("shardlens view", [&] {
    return shardlens::viewer::run_viewer({argv + 1, argv + argc});
  });
}
