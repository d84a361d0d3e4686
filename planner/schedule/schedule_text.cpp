// Writes and reads the text form of a schedule. A line is a keyword (or an action's id) and fields
// key=value; names stand for indices, and only fields that say something are written.
//
//   schedule 1 strategy=fsdp world=2 shards=2
//   unit 0 embed
//   group 0 embed
//   bucket group=embed index=0 dtype=fp32 numel=8736 parameters=1@0+128,...
//   slot U0 dtype=fp32 bytes=398336
//   0 CAST_SHARD group=embed stream=gather writes=U0 bytes=17472
//
// A parameter of a bucket is parameter@offset+numel. repeat=120+60*9997 in the first line: the 60
// actions from 120 on are done 9997 times, so the line after the last of them has a later id.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <utility>

#include "planner/schedule/schedule.h"

namespace shardlens::planner {
namespace {

constexpr int kVersion = 2;

constexpr std::array kDTypes = {DType::fp32, DType::bf16, DType::fp16};
constexpr std::array kStrategies = {StrategyKind::single, StrategyKind::ddp, StrategyKind::fsdp,
                                    StrategyKind::hsdp};
constexpr std::array kOffloads = {Offload::none, Offload::params, Offload::optimizer, Offload::all};
constexpr std::array kAllStreams = {Stream::main, Stream::gather, Stream::reduce, Stream::replicate,
                                    Stream::h2d,  Stream::d2h,    Stream::host};
constexpr std::array kChannels = {Channel::none, Channel::gather, Channel::reduce,
                                  Channel::regather, Channel::replicate};
constexpr std::array kKinds = {
    ActionKind::load_input,     ActionKind::cast_shard, ActionKind::all_gather,
    ActionKind::reshard,        ActionKind::forward,    ActionKind::loss,
    ActionKind::recompute,      ActionKind::backward,   ActionKind::reduce_scatter,
    ActionKind::all_reduce,     ActionKind::accumulate, ActionKind::clip,
    ActionKind::optimizer_step, ActionKind::h2d,        ActionKind::d2h};

std::string_view word_of(Stream stream) {
  switch (stream) {
    case Stream::main:
      return "main";
    case Stream::gather:
      return "gather";
    case Stream::reduce:
      return "reduce";
    case Stream::replicate:
      return "replicate";
    case Stream::h2d:
      return "h2d";
    case Stream::d2h:
      return "d2h";
    case Stream::host:
      return "host";
  }
  return "?";
}

std::string_view word_of(Channel channel) {
  switch (channel) {
    case Channel::none:
      return "none";
    case Channel::gather:
      return "gather";
    case Channel::reduce:
      return "reduce";
    case Channel::regather:
      return "regather";
    case Channel::replicate:
      return "replicate";
  }
  return "?";
}

// ---- writing ----------------------------------------------------------------------------------

/// Returns the name at `index`, or "?" and the index if there is none, since error messages show
/// broken schedules too.
template <typename List, typename Name>
std::string name_at(const List& list, int index, Name name) {
  if (index < 0 || static_cast<size_t>(index) >= list.size()) return fmt::format("?{}", index);
  return std::string(std::invoke(name, list[static_cast<size_t>(index)]));
}

std::string slot_names(const Schedule& schedule, const std::vector<int>& slots) {
  std::vector<std::string> names;
  for (const int slot : slots) names.push_back(name_at(schedule.slots, slot, &Slot::name));
  return fmt::format("{}", fmt::join(names, ","));
}

/// Appends a field in its column; the column stays blank if the value is empty.
void append_field(std::string& line, std::string_view key, const std::string& value, size_t width) {
  const std::string field = value.empty() ? "" : fmt::format("{}={}", key, value);
  line += fmt::format(" {:<{}}", field, width);
}

/// Returns a value as text, or nothing where it says nothing.
template <typename Value>
std::string text_unless(bool empty, const Value& value) {
  return empty ? std::string() : fmt::format("{}", value);
}

/// A field of an action's line; `width` is that of its column.
struct ObjectField {
  std::string_view key;
  std::string value;
  size_t width = 0;
};

/// Returns the fields that say what an action works on.
std::vector<ObjectField> object_fields(const Schedule& schedule, const Action& action, int id) {
  std::vector<ObjectField> fields = {
      {"unit", action.unit == -1 ? "" : name_at(schedule.units, action.unit, std::identity()), 16},
      {"group", action.group == -1 ? "" : name_at(schedule.groups, action.group, &Group::name), 13},
      {"bucket", text_unless(action.bucket == -1, action.bucket), 8}};
  if (schedule.microbatches > 1) {
    fields.push_back({"microbatch", fmt::format("{}", schedule.microbatch_of(id)), 13});
  }
  return fields;
}

std::string bucket_line(const Group& group, int index, const Bucket& bucket) {
  std::vector<std::string> parameters;
  for (const BucketEntry& entry : bucket.entries) {
    parameters.push_back(fmt::format("{}@{}+{}", entry.parameter, entry.offset, entry.numel));
  }
  return fmt::format("bucket group={} index={} dtype={} numel={}{}{} parameters={}\n", group.name,
                     index, to_string(bucket.dtype), bucket.numel, bucket.whole ? " whole=1" : "",
                     bucket.frozen ? " frozen=1" : "", fmt::join(parameters, ","));
}

// ---- reading ----------------------------------------------------------------------------------

/// Quotes a word, which may consist of any bytes, for a message.
std::string quoted(std::string_view word) {
  constexpr size_t kMaxShown = 40;
  std::string shown(word.substr(0, kMaxShown));
  for (char& letter : shown) {
    if (letter < ' ' || letter > '~') letter = '?';
  }
  return fmt::format("'{}'", shown);
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  while (true) {
    const size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) return parts;
    text.remove_prefix(end + 1);
  }
}

/// Reads one line: its words, then its fields, each of which must be asked for.
class Line {
 public:
  Line(std::string_view text, int number) : number_(number) {
    for (const std::string_view token : split(text, ' ')) {
      if (token.empty()) continue;
      const size_t equals = token.find('=');
      if (equals == std::string_view::npos) {
        words_.push_back(token);
      } else if (!fields_.emplace(token.substr(0, equals), token.substr(equals + 1)).second) {
        fail("field {} appears twice", quoted(token.substr(0, equals)));
      }
    }
    if (words_.empty()) fail("no keyword");
  }

  template <typename... Parts>
  [[noreturn]] void fail(fmt::format_string<Parts...> rule, Parts&&... parts) const {
    throw std::invalid_argument(fmt::format("schedule text, line {}: {}", number_,
                                            fmt::format(rule, std::forward<Parts>(parts)...)));
  }

  void expect_words(size_t count) const {
    if (words_.size() != count) fail("{} words where {} belong", words_.size(), count);
  }
  std::string_view word(size_t index) const { return words_.at(index); }

  std::optional<std::string_view> optional_field(std::string_view key) {
    const auto found = fields_.find(key);
    if (found == fields_.end()) return std::nullopt;
    const std::string_view value = found->second;
    fields_.erase(found);
    if (value.empty()) fail("field {} is empty", key);
    return value;
  }

  std::string_view field(std::string_view key) {
    const auto value = optional_field(key);
    if (!value) fail("field {} is missing", key);
    return *value;
  }

  void expect_no_more_fields() const {
    if (!fields_.empty()) fail("unknown field {}", quoted(fields_.begin()->first));
  }

  template <typename Number>
  Number number(std::string_view text) const {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < 0) {
      fail("{} is not a number in range", quoted(text));
    }
    return value;
  }

  template <typename Choices, typename Word>
  auto choice(std::string_view text, const Choices& choices, Word word) const {
    for (const auto one : choices) {
      if (word(one) == text) return one;
    }
    fail("unknown word {}", quoted(text));
  }

 private:
  int number_;
  std::vector<std::string_view> words_;
  std::map<std::string_view, std::string_view> fields_;
};

/// Finds the index that an earlier line has given to a name.
class Names {
 public:
  void add(const Line& line, std::string_view name) {
    if (name.empty()) line.fail("an empty name");
    const auto index = static_cast<int>(indices_.size());
    if (!indices_.emplace(name, index).second) line.fail("{} appears twice", quoted(name));
  }
  int find(const Line& line, std::string_view name) const {
    const auto found = indices_.find(name);
    if (found == indices_.end()) line.fail("{} is not known", quoted(name));
    return found->second;
  }

 private:
  std::map<std::string, int, std::less<>> indices_;
};

class Parser {
 public:
  Schedule parse(std::string_view text);

 private:
  void read_line(Line line);
  void read_schedule(Line& line);
  void read_unit(Line& line);
  void read_group(Line& line);
  void read_bucket(Line& line);
  void read_slot(Line& line);
  void read_action(Line& line);
  void read_repetition(const Line& line, std::string_view text);
  void finish_repetition();
  int next_id() const;

  DType dtype(Line& line, std::string_view key) const;
  bool flag(Line& line, std::string_view key) const;
  BucketEntry entry(const Line& line, std::string_view text) const;
  std::vector<int> slots(Line& line, std::string_view key) const;
  std::vector<int> waits(Line& line) const;
  void expect_index(const Line& line, std::string_view text, size_t index) const;

  Schedule schedule_;
  bool has_header_ = false;
  Names units_;
  Names groups_;
  Names slots_;
};

Schedule Parser::parse(std::string_view text) {
  int number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    read_line(Line(text.substr(0, end), ++number));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  if (!has_header_) throw std::invalid_argument("schedule text: it is empty");
  if (schedule_.repetition.times > 1) finish_repetition();
  return std::move(schedule_);
}

void Parser::read_line(Line line) {
  const std::string_view keyword = line.word(0);
  if (has_header_ == (keyword == "schedule"))
    line.fail("the first line, and no other, is 'schedule'");
  if (keyword == "schedule") {
    read_schedule(line);
  } else if (keyword == "unit") {
    read_unit(line);
  } else if (keyword == "group") {
    read_group(line);
  } else if (keyword == "bucket") {
    read_bucket(line);
  } else if (keyword == "slot") {
    read_slot(line);
  } else {
    read_action(line);
  }
  line.expect_no_more_fields();
}

void Parser::expect_index(const Line& line, std::string_view text, size_t index) const {
  if (line.number<size_t>(text) != index) {
    line.fail("number {} where {} comes next", quoted(text), index);
  }
}

bool Parser::flag(Line& line, std::string_view key) const {
  const auto text = line.optional_field(key);
  if (text && *text != "1") line.fail("field {} is 1 or missing", key);
  return text.has_value();
}

DType Parser::dtype(Line& line, std::string_view key) const {
  return line.choice(line.field(key), kDTypes, [](DType one) { return to_string(one); });
}

void Parser::read_schedule(Line& line) {
  line.expect_words(2);
  if (line.number<int>(line.word(1)) != kVersion) {
    line.fail("version {} of the format is not known", quoted(line.word(1)));
  }
  schedule_.strategy = line.choice(line.field("strategy"), kStrategies,
                                   [](StrategyKind one) { return to_string(one); });
  schedule_.world_size = line.number<int>(line.field("world"));
  schedule_.shards = line.number<int>(line.field("shards"));
  schedule_.regather_shards = line.number<int>(line.field("regather"));
  schedule_.microbatches = line.number<int>(line.field("microbatches"));
  schedule_.reduce_dtype = dtype(line, "reduce");
  if (const auto offload = line.optional_field("offload")) {
    schedule_.offload =
        line.choice(*offload, kOffloads, [](Offload one) { return to_string(one); });
  }
  if (const auto repeat = line.optional_field("repeat")) read_repetition(line, *repeat);
  has_header_ = true;
}

void Parser::read_repetition(const Line& line, std::string_view text) {
  const size_t plus = text.find('+');
  const size_t star = text.find('*');
  if (plus == std::string_view::npos || star == std::string_view::npos || star < plus) {
    line.fail("{} is not BEGIN+LENGTH*TIMES", quoted(text));
  }
  Repetition& repetition = schedule_.repetition;
  repetition.begin = line.number<int>(text.substr(0, plus));
  const int length = line.number<int>(text.substr(plus + 1, star - plus - 1));
  repetition.times = line.number<int>(text.substr(star + 1));
  const bool is_some = repetition.begin >= 0 && length >= 1 && repetition.times >= 2;
  constexpr int64_t kMost = std::numeric_limits<int>::max() / 2;
  if (!is_some || repetition.begin + int64_t{length} * repetition.times > kMost) {
    line.fail("{} is out of range", quoted(text));
  }
  repetition.end = repetition.begin + length;
}

void Parser::finish_repetition() {
  Repetition& repetition = schedule_.repetition;
  if (repetition.end > static_cast<int>(schedule_.actions.size())) {
    throw std::invalid_argument("schedule text: it repeats actions that it does not have");
  }
  repetition.microbatches = static_cast<int>(std::count_if(
      schedule_.actions.begin() + repetition.begin, schedule_.actions.begin() + repetition.end,
      [](const Action& action) { return action.kind == ActionKind::load_input; }));
}

int Parser::next_id() const {
  return schedule_.repetition.first_id_of(static_cast<int>(schedule_.actions.size()));
}

void Parser::read_unit(Line& line) {
  line.expect_words(3);
  expect_index(line, line.word(1), schedule_.units.size());
  units_.add(line, line.word(2));
  schedule_.units.emplace_back(line.word(2));
}

void Parser::read_group(Line& line) {
  line.expect_words(3);
  expect_index(line, line.word(1), schedule_.groups.size());
  groups_.add(line, line.word(2));
  schedule_.groups.push_back({std::string(line.word(2)), {}});
}

BucketEntry Parser::entry(const Line& line, std::string_view text) const {
  const size_t at = text.find('@');
  const size_t plus = text.find('+');
  if (at == std::string_view::npos || plus == std::string_view::npos || plus < at) {
    line.fail("{} is not PARAMETER@OFFSET+NUMEL", quoted(text));
  }
  return {line.number<int>(text.substr(0, at)),
          line.number<int64_t>(text.substr(at + 1, plus - at - 1)),
          line.number<int64_t>(text.substr(plus + 1))};
}

void Parser::read_bucket(Line& line) {
  line.expect_words(1);
  const int group = groups_.find(line, line.field("group"));
  std::vector<Bucket>& buckets = schedule_.groups[static_cast<size_t>(group)].buckets;
  expect_index(line, line.field("index"), buckets.size());
  Bucket bucket{.dtype = dtype(line, "dtype"), .numel = line.number<int64_t>(line.field("numel"))};
  bucket.whole = flag(line, "whole");
  bucket.frozen = flag(line, "frozen");
  for (const std::string_view part : split(line.field("parameters"), ',')) {
    bucket.entries.push_back(entry(line, part));
  }
  buckets.push_back(std::move(bucket));
}

void Parser::read_slot(Line& line) {
  line.expect_words(2);
  const std::string_view name = line.word(1);
  constexpr std::string_view kLetters = "URGXKAFNM";  // in the order of SlotKind
  const size_t kind = kLetters.find(name.front());
  if (kind == std::string_view::npos) line.fail("unknown kind of slot {}", quoted(name));
  Slot slot{static_cast<SlotKind>(kind), line.number<int>(name.substr(1)), dtype(line, "dtype"),
            line.number<int64_t>(line.field("bytes")), flag(line, "host")};
  slots_.add(line, slot.name());
  schedule_.slots.push_back(slot);
}

std::vector<int> Parser::slots(Line& line, std::string_view key) const {
  std::vector<int> indices;
  const auto text = line.optional_field(key);
  if (!text) return indices;
  for (const std::string_view name : split(*text, ',')) indices.push_back(slots_.find(line, name));
  return indices;
}

std::vector<int> Parser::waits(Line& line) const {
  std::vector<int> ids;
  const auto text = line.optional_field("waits");
  if (!text) return ids;
  for (const std::string_view id : split(*text, ',')) {
    ids.push_back(line.number<int>(id));
    if (ids.back() < 0 || ids.back() >= next_id()) {
      line.fail("it waits for {}, which is not an earlier action", quoted(id));
    }
  }
  return ids;
}

void Parser::read_action(Line& line) {
  line.expect_words(2);
  expect_index(line, line.word(0), static_cast<size_t>(next_id()));
  Action action;
  action.kind = line.choice(line.word(1), kKinds, [](ActionKind one) { return to_string(one); });
  if (const auto unit = line.optional_field("unit")) action.unit = units_.find(line, *unit);
  if (const auto group = line.optional_field("group")) action.group = groups_.find(line, *group);
  if (const auto bucket = line.optional_field("bucket")) action.bucket = line.number<int>(*bucket);
  if (const auto microbatch = line.optional_field("microbatch")) {
    action.microbatch = line.number<int>(*microbatch);
    if (action.microbatch >= std::max(schedule_.microbatches, 1)) {
      line.fail("there is no microbatch {}", quoted(*microbatch));
    }
  }
  action.stream =
      line.choice(line.field("stream"), kAllStreams, [](Stream one) { return word_of(one); });
  if (const auto channel = line.optional_field("channel")) {
    action.channel = line.choice(*channel, kChannels, [](Channel one) { return word_of(one); });
  }
  action.reads = slots(line, "reads");
  action.writes = slots(line, "writes");
  action.waits = waits(line);
  if (const auto bytes = line.optional_field("bytes")) {
    action.bytes = line.number<int64_t>(*bytes);
  }
  schedule_.actions.push_back(std::move(action));
}

std::string repetition_text(const Repetition& repetition) {
  if (repetition.times == 1) return {};
  return fmt::format(" repeat={}+{}*{}", repetition.begin, repetition.length(), repetition.times);
}

}  // namespace

std::string action_words(const Schedule& schedule, int id) {
  if (id < 0 || id >= schedule.size()) return {};
  const auto index = static_cast<size_t>(schedule.repetition.index_of(id));
  const Action& action = schedule.actions.at(index);
  std::string words(to_string(action.kind));
  for (const ObjectField& field : object_fields(schedule, action, id)) {
    if (!field.value.empty()) words += fmt::format(" {}={}", field.key, field.value);
  }
  return words;
}

std::string action_to_text(const Schedule& schedule, int id) {
  const auto index = static_cast<size_t>(schedule.repetition.index_of(id));
  const Action& action = schedule.actions.at(index);
  std::string line = fmt::format("{:>3} {:<14}", id, to_string(action.kind));
  for (const ObjectField& field : object_fields(schedule, action, id)) {
    append_field(line, field.key, field.value, field.width);
  }
  append_field(line, "stream", std::string(word_of(action.stream)), 13);
  append_field(line, "channel",
               text_unless(action.channel == Channel::none, word_of(action.channel)), 14);
  append_field(line, "reads", slot_names(schedule, action.reads), 8);
  append_field(line, "writes", slot_names(schedule, action.writes), 12);
  append_field(line, "waits", fmt::format("{}", fmt::join(schedule.waits_of(id), ",")), 9);
  append_field(line, "bytes", text_unless(action.bytes == 0, action.bytes), 0);
  line.erase(line.find_last_not_of(' ') + 1);
  return line;
}

std::string to_text(const Schedule& schedule) {
  std::string text = fmt::format(
      "schedule {} strategy={} world={} shards={} regather={} microbatches={} reduce={}{}{}\n",
      kVersion, to_string(schedule.strategy), schedule.world_size, schedule.shards,
      schedule.regather_shards, schedule.microbatches, to_string(schedule.reduce_dtype),
      schedule.offload == Offload::none ? ""
                                        : fmt::format(" offload={}", to_string(schedule.offload)),
      repetition_text(schedule.repetition));
  for (size_t i = 0; i < schedule.units.size(); ++i) {
    text += fmt::format("unit {} {}\n", i, schedule.units[i]);
  }
  for (size_t i = 0; i < schedule.groups.size(); ++i) {
    const Group& group = schedule.groups[i];
    text += fmt::format("group {} {}\n", i, group.name);
    for (size_t k = 0; k < group.buckets.size(); ++k) {
      text += bucket_line(group, static_cast<int>(k), group.buckets[k]);
    }
  }
  for (const Slot& slot : schedule.slots) {
    text += fmt::format("slot {} dtype={} bytes={}{}\n", slot.name(), to_string(slot.dtype),
                        slot.bytes, slot.on_host ? " host=1" : "");
  }
  for (size_t i = 0; i < schedule.actions.size(); ++i) {
    const int id = schedule.repetition.first_id_of(static_cast<int>(i));
    text += action_to_text(schedule, id) + "\n";
  }
  return text;
}

Schedule parse_schedule(std::string_view text) { return Parser().parse(text); }

}  // namespace shardlens::planner
