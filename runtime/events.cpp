#include "runtime/events.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/durable_files.h"

namespace shardlens::runtime {

namespace {

template <class Number>
nlohmann::ordered_json or_null(const std::optional<Number>& number) {
  return number ? nlohmann::ordered_json(*number) : nlohmann::ordered_json();
}

template <class Number>
std::optional<Number> number_in(const nlohmann::json& json, const char* key) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_number_integer()) return std::nullopt;
  return found->get<Number>();
}

std::string now_text() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                     fmt::gmtime(std::chrono::system_clock::to_time_t(seconds)),
                     (now - seconds).count());
}

std::string line_of(const Event& event) {
  const nlohmann::ordered_json json = {
      {"time", event.time},          {"generation", event.generation}, {"kind", event.kind},
      {"rank", or_null(event.rank)}, {"step", or_null(event.step)},    {"text", event.text}};
  // What the system has said need not be UTF-8.
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace

void EventLog::add(Event event) {
  event.time = now_text();
  unwritten_.push_back(line_of(event));
  try {
    while (!unwritten_.empty()) {
      append_line(path_, unwritten_.front());
      unwritten_.erase(unwritten_.begin());
    }
  } catch (const Failure&) {
    return;  // the run itself will meet the disk's fault, or need not care
  }
}

std::vector<Event> read_events(const std::filesystem::path& path) {
  std::vector<Event> events;
  std::ifstream lines(path);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("kind") || !json["kind"].is_string()) continue;
    events.push_back({.time = json.value("time", ""),
                      .generation = json.value("generation", int64_t{0}),
                      .kind = json["kind"],
                      .rank = number_in<int>(json, "rank"),
                      .step = number_in<int64_t>(json, "step"),
                      .text = json.value("text", "")});
  }
  return events;
}

}  // namespace shardlens::runtime
