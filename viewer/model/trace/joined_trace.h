// A trace of torch.profiler under the memory of the same run: what ran on each stream of the GPU,
// in the time of a lane.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "profiler/exchange/kineto/gpu_trace.h"

namespace shardlens::viewer {

struct RankLane;
struct Run;

constexpr size_t kWorkKinds = kWords<profiler::GpuWork>.size();

/// Says how busy a stream is.
struct StreamUse {
  std::string name;                           // "stream 7"
  int64_t trace_ns = 0;                       // from the first work on any stream to the last
  std::array<int64_t, kWorkKinds> busy_ns{};  // by kind
  std::string at_moment;                      // the work that runs then; empty: none

  /// Returns "stream 7 is busy 63.0 % of 1.1 ms (kernel 60.0 %, copy 3.0 %), and runs gemm at the
  /// peak".
  std::string text() const;
};

/// The streams of a trace that have a row, in the time of a rank's lane. It can be copied: copies
/// share the trace.
class JoinedTrace {
 public:
  /// `shift_ns` is added to the times of the trace to make them the lane's.
  JoinedTrace(std::shared_ptr<const profiler::GpuTrace> trace, int64_t shift_ns);

  const std::vector<profiler::GpuStream>& streams() const { return trace_->streams; }
  size_t rows() const { return rows_.size(); }
  /// Returns "stream 7" and shorter names of a row; with the GPU if the rows are of several.
  std::vector<std::string> row_names(size_t row) const;
  /// Returns how many streams have no row.
  size_t left_out() const { return trace_->streams.size() - rows_.size(); }

  /// Returns how long each kind of work ran on a row between two times of the lane. Of more than a
  /// few slices, the kinds are sampled; their sum is exact.
  std::array<double, kWorkKinds> busy_between(size_t row, int64_t begin_ns, int64_t end_ns) const;

  /// A kernel, copy or fill in the time of the lane.
  struct Work {
    std::string name;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    profiler::GpuWork kind{};
  };
  /// Returns what runs on a row at a time, or else between two times; nothing if the row is idle.
  std::optional<Work> work_between(size_t row, int64_t begin_ns, int64_t end_ns) const;
  /// Returns the kinds that any row has, one bit each.
  uint32_t kinds() const { return kinds_; }
  /// Returns what each row does in the whole trace, and at a moment of the lane.
  std::vector<StreamUse> uses(int64_t moment_ns) const;

 private:
  struct Row {
    size_t stream = 0;
    std::vector<int64_t> busy_before_ns{};  // the sum of all earlier slices; one more than these
  };
  const std::vector<profiler::GpuSlice>& slices(size_t row) const {
    return trace_->streams[rows_[row].stream].slices;
  }

  std::shared_ptr<const profiler::GpuTrace> trace_;
  int64_t shift_ns_ = 0;
  std::vector<Row> rows_;
  bool has_devices_ = false;  // more than one
  uint32_t kinds_ = 0;
};

/// Returns the streams of a rank's trace, with what they run at the peak; none without a trace.
std::vector<StreamUse> streams_at_peak(const RankLane& rank);

/// Puts each trace under the ranks that were recorded while it was: of its own rank, if both say of
/// which they are. A trace that fits none leaves a message, except if it is open as a run itself.
void join_traces(std::vector<Run>& runs,
                 const std::vector<std::shared_ptr<const profiler::GpuTrace>>& traces,
                 std::vector<std::string>& messages);

}  // namespace shardlens::viewer
