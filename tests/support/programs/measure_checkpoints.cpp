// Measures how long a checkpoint of some GB takes to write and to read back, by W processes as
// ranks of a run do it, without LibTorch:
//
//     measure_checkpoints FOLDER RANKS MEGABYTES
//
// Writing ends when rank 0 has published it. Reading is what a resumed run does: the newest is
// chosen at a glance, each rank copies its part into its state, and rank 0 verifies every byte from
// the ranks' checksums. Between the two the files are dropped from the page cache, which tmpfs does
// not have. Prints one line of JSON; the folder is new and is left for the caller to remove.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/checkpoint/checkpoint_reader.h"
#include "runtime/checkpoint/checkpoint_store.h"
#include "runtime/checkpoint/checkpoint_writer.h"
#include "runtime/comm/board/shared_region.h"

namespace {

using namespace shardlens;
using Clock = std::chrono::steady_clock;

constexpr int64_t kTensors = 21, kColumns = 2080, kCopies = 3;  // a weight and two moments

/// Tensors like those of a model with wide layers.
runtime::FileLayout make_layout(int64_t megabytes) {
  models::ModelSpec spec;
  const int64_t rows = (megabytes << 20) / (4 * kCopies * kTensors * kColumns);
  for (int64_t i = 0; i < kTensors; ++i) {
    spec.parameters.push_back(
        {.name = fmt::format("layer{}.weight", i), .shape = {rows, kColumns}});
  }
  return runtime::checkpoint_layout(
      spec, std::vector<std::vector<std::string>>(kTensors, {"exp_avg", "exp_avg_sq"}));
}

/// A rank's rows of all tensors, each in its own memory.
class State {
 public:
  State(const runtime::FileLayout& layout, int rank, int ranks) {
    for (const auto& tensors : layout.parameters) {
      for (const runtime::PlacedTensor& tensor : tensors) {
        const int64_t begin = tensor.numel() * rank / ranks,
                      end = tensor.numel() * (rank + 1) / ranks;
        names_.push_back(tensor.name);
        parts_.emplace_back(static_cast<size_t>(end - begin));
        for (size_t i = 0; i < parts_.back().size(); ++i) {
          parts_.back()[i] = static_cast<float>(i * 2654435761U % 1000) + static_cast<float>(rank);
        }
        begin_bytes_.push_back(4 * begin);
        ranges_.push_back({tensor.file, tensor.offset_bytes + 4 * begin,
                           std::as_bytes(std::span(parts_.back()))});
      }
    }
  }

  const std::vector<runtime::FileRange>& ranges() const { return ranges_; }

  void restore(runtime::CheckpointReader& reader) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      reader.read(names_[i], begin_bytes_[i], std::as_writable_bytes(std::span(parts_[i])));
    }
  }

 private:
  std::vector<std::string> names_;
  std::vector<std::vector<float>> parts_;
  std::vector<int64_t> begin_bytes_;
  std::vector<runtime::FileRange> ranges_;
};

/// Ranks and their parent meet here, in shared memory.
struct Meeting {
  std::atomic<int> arrived[4];

  void meet(int which, int all) {
    ++arrived[which];
    while (arrived[which] < all) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};

[[noreturn]] void be_rank(Meeting& meeting, const runtime::CheckpointWriterOptions& options,
                          const runtime::FileLayout& layout) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  const int all = options.world_size + 1;
  try {
    State state(layout, options.rank, options.world_size);
    meeting.meet(0, all);
    write_checkpoint(options, layout, {.ranges = state.ranges(), .progress = {}},
                     {.step = 1, .configuration = "{}"});
    meeting.meet(1, all);
    meeting.meet(2, all);
    runtime::CheckpointReader reader(options.store.list().back().path);
    state.restore(reader);
    reader.verify({.rank = options.rank,
                   .world_size = options.world_size,
                   .folder = options.store.being_read(1),
                   .patience = {.deadline = options.deadline}});
    meeting.meet(3, all);
  } catch (const std::exception& error) {
    fmt::print(stderr, "rank {}: {}\n", options.rank, error.what());
    ::_exit(1);
  }
  ::_exit(0);
}

/// Synced pages are dropped at once if nothing maps them.
void drop_from_cache(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const int file = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
    ::close(file);
  }
}

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

int run(const std::string& folder, int ranks, int64_t megabytes) {
  const runtime::FileLayout layout = make_layout(megabytes);
  const auto region = runtime::SharedRegion::create(4096);
  auto& meeting = *new (region.data()) Meeting;
  const runtime::CheckpointStore store(folder);
  for (int rank = 0; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    be_rank(meeting,
            {.store = store,
             .wanted = {.wanted = true},
             .rank = rank,
             .world_size = ranks,
             .deadline = std::chrono::seconds(300)},
            layout);
  }
  meeting.meet(0, ranks + 1);
  auto start = Clock::now();
  meeting.meet(1, ranks + 1);
  const double write_s = seconds_since(start);
  const auto path = store.list().back().path;
  drop_from_cache(path);
  start = Clock::now();
  if (!store.newest_checkpoint(runtime::Look::sizes).found)
    throw std::runtime_error("nothing was published");
  meeting.meet(2, ranks + 1);
  meeting.meet(3, ranks + 1);
  fmt::print("{{\"bytes\": {}, \"write_s\": {:.3f}, \"read_s\": {:.3f}}}\n", layout.bytes(),
             write_s, seconds_since(start));
  while (::wait(nullptr) > 0) {
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return fmt::print(stderr, "measure_checkpoints FOLDER RANKS MEGABYTES\n"), 2;
  try {
    return run(argv[1], std::atoi(argv[2]), std::atoll(argv[3]));
  } catch (const std::exception& error) {
    return fmt::print(stderr, "measure_checkpoints: {}\n", error.what()), 1;
  }
}
