#include "profiler/exchange/kineto/gpu_trace.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <istream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <streambuf>
#include <string_view>
#include <utility>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/shown.h"
#include "profiler/exchange/kineto/trace_memory.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::json;

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
  throw std::invalid_argument(fmt::format("{}: {}", shown(path), shown(why)));
}

/// Returns zlib's message without the name that zlib gives a file that it did not open itself.
std::string without_name(std::string_view message) {
  const size_t end = message.find(">: ");
  return std::string(end == message.npos ? message : message.substr(end + 3));
}

/// The text of a file, whether it is gzipped or not.
class TextSource : public std::streambuf {
 public:
  explicit TextSource(const std::string& path) {
    InputFile file(path);
    if (!file.is_open()) refuse(path, "it cannot be opened: " + *file.problem());
    file_ = ::gzdopen(file.release(), "rb");
    if (file_ == nullptr) throw std::bad_alloc();
    ::gzbuffer(file_, kChunk);
  }
  ~TextSource() override { ::gzclose_r(file_); }
  TextSource(const TextSource&) = delete;
  TextSource& operator=(const TextSource&) = delete;

  /// Returns why the text ends before its end; nothing if it is whole.
  const Problem& problem() const { return problem_; }

 protected:
  int_type underflow() override {
    if (bytes_ > kRecord.bytes) problem_ = "it is too large";
    const int count = problem_ ? 0 : ::gzread(file_, chunk_.data(), kChunk);
    int code = Z_OK;
    const char* const text = ::gzerror(file_, &code);
    if (code != Z_OK && code != Z_STREAM_END) problem_ = "it is damaged: " + without_name(text);
    if (count <= 0) return traits_type::eof();
    bytes_ += static_cast<uint64_t>(count);
    setg(chunk_.data(), chunk_.data(), chunk_.data() + count);
    return traits_type::to_int_type(chunk_[0]);
  }

 private:
  static constexpr unsigned kChunk = 1 << 16;
  gzFile file_ = nullptr;
  std::array<char, kChunk> chunk_{};
  uint64_t bytes_ = 0;
  Problem problem_;
};

/// Returns the kind of work of an event's category; nothing for what does not run on a GPU.
std::optional<GpuWork> work_of(std::string category, const std::string& name) {
  std::ranges::transform(category, category.begin(), [](char c) {
    return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  });
  if (category == "gpu_memcpy" || category == "memcpy") return GpuWork::copy;
  if (category == "gpu_memset" || category == "memset") return GpuWork::fill;
  if (category != "kernel") return std::nullopt;
  const bool is_collective = name.starts_with("nccl") || name.find("ncclDevKernel") != name.npos ||
                             name.find("ncclKernel") != name.npos;
  return is_collective ? GpuWork::collective : GpuWork::kernel;
}

int64_t ns_of(double us) {
  constexpr double kMost = 4e15;  // the year 2096, in microseconds
  return std::llround(std::clamp(us, -kMost, kMost) * 1000);
}

/// Takes the values of a trace as they are parsed. Of an event only the fields that are needed are
/// kept, so that a trace of many gigabytes needs no more memory than its work.
class TraceSax : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool /*value*/) override { return true; }
  bool number_integer(number_integer_t value) override {
    return number(static_cast<double>(value), value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    constexpr auto kMost = static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max());
    return number(static_cast<double>(value), static_cast<int64_t>(std::min(value, kMost)));
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    constexpr double kMost = 9e18;
    return number(value, static_cast<int64_t>(std::clamp(value, -kMost, kMost)));
  }
  bool string(string_t& value) override {
    if (depth_ != 3 || !in_events_) return true;
    if (key_ == "ph") event_.phase = value.empty() ? ' ' : value[0];
    if (key_ == "cat") event_.category = value;
    if (key_ == "name") event_.name = value;
    return true;
  }
  bool binary(binary_t& /*value*/) override { return true; }
  bool key(string_t& value) override {
    key_ = value;
    if (depth_ == 1) top_ = value;
    return true;
  }
  bool start_object(size_t /*count*/) override {
    if (++depth_ == 3 && in_events_) event_ = {};
    return is_shallow();
  }
  bool end_object() override {
    if (depth_-- == 3 && in_events_) take_event();
    return true;
  }
  bool start_array(size_t /*count*/) override {
    if (++depth_ == 2 && top_ == "traceEvents") in_events_ = has_events_ = true;
    return is_shallow();
  }
  bool end_array() override {
    if (depth_-- == 2) in_events_ = false;
    return true;
  }
  bool parse_error(size_t position, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    problem_ = fmt::format("it is not JSON from byte {} on", position);
    return false;
  }

  /// Returns the trace, or throws with the reason why it has nothing to show.
  GpuTrace finish(const std::string& path);
  const Problem& problem() const { return problem_; }

 private:
  /// The fields of the event that is being parsed.
  struct RawEvent {
    char phase = ' ';
    std::string category;
    std::string name;
    double us = 0;
    double duration_us = 0;
    int64_t process = 0;
    int64_t thread = 0;
    std::map<std::string, int64_t, std::less<>> numbers;  // of its arguments

    int64_t number(std::string_view key, int64_t otherwise) const {
      const auto at = numbers.find(key);
      return at == numbers.end() ? otherwise : at->second;
    }
  };

  bool is_shallow() {
    if (depth_ > static_cast<int>(kRecord.depth)) problem_ = "it is nested too deep";
    return depth_ <= static_cast<int>(kRecord.depth);
  }
  bool number(double value, int64_t whole) {
    if (depth_ == 1 && key_ == "baseTimeNanoseconds") start_realtime_ns_ = whole;
    if (depth_ == 2 && top_ == "distributedInfo" && key_ == "rank") {
      rank_ = static_cast<int32_t>(std::clamp<int64_t>(whole, 0, INT32_MAX));
    }
    if (!in_events_) return true;
    if (depth_ == 4) event_.numbers[key_] = whole;
    if (depth_ != 3) return true;
    if (key_ == "ts") event_.us = value;
    if (key_ == "dur") event_.duration_us = value;
    if (key_ == "pid") event_.process = whole;
    if (key_ == "tid") event_.thread = whole;
    return true;
  }
  uint32_t intern(const std::string& name) {
    const auto [at, is_new] = numbers_of_names_.try_emplace(name, names_.size());
    if (is_new) names_.push_back(name);
    return static_cast<uint32_t>(at->second);
  }
  void take_event();

  int depth_ = 0;
  std::string key_;
  std::string top_;
  bool in_events_ = false;
  bool has_events_ = false;
  RawEvent event_;
  std::vector<std::string> names_ = {""};
  std::map<std::string, size_t, std::less<>> numbers_of_names_ = {{"", 0}};
  std::map<std::pair<int64_t, int64_t>, std::vector<GpuSlice>> streams_;
  TraceMemory memory_;
  std::optional<int64_t> start_realtime_ns_;
  std::optional<int32_t> rank_;
  Problem problem_;
};

void TraceSax::take_event() {
  const int64_t begin_ns = ns_of(event_.us);
  const int64_t end_ns = begin_ns + std::max<int64_t>(0, ns_of(event_.duration_us));
  if (event_.phase == 'X') {
    if (const auto work = work_of(event_.category, event_.name)) {
      const int64_t device = event_.number("device", event_.process);
      const int64_t stream = event_.number("stream", event_.thread);
      streams_[{device, stream}].push_back({begin_ns, end_ns, intern(event_.name), *work});
    } else if (event_.category == "cpu_op") {
      memory_.take_operator(event_.thread, begin_ns, end_ns, intern(event_.name));
    } else if (event_.name.starts_with("ProfilerStep#")) {
      memory_.take_step(begin_ns, event_.name);
    }
  } else if (event_.name == "[memory]") {
    memory_.take({.time_ns = begin_ns,
                  .thread = event_.thread,
                  .address = static_cast<uint64_t>(event_.number("Addr", 0)),
                  .bytes = event_.number("Bytes", 0),
                  .total_bytes = event_.number("Total Allocated", -1),
                  .is_on_gpu = event_.number("Device Type", 0) != 0,
                  .device = event_.number("Device Id", 0)});
  }
}

GpuTrace TraceSax::finish(const std::string& path) {
  if (!has_events_) refuse(path, "it is not a trace of torch.profiler: it has no traceEvents");
  GpuTrace trace{.path = path, .start_realtime_ns = start_realtime_ns_, .rank = rank_};
  trace.begin_ns = INT64_MAX;
  trace.end_ns = INT64_MIN;
  const auto reach = [&](int64_t begin_ns, int64_t end_ns) {
    trace.begin_ns = std::min(trace.begin_ns, begin_ns);
    trace.end_ns = std::max(trace.end_ns, end_ns);
  };
  for (auto& [place, slices] : streams_) {
    std::ranges::stable_sort(slices, {}, &GpuSlice::begin_ns);
    for (const GpuSlice& slice : slices) reach(slice.begin_ns, slice.end_ns);
    trace.streams.push_back({place.first, place.second, std::move(slices)});
  }
  if (const auto range = memory_.range()) reach(range->first, range->second);
  if (trace.begin_ns > trace.end_ns) {
    refuse(path,
           "it has neither work on a GPU nor memory: profile with ProfilerActivity.CUDA, or "
           "with profile_memory=True");
  }
  // Traces of PyTorch before 2.4 count from 1970 and have no other beginning.
  constexpr int64_t kSince1970 = 100'000'000'000'000'000;  // 1973, in ns
  if (!start_realtime_ns_ && trace.begin_ns > kSince1970) trace.start_realtime_ns = 0;
  trace.memory = memory_.finish(names_, trace.begin_ns);
  if (trace.memory) {
    trace.memory->header.start_realtime_ns = trace.start_realtime_ns.value_or(0) + trace.begin_ns;
    trace.memory->header.rank = trace.rank.value_or(0);
  }
  trace.names = std::move(names_);
  return trace;
}

}  // namespace

bool is_gpu_trace(const std::string& path) {
  if (path.ends_with(".json.gz")) return true;
  if (!path.ends_with(".json")) return false;
  constexpr size_t kLooked = 1 << 16;  // the properties of many GPUs come first
  const InputFile file(path);
  std::string start(std::min<uint64_t>(kLooked, file.bytes()), '\0');
  if (!file.read_at(0, std::as_writable_bytes(std::span(start)))) return false;
  return start.find("\"traceEvents\"") != start.npos || start.find("\"traceName\"") != start.npos;
}

GpuTrace read_gpu_trace(const std::string& path) {
  TextSource source(path);
  std::istream text(&source);
  TraceSax sax;
  const bool is_whole = Json::sax_parse(text, &sax);
  if (source.problem()) refuse(path, *source.problem());
  if (!is_whole) refuse(path, sax.problem().value_or("it is not JSON"));
  return sax.finish(path);
}

}  // namespace shardlens::profiler
