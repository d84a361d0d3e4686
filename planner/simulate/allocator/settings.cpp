#include "planner/simulate/allocator/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/nearest.h"

namespace shardlens::planner {

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr uint64_t kMostMiB = uint64_t{1} << 42;
constexpr uint64_t kSmallestLargeSegmentMiB = 11;
constexpr uint64_t kMostRegisterThreads = 128;

[[noreturn]] void refuse(const std::string& what, const std::string& how) {
  throw std::invalid_argument("PYTORCH_CUDA_ALLOC_CONF: " + what + "; " + how);
}

bool is_punctuation(char c) { return c == ',' || c == ':' || c == '[' || c == ']'; }

std::vector<std::string> tokens_of(std::string_view text) {
  std::vector<std::string> tokens;
  bool in_word = false;
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;  // also inside a word
    if (!in_word || is_punctuation(c)) tokens.emplace_back();
    tokens.back() += c;
    in_word = !is_punctuation(c);
  }
  return tokens;
}

/// Reads the settings. LibTorch reads the text twice, and skips keys that only the other reading
/// knows.
class SettingsReader {
 public:
  using Handler = size_t (SettingsReader::*)(size_t key);  // returns where the value ends

  SettingsReader(std::vector<std::string> tokens, AllocatorSettings& settings)
      : tokens_(std::move(tokens)), settings_(settings) {}

  void read() {
    read_large_segment();
    settings_.max_non_split_rounding_bytes = settings_.large_segment_bytes;
    read_keys(common_keys(), cuda_keys());
    read_keys(cuda_keys(), common_keys());
  }

 private:
  using Keys = std::map<std::string, Handler, std::less<>>;

  static const Keys& common_keys() {
    static const Keys keys = {
        {"expandable_segments", &SettingsReader::read_expandable},
        {"garbage_collection_threshold", &SettingsReader::read_threshold},
        {"large_segment_size_mb", &SettingsReader::skip},
        {"max_non_split_rounding_mb", &SettingsReader::read_non_split_rounding},
        {"max_split_size_mb", &SettingsReader::read_max_split},
        {"pinned_use_background_threads", &SettingsReader::check_flag},
        {"roundup_power2_divisions", &SettingsReader::read_roundup},
    };
    return keys;
  }

  static const Keys& cuda_keys() {
    static const Keys keys = {
        {"backend", &SettingsReader::check_backend},
        {"graph_capture_record_stream_reuse", &SettingsReader::check_flag},
        {"per_process_memory_fraction", &SettingsReader::read_fraction},
        {"pinned_num_register_threads", &SettingsReader::check_register_threads},
        {"pinned_reserve_segment_size_mb", &SettingsReader::check_reserve_segment},
        {"pinned_use_cuda_host_register", &SettingsReader::check_flag},
        {"pinned_use_hip_host_register", &SettingsReader::check_flag},
        {"release_lock_on_cudamalloc", &SettingsReader::check_flag},
        {"release_lock_on_hipmalloc", &SettingsReader::check_flag},
    };
    return keys;
  }

  void read_keys(const Keys& keys, const Keys& others) {
    for (size_t i = 0; i < tokens_.size(); i += 2) {  // past the value and the separator
      const auto found = keys.find(tokens_[i]);
      if (found != keys.end()) {
        i = (this->*found->second)(i);
      } else {
        if (!others.contains(tokens_[i])) refuse_key(tokens_[i]);
        i = skip(i);
      }
    }
  }

  /// Reads this key first, wherever it is in the text, since other sizes must not be smaller.
  void read_large_segment() {
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (tokens_[i] != "large_segment_size_mb") continue;
      settings_.large_segment_bytes = mib(i, kSmallestLargeSegmentMiB);
      i += 2;
    }
  }

  [[noreturn]] static void refuse_key(const std::string& key) {
    struct Name {
      std::string_view name;
    };
    std::vector<Name> names;
    for (const Keys* keys : {&common_keys(), &cuda_keys()}) {
      for (const auto& entry : *keys) names.push_back({entry.first});
    }
    refuse(key + ": no such key", fmt::format("did you mean {}?", nearest_named(names, key).name));
  }

  const std::string& token(size_t i) const {
    if (i >= tokens_.size()) {
      refuse(tokens_.back() + ": the text ends where more must follow",
             "write key:value,key:value");
    }
    return tokens_[i];
  }

  std::string pair(size_t key) const { return tokens_[key] + ":" + token(key + 2); }

  uint64_t number(size_t i) const {
    try {
      return std::stoull(token(i));
    } catch (const std::logic_error&) {  // invalid_argument, out_of_range
      refuse(token(i) + ": not a whole number of 64 bits", "give one");
    }
  }

  double real(size_t i) const {
    try {
      return std::stod(token(i));
    } catch (const std::logic_error&) {
      refuse(token(i) + ": not a number", "give one, such as 0.8");
    }
  }

  bool flag(size_t key) const {
    const std::string& text = token(key + 2);
    if (text != "True" && text != "False") {
      refuse(pair(key) + ": neither True nor False", "give one of them, written so");
    }
    return text == "True";
  }

  int64_t mib(size_t key, uint64_t least) const {
    const uint64_t value = number(key + 2);
    if (value < least) {
      refuse(fmt::format("{}: too small", pair(key)), fmt::format("give {} or more", least));
    }
    return static_cast<int64_t>(std::min(value, kMostMiB)) * kMiB;
  }

  uint64_t large_segment_mib() const {
    return static_cast<uint64_t>(settings_.large_segment_bytes / kMiB);
  }

  size_t skip(size_t key) {
    if (token(key + 2) != "[") return key + 2;
    for (size_t i = key + 3; i < tokens_.size(); ++i) {
      if (tokens_[i] == "]") return i;
    }
    refuse(tokens_[key] + ":[: the list has no end", "close it with ]");
  }

  size_t read_expandable(size_t key) {
    settings_.expandable_segments = flag(key);
    return key + 2;
  }

  size_t read_max_split(size_t key) {
    settings_.max_split_bytes = mib(key, large_segment_mib());
    return key + 2;
  }

  size_t read_non_split_rounding(size_t key) {
    settings_.max_non_split_rounding_bytes = mib(key, large_segment_mib());
    return key + 2;
  }

  size_t read_threshold(size_t key) {
    const double value = real(key + 2);
    if (!(value > 0 && value < 1)) {
      refuse(pair(key) + ": not a part of the memory allowed", "give more than 0 and less than 1");
    }
    settings_.garbage_collection_threshold = value;
    return key + 2;
  }

  size_t read_fraction(size_t key) {
    const double value = real(key + 2);
    if (!(value >= 0 && value <= 1)) {
      refuse(pair(key) + ": not a part of the device's memory", "give 0 to 1");
    }
    settings_.memory_fraction = value;
    return key + 2;
  }

  size_t read_roundup(size_t key) {
    auto& divisions = settings_.roundup_divisions;
    if (token(key + 2) == "[") return read_roundup_list(key);
    const uint64_t value = number(key + 2);
    if (!std::has_single_bit(value)) {
      refuse(pair(key) + ": not a power of two", "give 1, 2, 4, 8, ...");
    }
    divisions.fill(value);
    return key + 2;
  }

  size_t read_roundup_list(size_t key) {
    size_t i = key + 3;
    size_t last = 0;
    for (bool is_first = true; token(i) != "]"; i = token(i + 3) == "]" ? i + 3 : i + 4) {
      const uint64_t value = number(i + 2);
      if (value != 0 && !std::has_single_bit(value)) {
        refuse(fmt::format("{}: {} divisions: not a power of two", tokens_[key], value),
               "give 0, 1, 2, 4, 8, ...");
      }
      auto& divisions = settings_.roundup_divisions;
      if (tokens_[i] == ">") {
        std::fill(divisions.begin() + static_cast<ptrdiff_t>(last) + 1, divisions.end(), value);
        continue;
      }
      last = interval_from(key, number(i));
      if (is_first) std::fill_n(divisions.begin(), last, value);
      divisions[last] = value;
      is_first = false;
    }
    return i;
  }

  size_t interval_from(size_t key, uint64_t from_mib) const {
    if (!std::has_single_bit(from_mib)) {
      refuse(fmt::format("{}: from {} MiB: not a power of two", tokens_[key], from_mib),
             "give 1, 2, 4, ..., 32768");
    }
    const auto interval = static_cast<size_t>(std::countr_zero(from_mib));
    return std::min(interval, AllocatorSettings::kRoundupIntervals - 1);
  }

  size_t check_flag(size_t key) {
    flag(key);
    return key + 2;
  }

  size_t check_backend(size_t key) {
    if (token(key + 2) != "native") {
      refuse(pair(key) + ": not the allocator that is modelled",
             "leave the key out, or give backend:native");
    }
    return key + 2;
  }

  size_t check_register_threads(size_t key) {
    const uint64_t value = number(key + 2);
    if (!std::has_single_bit(value) || value > kMostRegisterThreads) {
      refuse(pair(key) + ": not a power of two up to 128", "give 1, 2, 4, ..., 128");
    }
    return key + 2;
  }

  size_t check_reserve_segment(size_t key) {
    if (number(key + 2) == 0) refuse(pair(key) + ": too small", "give 1 or more");
    return key + 2;
  }

  std::vector<std::string> tokens_;
  AllocatorSettings& settings_;
};

}  // namespace

AllocatorSettings parse_allocator_settings(std::string_view text) {
  AllocatorSettings settings;
  SettingsReader(tokens_of(text), settings).read();
  return settings;
}

AllocatorSettings with_rules(AllocatorSettings settings, const models::TorchRules& torch) {
  settings.rounds_memory_fraction = torch.rounds_memory_fraction;
  settings.free_block_order = torch.free_block_order;
  return settings;
}

}  // namespace shardlens::planner
