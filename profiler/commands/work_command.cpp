#include "profiler/commands/work_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>

#include "base/process/command_line.h"
#include "base/shown.h"
#include "base/strict_json.h"
#include "profiler/file/work_layer.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostShown = 20;
constexpr size_t kMostNameColumns = 60;

/// The items of a step, or those before the first one. The last item of a trace may be the mark of
/// a step that never came.
struct WorkStep {
  std::optional<int64_t> step;
  std::array<int64_t, kWords<WorkKind>.size()> counts{};
  int64_t items = 0;
  int64_t host_ns = 0;
  int64_t own_ns = 0;

  int64_t of(WorkKind kind) const { return counts[static_cast<size_t>(kind)]; }
};

std::vector<WorkStep> steps_of(const WorkTrace& trace) {
  std::vector<WorkStep> steps(1);
  for (size_t i = 0; i < trace.items.size(); ++i) {
    const WorkItem& item = trace.items[i];
    const WorkKind kind = trace.work_of(item).kind;
    steps.back().host_ns += trace.host_ns(i);
    steps.back().own_ns += item.own_ns;
    if (kind == WorkKind::step) {
      steps.push_back({.step = item.about});
      continue;
    }
    ++steps.back().items;
    ++steps.back().counts[static_cast<size_t>(kind)];
  }
  if (steps.back().items == 0) steps.pop_back();
  return steps;
}

std::vector<int64_t> counts_of_work(const WorkTrace& trace) {
  std::vector<int64_t> counts(trace.work.size());
  for (const WorkItem& item : trace.items) ++counts[item.work];
  return counts;
}

// --- text ----------------------------------------------------------------------------------------

std::string detail_of(const WorkTrace& trace, const Work& work) {
  switch (work.kind) {
    case WorkKind::product:
      return fmt::format("{} x {} x {} x {}, {}", work.product.batch, work.product.m,
                         work.product.n, work.product.k, to_string(work.product.a));
    case WorkKind::copy:
      return fmt::format("{} B {}", work.copy.bytes, to_string(work.copy.kind));
    case WorkKind::set:
    case WorkKind::memory:
      return fmt::format("{} B", work.copy.bytes);
    case WorkKind::collective:
      return fmt::format("{} B on {} ranks", work.collective.bytes,
                         trace.communicators[work.collective.communicator].size);
    case WorkKind::kernel:
      return fmt::format(
          "{} blocks of {}",
          int64_t{work.launch.grid[0]} * work.launch.grid[1] * work.launch.grid[2],
          int64_t{work.launch.block[0]} * work.launch.block[1] * work.launch.block[2]);
    default:
      return "";
  }
}

std::string steps_text(const std::vector<WorkStep>& steps) {
  std::string text =
      fmt::format("{:>8} {:>9} {:>9} {:>9} {:>8} {:>11} {:>11} {:>12}\n", "step", "kernels",
                  "products", "libraries", "copies", "collectives", "host ms", "recorder ms");
  for (const WorkStep& step : steps) {
    text += fmt::format("{:>8} {:>9} {:>9} {:>9} {:>8} {:>11} {:>11.3f} {:>12.3f}\n",
                        step.step ? std::to_string(*step.step) : "before",
                        step.of(WorkKind::kernel), step.of(WorkKind::product),
                        step.of(WorkKind::library_call), step.of(WorkKind::copy),
                        step.of(WorkKind::collective), static_cast<double>(step.host_ns) / 1e6,
                        static_cast<double>(step.own_ns) / 1e6);
  }
  return text;
}

std::string work_text(const WorkTrace& trace) {
  std::string text =
      fmt::format("{} items, {} distinct pieces of work\n", trace.items.size(), trace.work.size());
  for (const std::string& fault : trace.faults) text += fmt::format("damage: {}\n", shown(fault));
  text += steps_text(steps_of(trace));
  const std::vector<int64_t> counts = counts_of_work(trace);
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater{}, [&](size_t i) { return counts[i]; });
  order.resize(std::min(order.size(), kMostShown));
  for (const size_t index : order) {
    const Work& work = trace.work[index];
    text += fmt::format("{:>8} {:<18} {} [{}] {}\n", counts[index], to_string(work.kind),
                        shown(trace.name_of(work).substr(0, kMostNameColumns)),
                        shown(trace.strings[trace.calls[work.call].name]), detail_of(trace, work));
  }
  return text;
}

// --- JSON ----------------------------------------------------------------------------------------

Json product_json(const Product& product) {
  return {{"m", product.m},
          {"n", product.n},
          {"k", product.k},
          {"batch", product.batch},
          {"a", to_string(product.a)},
          {"b", to_string(product.b)},
          {"c", to_string(product.c)},
          {"compute", to_string(product.compute)},
          {"transposes_a", product.transposes_a},
          {"transposes_b", product.transposes_b},
          {"epilogue", to_string(product.epilogue)}};
}

Json copy_json(const Copy& copy) {
  return {{"bytes", copy.bytes},
          {"kind", to_string(copy.kind)},
          {"is_pageable", copy.is_pageable},
          {"blocks", copy.blocks}};
}

Json collective_json(const Collective& collective) {
  return {{"kind", to_string(collective.kind)},
          {"bytes", collective.bytes},
          {"type", to_string(collective.type)},
          {"communicator", collective.communicator},
          {"peer", collective.peer},
          {"joins_previous", collective.joins_previous}};
}

Json numbers_json(const Work& work) {
  switch (work.kind) {
    case WorkKind::kernel:
      return {{"grid", work.launch.grid},
              {"block", work.launch.block},
              {"shared_bytes", work.launch.shared_bytes}};
    case WorkKind::product:
      return product_json(work.product);
    case WorkKind::copy:
    case WorkKind::set:
    case WorkKind::memory:
      return copy_json(work.copy);
    case WorkKind::collective:
      return collective_json(work.collective);
    default:
      return nullptr;
  }
}

Json inputs_json(const OperatorCall& call) {
  Json json = Json::array();
  for (const OperatorInput& input : call.inputs) {
    json.push_back(
        {{"type", to_string(input.type)}, {"tensors", input.tensors}, {"sizes", input.sizes}});
  }
  return json;
}

Json pieces_json(const WorkTrace& trace) {
  Json json = Json::array();
  const std::vector<int64_t> counts = counts_of_work(trace);
  for (size_t i = 0; i < trace.work.size(); ++i) {
    const Work& work = trace.work[i];
    const OperatorCall& call = trace.calls[work.call];
    json.push_back({{"kind", to_string(work.kind)},
                    {"name", trace.name_of(work)},
                    {"operator", trace.strings[call.name]},
                    {"in_backward", call.in_backward},
                    {"inputs", inputs_json(call)},
                    {"numbers", numbers_json(work)},
                    {"count", counts[i]}});
  }
  return json;
}

Json steps_json(const std::vector<WorkStep>& steps) {
  Json json = Json::array();
  for (const WorkStep& step : steps) {
    Json counts;
    for (size_t kind = 0; kind < step.counts.size(); ++kind) {
      counts[std::string(kWords<WorkKind>[kind])] = step.counts[kind];
    }
    json.push_back({{"step", step.step ? Json(*step.step) : Json(nullptr)},
                    {"items", step.items},
                    {"counts", counts},
                    {"host_ns", step.host_ns},
                    {"own_ns", step.own_ns}});
  }
  return json;
}

Json items_json(const WorkTrace& trace) {
  Json json = Json::array();
  for (const WorkItem& item : trace.items) {
    json.push_back({{"time_ns", item.time_ns},
                    {"own_ns", item.own_ns},
                    {"work", item.work},
                    {"about", item.about},
                    {"stream", item.stream},
                    {"thread", item.thread},
                    {"graph", item.graph}});
  }
  return json;
}

Json communicators_json(const WorkTrace& trace) {
  Json json = Json::array();
  for (const WorkCommunicator& one : trace.communicators) {
    json.push_back({{"size", one.size}, {"rank", one.rank}, {"world_ranks", one.world_ranks}});
  }
  return json;
}

std::string trace_json(const WorkTrace& trace) {
  const Json json = {{"schema", "shardlens.work/1"},
                     {"steps", steps_json(steps_of(trace))},
                     {"communicators", communicators_json(trace)},
                     {"work", pieces_json(trace)},
                     {"items", items_json(trace)},
                     {"faults", trace.faults}};
  return json_text(json);
}

}  // namespace

std::string work_command(const std::vector<std::string>& arguments) {
  CLI::App app;
  std::string source;
  std::optional<int32_t> rank;
  bool json = false;
  app.add_option("RUN|FILE", source)->required();
  app.add_option("--rank", rank);
  app.add_flag("--json", json);
  parse_flags(app, arguments);
  const std::vector<std::string> files = recordings_of(source, rank);
  if (files.size() != 1) {
    throw std::invalid_argument(fmt::format(
        "{}: {} ranks, but a trace is of one; choose it with --rank", source, files.size()));
  }
  const WorkTrace trace = read_work(files.front());
  if (trace.empty() && trace.faults.empty()) {
    throw std::invalid_argument(fmt::format(
        "{}: has no trace of work; record it with shardlens record --time", files.front()));
  }
  return json ? trace_json(trace) : work_text(trace);
}

}  // namespace shardlens::profiler
