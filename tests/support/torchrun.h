// PyTorch's own launcher, by a Python that has PyTorch (tests/support/pytorch).
#pragma once

#include <string>

#include "tests/support/launched_runs.h"
#include "tests/support/pytorch.h"

namespace shardlens::tests {

#define SKIP_WITHOUT_TORCHRUN() \
  if (run(python_with_pytorch({"-V"})).exit_code == kNoPyTorch) SKIP(kWithoutPyTorch)

/// The words before the command that each rank runs. `variables`: "NAME=value". Python may need the
/// null device's libraries; the ranks must not see them.
inline Words torchrun(const Words& flags, const Words& variables = {}) {
  return Words{"/usr/bin/env", "OMP_NUM_THREADS=1"} + variables +
         python_with_pytorch({"-m", "torch.distributed.run"}) + flags +
         Words{"--no-python", "/usr/bin/env", "-u", "LD_LIBRARY_PATH"};
}

/// One of `nodes` agents that meet on this machine's loopback.
inline Words torchrun_agent(int node, int nodes, const std::string& port, const Words& flags = {}) {
  return torchrun(Words{"--nnodes", std::to_string(nodes), "--node-rank", std::to_string(node)} +
                  Words{"--nproc-per-node", "1", "--master-addr", "127.0.0.1"} +
                  Words{"--master-port", port} + flags);
}

}  // namespace shardlens::tests
