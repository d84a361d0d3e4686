// W processes write checkpoints of a small model in parallel, as ranks do, without LibTorch:
//
//     write_checkpoints FOLDER RANKS LAST_STEP KEEP
//
// FOLDER is in the folder of a run. Existing checkpoints are resumed from; the state of a step only
// depends on the step. Ends with 1 when a rank has died, after ending the others, as the launcher
// does.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/small_checkpoint.h"

namespace {

using namespace shardlens;

[[noreturn]] void be_rank(const runtime::CheckpointWriterOptions& options, int64_t first,
                          int64_t last) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    for (int64_t step = first; step <= last; ++step) tests::write_small_checkpoint(options, step);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d: %s\n", options.rank, error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

}  // namespace

int main(int, char** argv) {
  const std::filesystem::path folder = argv[1];
  const runtime::CheckpointStore store(folder, runtime::Fence::begin(folder.parent_path()));
  const int ranks = std::atoi(argv[2]);
  const int64_t last = std::atoll(argv[3]);
  const planner::Checkpointing wanted{.wanted = true, .keep = std::atoll(argv[4])};
  const auto newest = store.newest_checkpoint();
  store.take_over(newest, wanted);
  const int64_t first = newest.found ? newest.found->step + 1 : 1;
  std::vector<pid_t> pids;
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) {
      be_rank({.store = store,
               .wanted = wanted,
               .rank = rank,
               .world_size = ranks,
               .deadline = std::chrono::seconds(20)},
              first, last);
    }
    pids.push_back(pid);
  }
  bool failed = false;
  for (int ended = 0; ended < ranks; ++ended) {
    int status = 0;
    ::wait(&status);
    if (status == 0 || std::exchange(failed, true)) continue;
    for (const pid_t pid : pids) ::kill(pid, SIGKILL);
  }
  return failed ? 1 : 0;
}
