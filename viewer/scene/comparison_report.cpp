#include "viewer/scene/comparison_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "profiler/units.h"
#include "viewer/model/compare.h"
#include "viewer/scene/theme.h"

namespace shardlens::viewer {

using profiler::bytes_text;
using profiler::kCategoryNames;

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kLargest = 10;  // rows of what is alive
constexpr int kSvgColumns = 320;
constexpr int kSvgHeight = 160;

const Lane& lane_of(const Run& run) { return run.at_peak().lane; }

int64_t bytes_of(const Run& run, Category category) {
  return lane_of(run).peak().at_max[static_cast<size_t>(category)];
}

/// From the top of the stack down; those that some strategy has at its peak.
std::vector<Category> categories_of(const std::vector<Run>& runs) {
  std::vector<Category> used;
  const auto& order = stacking_order();
  for (size_t i = order.size(); i-- > 0;) {
    const auto is_used = [&](const Run& run) { return bytes_of(run, order[i]) > 0; };
    if (std::ranges::any_of(runs, is_used)) used.push_back(order[i]);
  }
  return used;
}

std::vector<AliveRow> largest_of(const Run& run) {
  const RankLane& rank = run.at_peak();
  auto rows = alive_rows(rank.lane, rank.names, rank.lane.peak().max_change, Grouping::label);
  if (rows.size() > kLargest) rows.resize(kLargest);
  return rows;
}

std::string place_of(const Run& run) {
  const RankLane& rank = run.at_peak();
  const int64_t change = rank.lane.peak().max_change;
  const Stretch* const stretch = rank.lane.stretch_of_change(change);
  const Span* const span = rank.lane.span_at(rank.lane.time_of(change));
  std::string text = fmt::format("rank {}", rank.lane.rank());
  if (stretch != nullptr && stretch->number >= 0) text += fmt::format(", step {}", stretch->number);
  if (stretch != nullptr && stretch->number < 0) {
    text += fmt::format(", {}", profiler::kPhaseNames[static_cast<size_t>(stretch->phase)]);
  }
  if (span != nullptr && stretch != nullptr) {
    text += ", " + rank.names.name_of(stretch->phase, span->action).text;
  }
  return text;
}

/// Of a plan its verdict, of what was measured what its plan had said; empty where there is none.
std::string plan_words(const Run& run) {
  if (run.outlook) return fmt::format("predicted, {}", run.outlook->verdict);
  if (run.is_predicted()) return "predicted: nothing ran";
  if (!run.plan) return "";
  const int64_t planned = run.plan->lane.peak().max_bytes;
  return fmt::format("plan {}: measured {}", bytes_text(planned),
                     change_in_words(planned, lane_of(run).peak().max_bytes));
}

std::string text_of_run(const Run& run, const Run& base) {
  const Lane& lane = lane_of(run);
  std::string text = fmt::format("{}\n", run.name);
  if (!run.strategy.empty()) text += fmt::format("  {}\n", run.strategy);
  text += fmt::format("  peak {} in {}\n", bytes_text(lane.peak().max_bytes), place_of(run));
  if (const std::string words = plan_words(run); !words.empty()) text += "  " + words + "\n";
  if (lane.step_peak()) {
    text +=
        fmt::format("  of steps from the third on: {}\n", bytes_text(lane.step_peak()->max_bytes));
  }
  if (&run != &base) {
    text += fmt::format("  {} against {}\n",
                        change_in_words(lane_of(base).peak().max_bytes, lane.peak().max_bytes),
                        base.name);
  }
  if (const int64_t capacity = run.capacity_bytes(); capacity > 0) {
    text += fmt::format("  headroom {} of {}\n", bytes_text(capacity - lane.peak().max_bytes),
                        bytes_text(capacity));
  }
  return text;
}

std::string text_report(const std::vector<Run>& runs, size_t baseline) {
  std::string text = runs.size() > 1 ? fmt::format("Memory of {} strategies, compared with {}\n\n",
                                                   runs.size(), runs[baseline].name)
                                     : fmt::format("Memory of {}\n\n", runs.front().name);
  for (const Run& run : runs) text += text_of_run(run, runs[baseline]) + "\n";
  text += "At each one's peak\n";
  for (const Category category : categories_of(runs)) {
    text += fmt::format("  {}\n", words_of(category));
    for (const Run& run : runs) {
      const int64_t bytes = bytes_of(run, category);
      const int64_t base = bytes_of(runs[baseline], category);
      text += fmt::format("    {:>12}  {}", bytes_text(bytes), run.name);
      if (&run != &runs[baseline]) text += fmt::format(": {}", change_in_words(base, bytes));
      text += "\n";
    }
  }
  for (const Run& run : runs) {
    text += fmt::format("\nLargest at the peak of {}\n", run.name);
    for (const AliveRow& row : largest_of(run)) {
      text += fmt::format("  {:>12}  {} ({}, {} block{})\n", bytes_text(row.bytes), row.name,
                          words_of(row.category), row.count, row.count == 1 ? "" : "s");
    }
  }
  return text;
}

Json json_of_run(const Run& run, const Run& base) {
  Json categories = Json::object();
  for (int i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    categories[std::string(kCategoryNames[static_cast<size_t>(i)])] = bytes_of(run, category);
  }
  Json ranks = Json::array();
  for (const RankLane& rank : run.ranks) {
    ranks.push_back({{"rank", rank.lane.rank()},
                     {"peak_allocated_bytes", rank.lane.peak().max_bytes},
                     {"lost", rank.lane.info().lost_events}});
  }
  const auto& step_peak = lane_of(run).step_peak();
  const int64_t peak = lane_of(run).peak().max_bytes;
  return {{"name", run.name},
          {"strategy", run.strategy},
          {"peak_allocated_bytes", peak},
          {"step_peak_allocated_bytes", step_peak ? Json(step_peak->max_bytes) : Json(nullptr)},
          {"growth_bytes", peak - lane_of(base).peak().max_bytes},
          {"at_peak", {{"place", place_of(run)}, {"categories", categories}}},
          {"capacity_bytes", run.capacity_bytes()},
          {"predicted", run.is_predicted()},
          {"plan_peak_allocated_bytes",
           run.plan ? Json(run.plan->lane.peak().max_bytes) : Json(nullptr)},
          {"ranks", ranks}};
}

std::string json_report(const std::vector<Run>& runs, size_t baseline) {
  Json all = Json::array();
  for (const Run& run : runs) all.push_back(json_of_run(run, runs[baseline]));
  const Json report = {
      {"schema", "shardlens.view/1"}, {"baseline", runs[baseline].name}, {"strategies", all}};
  return report.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string csv_quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_report(const std::vector<Run>& runs, size_t baseline) {
  std::string csv = "strategy,category,bytes,growth_bytes\n";
  for (const Run& run : runs) {
    const std::string name = csv_quoted(run.name);
    const int64_t peak = lane_of(run).peak().max_bytes;
    csv +=
        fmt::format("{},all,{},{}\n", name, peak, peak - lane_of(runs[baseline]).peak().max_bytes);
    for (const Category category : categories_of(runs)) {
      const int64_t bytes = bytes_of(run, category);
      csv += fmt::format("{},{},{},{}\n", name, kCategoryNames[static_cast<size_t>(category)],
                         bytes, bytes - bytes_of(runs[baseline], category));
    }
  }
  return csv;
}

std::string html_quoted(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    quoted += c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '&' ? "&amp;" : std::string(1, c);
  }
  return quoted;
}

std::string css_of(Category category) {
  const Color c = color_of(category);
  return fmt::format("#{:02x}{:02x}{:02x}", c.r, c.g, c.b);
}

/// The lane of the highest rank: a rectangle for every column and category.
std::string svg_of(const Run& run, double top_bytes) {
  const Lane& lane = lane_of(run);
  std::string svg = fmt::format(
      "<svg viewBox='0 0 {} {}' preserveAspectRatio='none' role='img' "
      "aria-label='memory of {} over time, by category'>",
      kSvgColumns, kSvgHeight, html_quoted(run.name));
  const double end = static_cast<double>(lane.info().end_ns) + 1;
  for (int x = 0; x < kSvgColumns; ++x) {
    const Extent extent = lane.between(end * x / kSvgColumns, end * (x + 1) / kSvgColumns);
    double low = kSvgHeight;
    for (const Category category : stacking_order()) {
      const auto bytes = static_cast<double>(extent.at_max[static_cast<size_t>(category)]);
      const double height = bytes / top_bytes * kSvgHeight;
      if (height < 0.05) continue;
      low -= height;
      svg += fmt::format("<path fill='{}' d='M{} {:.1f}h1.05v{:.1f}h-1.05z'/>", css_of(category), x,
                         low, height);
    }
  }
  return svg + "</svg>";
}

std::string html_table(const std::vector<Run>& runs, size_t baseline) {
  std::string html = "<table><tr><th>at each one's peak</th>";
  for (const Run& run : runs) html += fmt::format("<th>{}</th>", html_quoted(run.name));
  html += "</tr>\n";
  for (const Category category : categories_of(runs)) {
    html += fmt::format("<tr><td><i style='background:{}'></i>{}</td>", css_of(category),
                        words_of(category));
    for (const Run& run : runs) {
      const int64_t bytes = bytes_of(run, category);
      const std::string change = change_in_words(bytes_of(runs[baseline], category), bytes);
      html += fmt::format("<td title='{} bytes'>{}{}</td>", bytes, bytes_text(bytes),
                          &run == &runs[baseline] ? "" : "<br><small>" + change + "</small>");
    }
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

constexpr std::string_view kStyleSheet =
    "body{font:14px/1.4 system-ui,sans-serif;color:#1b1f24;background:#f3f4f6;margin:2rem}"
    "section{display:grid;grid-template-columns:repeat(auto-fit,minmax(300px,1fr));gap:1rem}"
    "article{background:#fff;border:1px solid #d5d9df;border-radius:6px;padding:1rem}"
    "h2{margin:0;font-size:1rem}p{margin:.2rem 0;color:#59626d}b{color:#1b1f24}"
    "svg{width:100%;height:200px;background:#fafbfc}"
    "table{border-collapse:collapse;background:#fff;margin-top:1rem}"
    "td,th{border:1px solid #d5d9df;padding:.3rem .6rem;text-align:right}"
    "td:first-child,th:first-child{text-align:left}"
    "i{display:inline-block;width:.8em;height:.8em;border-radius:2px;margin-right:.4em}";

std::string html_report(const std::vector<Run>& runs, size_t baseline) {
  double top = 1;
  for (const Run& run : runs) {
    top = std::max(top, 1.05 * static_cast<double>(lane_of(run).peak().max_bytes));
  }
  std::string html = fmt::format(
      "<!doctype html><html lang='en'><meta charset='utf-8'><title>Memory of {} strategies</title>"
      "<style>{}</style><h1>Memory of {} strategies</h1>\n<section>\n",
      runs.size(), kStyleSheet, runs.size());
  for (const Run& run : runs) {
    const int64_t peak = lane_of(run).peak().max_bytes;
    html += fmt::format(
        "<article><h2>{}</h2><p>{}</p><p><b>{}</b> at the peak, {}</p><p>{}</p><p>{}</p>{}"
        "</article>\n",
        html_quoted(run.name), html_quoted(run.strategy), bytes_text(peak),
        html_quoted(place_of(run)),
        &run == &runs[baseline] ? "the others are compared with this"
                                : change_in_words(lane_of(runs[baseline]).peak().max_bytes, peak),
        html_quoted(plan_words(run)), svg_of(run, top));
  }
  return html + "</section>\n" + html_table(runs, baseline) + "</html>\n";
}

}  // namespace

ReportFormat report_format(const std::string& path) {
  if (path.ends_with(".txt")) return ReportFormat::text;
  if (path.ends_with(".json")) return ReportFormat::json;
  if (path.ends_with(".csv")) return ReportFormat::csv;
  if (path.ends_with(".html")) return ReportFormat::html;
  throw std::invalid_argument(fmt::format(
      "--report {}: not a kind of report; end its name in .txt, .json, .csv or .html", path));
}

std::string comparison_report(const std::vector<Run>& runs, size_t baseline, ReportFormat format) {
  switch (format) {
    case ReportFormat::text:
      return text_report(runs, baseline);
    case ReportFormat::json:
      return json_report(runs, baseline);
    case ReportFormat::csv:
      return csv_report(runs, baseline);
    case ReportFormat::html:
      break;
  }
  return html_report(runs, baseline);
}

}  // namespace shardlens::viewer
