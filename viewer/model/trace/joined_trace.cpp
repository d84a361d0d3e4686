#include "viewer/model/trace/joined_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "viewer/model/run.h"

namespace shardlens::viewer {

using profiler::GpuSlice;
using profiler::GpuStream;
using profiler::GpuTrace;

namespace {

constexpr size_t kMostRows = 4;
constexpr std::ptrdiff_t kMostSamples = 8;

int64_t length_of(const GpuSlice& slice) { return slice.end_ns - slice.begin_ns; }

int64_t busy_of(const GpuStream& stream) {
  return std::accumulate(stream.slices.begin(), stream.slices.end(), int64_t{0},
                         [](int64_t sum, const GpuSlice& slice) { return sum + length_of(slice); });
}

/// Returns the indices of the streams that are busy for longest, in their own order.
std::vector<size_t> busiest(const std::vector<GpuStream>& streams) {
  std::vector<std::pair<int64_t, size_t>> busy;
  for (size_t i = 0; i < streams.size(); ++i) busy.emplace_back(busy_of(streams[i]), i);
  std::ranges::stable_sort(busy, std::greater(), &std::pair<int64_t, size_t>::first);
  busy.resize(std::min(busy.size(), kMostRows));
  std::vector<size_t> chosen;
  for (const auto& [time_ns, index] : busy) chosen.push_back(index);
  std::ranges::sort(chosen);
  return chosen;
}

}  // namespace

JoinedTrace::JoinedTrace(std::shared_ptr<const GpuTrace> trace, int64_t shift_ns)
    : trace_(std::move(trace)), shift_ns_(shift_ns) {
  const std::vector<GpuStream>& streams = trace_->streams;
  for (const size_t index : busiest(streams)) {
    Row& row = rows_.emplace_back();
    row.stream = index;
    row.busy_before_ns.push_back(0);
    for (const GpuSlice& slice : streams[index].slices) {
      row.busy_before_ns.push_back(row.busy_before_ns.back() + length_of(slice));
      kinds_ |= 1U << static_cast<unsigned>(slice.work);
    }
    has_devices_ |= streams[index].device != streams[rows_.front().stream].device;
  }
}

std::vector<std::string> JoinedTrace::row_names(size_t row) const {
  const GpuStream& stream = trace_->streams[rows_[row].stream];
  const std::string number = has_devices_ ? fmt::format("{}:{}", stream.device, stream.number)
                                          : fmt::format("{}", stream.number);
  return {"stream " + number, "str. " + number, number};
}

std::array<double, kWorkKinds> JoinedTrace::busy_between(size_t row, int64_t begin_ns,
                                                         int64_t end_ns) const {
  begin_ns -= shift_ns_;
  end_ns -= shift_ns_;
  const std::vector<GpuSlice>& all = slices(row);
  const auto first = std::ranges::lower_bound(all, begin_ns, {}, &GpuSlice::begin_ns);
  const auto last = std::ranges::lower_bound(first, all.end(), end_ns, {}, &GpuSlice::begin_ns);
  std::array<double, kWorkKinds> busy{};
  const auto add = [&](const GpuSlice& slice, double ns) {
    busy[static_cast<size_t>(slice.work)] += std::max(0.0, ns);
  };
  if (first != all.begin()) {
    const GpuSlice& before = *(first - 1);
    add(before, static_cast<double>(std::min(before.end_ns, end_ns) - begin_ns));
  }
  if (first == last) return busy;
  std::array<double, kWorkKinds> sampled{};
  double all_sampled = 0;
  const auto stride = std::max<std::ptrdiff_t>(1, (last - first) / kMostSamples);
  for (auto at = first; at < last; at += std::min(stride, last - at)) {
    const auto ns = static_cast<double>(length_of(*at)) + 1e-3;
    sampled[static_cast<size_t>(at->work)] += ns;
    all_sampled += ns;
  }
  const auto index = [&](auto at) { return static_cast<size_t>(at - all.begin()); };
  const std::vector<int64_t>& before = rows_[row].busy_before_ns;
  const int64_t beyond = std::max<int64_t>(0, (last - 1)->end_ns - end_ns);
  const auto ns = static_cast<double>(before[index(last)] - before[index(first)] - beyond);
  for (size_t kind = 0; kind < kWorkKinds; ++kind) busy[kind] += ns * sampled[kind] / all_sampled;
  return busy;
}

std::optional<JoinedTrace::Work> JoinedTrace::work_between(size_t row, int64_t begin_ns,
                                                           int64_t end_ns) const {
  const std::vector<GpuSlice>& all = slices(row);
  const auto after = std::ranges::upper_bound(all, begin_ns - shift_ns_, {}, &GpuSlice::begin_ns);
  const auto work = [&](const GpuSlice& slice) {
    return Work{trace_->names[slice.name], slice.begin_ns + shift_ns_, slice.end_ns + shift_ns_,
                slice.work};
  };
  if (after != all.begin() && (after - 1)->end_ns >= begin_ns - shift_ns_) {
    return work(*(after - 1));
  }
  if (after != all.end() && after->begin_ns < end_ns - shift_ns_) return work(*after);
  return std::nullopt;
}

std::vector<StreamUse> JoinedTrace::uses(int64_t moment_ns) const {
  int64_t begin_ns = std::numeric_limits<int64_t>::max(), end_ns = 0;
  for (const GpuStream& stream : trace_->streams) {
    for (const GpuSlice& slice : stream.slices) {
      begin_ns = std::min(begin_ns, slice.begin_ns);
      end_ns = std::max(end_ns, slice.end_ns);
    }
  }
  std::vector<StreamUse> uses;
  for (size_t row = 0; row < rows(); ++row) {
    StreamUse& use = uses.emplace_back();
    use.name = row_names(row).front();
    use.trace_ns = end_ns - begin_ns;
    for (const GpuSlice& slice : slices(row)) {
      use.busy_ns[static_cast<size_t>(slice.work)] += length_of(slice);
    }
    if (const auto work = work_between(row, moment_ns, moment_ns)) use.at_moment = work->name;
  }
  return uses;
}

std::vector<StreamUse> streams_at_peak(const RankLane& rank) {
  if (rank.work == nullptr) return {};
  return rank.work->uses(rank.lane.time_of(rank.lane.peak().max_change));
}

std::string StreamUse::text() const {
  const double whole = std::max(1.0, static_cast<double>(trace_ns));
  const auto percent = [&](int64_t ns) {
    return fmt::format("{:.1f} %", 100 * static_cast<double>(ns) / whole);
  };
  std::string kinds;
  for (size_t kind = 0; kind < kWorkKinds; ++kind) {
    if (busy_ns[kind] == 0) continue;
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", kWords<profiler::GpuWork>[kind],
                         percent(busy_ns[kind]));
  }
  const int64_t busy = std::accumulate(busy_ns.begin(), busy_ns.end(), int64_t{0});
  return fmt::format("{} is busy {} of {:.1f} ms ({}){}", name, percent(busy), whole / 1e6, kinds,
                     at_moment.empty() ? "" : fmt::format(", and runs {} at the peak", at_moment));
}

namespace {

/// True if a rank was recorded while a trace was made, as far as both say of which rank they are.
bool is_of_trace(const RankLane& rank, const GpuTrace& trace) {
  const profiler::Header& header = rank.lane.info().header;
  const bool is_measured = header.start_realtime_ns > 0 && trace.start_realtime_ns;
  if (!is_measured || rank.path == trace.path) return false;
  const bool is_other_rank = header.world_size > 1 && trace.rank && *trace.rank != header.rank;
  const int64_t begin_ns = header.start_realtime_ns;
  const int64_t from_ns = *trace.start_realtime_ns + trace.begin_ns;
  const int64_t to_ns = *trace.start_realtime_ns + trace.end_ns;
  return !is_other_rank && from_ns <= begin_ns + rank.lane.info().end_ns && begin_ns <= to_ns;
}

void join(RankLane& rank, const std::shared_ptr<const GpuTrace>& trace, int64_t shift_ns) {
  if (!trace->streams.empty()) rank.work = std::make_shared<JoinedTrace>(trace, shift_ns);
}

/// Returns why a trace is under no memory.
std::string unjoined_text(const GpuTrace& trace, size_t ranks) {
  const std::string why =
      !trace.start_realtime_ns
          ? "it does not say when it was made, so its clock and that of a recording have no common "
            "time"
      : ranks > 1 ? "it does not say of which rank it is, and several were recorded then"
                  : "no recording or snapshot that is open was made at that time by its rank";
  return fmt::format(
      "{}: its kernels are not shown, since {}; open it with the recording or snapshot of the same "
      "process, or trace with profile_memory=True",
      trace.path, why);
}

}  // namespace

void join_traces(std::vector<Run>& runs, const std::vector<std::shared_ptr<const GpuTrace>>& traces,
                 std::vector<std::string>& messages) {
  for (const auto& trace : traces) {
    size_t joined = 0;
    size_t most = 0;  // ranks of one run that it may be of
    for (Run& run : runs) {
      std::vector<RankLane*> ranks;
      for (RankLane& rank : run.ranks) {
        if (rank.path == trace->path) {
          join(rank, trace, -trace->begin_ns);
          ++joined;
        } else if (is_of_trace(rank, *trace)) {
          ranks.push_back(&rank);
        }
      }
      most = std::max(most, ranks.size());
      if (ranks.size() != 1) continue;
      const int64_t start_ns = ranks.front()->lane.info().header.start_realtime_ns;
      join(*ranks.front(), trace, *trace->start_realtime_ns - start_ns);
      ++joined;
    }
    if (joined == 0) messages.push_back(unjoined_text(*trace, most));
  }
}

}  // namespace shardlens::viewer
