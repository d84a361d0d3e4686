#include "profiler/exchange/export_html.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "profiler/units.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kMostPoints = 6000;  // of all ranks together
constexpr size_t kMostStepMarks = 100;
constexpr size_t kMostTables = 16;  // ranks whose largest tensors are listed

constexpr std::array<std::string_view, kCategories> kColours = {
    "#4269d0", "#7aa6f0", "#9c6bd6", "#efb118", "#ff8a5c", "#e0475b",
    "#3ca951", "#8fd19e", "#97bbc4", "#b07d56", "#d68fc0", "#9498a0"};

constexpr std::string_view kStyle = R"(<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 1100px; color: #222; }
canvas { width: 100%; height: 280px; display: block; }
.key span { display: inline-block; margin-right: 1.2em; }
.key i { display: inline-block; width: .8em; height: .8em; margin-right: .4em; }
td, th { padding: .1em .8em .1em 0; text-align: left; }
td.bytes { text-align: right; font-variant-numeric: tabular-nums; }
#at { min-height: 1.5em; color: #555; }
.doubt { color: #a3260e; font-weight: 600; }
</style>
)";

// Every point is [microseconds, a number of bytes a used category]; a value holds until the next.
constexpr std::string_view kScript = R"(<script>
const names = data.categories.map(c => c[0]);
const text = b => b >= 2 ** 30 ? (b / 2 ** 30).toFixed(2) + ' GiB'
  : b >= 2 ** 20 ? (b / 2 ** 20).toFixed(2) + ' MiB' : (b / 1024).toFixed(2) + ' KiB';
const sum = p => p.slice(1).reduce((a, b) => a + b, 0);
const most = Math.max(1, ...data.ranks.map(r => r.peak[1]));
const end = Math.max(1, ...data.ranks.map(r => r.end));
function draw(rank, canvas) {
  const ratio = window.devicePixelRatio || 1;
  const w = canvas.clientWidth, h = canvas.clientHeight, c = canvas.getContext('2d');
  canvas.width = w * ratio, canvas.height = h * ratio;
  c.scale(ratio, ratio);
  const x = t => t / end * w, y = b => h - b / most * (h - 24);
  const base = rank.points.map(() => 0);
  names.forEach((name, k) => {
    c.fillStyle = data.categories[k][1];
    c.beginPath();
    rank.points.forEach((p, i) => {
      const next = i + 1 < rank.points.length ? rank.points[i + 1][0] : rank.end;
      const top = y(base[i] + p[k + 1]);
      c.rect(x(p[0]), top, Math.max(x(next) - x(p[0]), 0.5), y(base[i]) - top);
      base[i] += p[k + 1];
    });
    c.fill();
  });
  c.fillStyle = c.strokeStyle = '#888';
  rank.steps.forEach(s => {
    c.globalAlpha = 0.4, c.fillRect(x(s[0]), 0, 1, h);
    c.globalAlpha = 1, c.fillText(s[1], x(s[0]) + 2, 9);
  });
  c.strokeStyle = '#000';
  c.beginPath(), c.arc(x(rank.peak[0]), y(rank.peak[1]), 4, 0, 7), c.stroke();
}
data.ranks.forEach((rank, i) => {
  const canvas = document.getElementById('rank' + i);
  const again = () => draw(rank, canvas);
  window.addEventListener('resize', again), again();
  canvas.addEventListener('mousemove', e => {
    const t = e.offsetX / canvas.clientWidth * end;
    const p = rank.points.filter(q => q[0] <= t).pop();
    if (!p) return;
    const parts = names.map((n, k) => [n, p[k + 1]]).filter(q => q[1] > 0);
    document.getElementById('at').textContent = (t / 1000).toFixed(3) + ' ms: ' + text(sum(p)) +
      ' (' + parts.map(q => q[0] + ' ' + text(q[1])).join(', ') + ')';
  });
});
</script>
)";

std::string escaped(std::string_view text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += c;
    }
  }
  return html;
}

std::vector<size_t> used_categories(const std::vector<Timeline>& timelines) {
  std::vector<size_t> used;
  for (size_t i = 0; i < kCategories; ++i) {
    const bool any = std::ranges::any_of(
        timelines, [&](const Timeline& one) { return one.uses(static_cast<Category>(i)); });
    if (any) used.push_back(i);
  }
  return used;
}

nlohmann::json rank_data(const Timeline& timeline, const std::vector<size_t>& used,
                         size_t most_marks) {
  nlohmann::json points = nlohmann::json::array();
  for (const TimelinePoint& point : timeline.points) {
    nlohmann::json row = {point.time_ns / 1000};
    for (const size_t i : used) row.push_back(point.bytes[i]);
    points.push_back(std::move(row));
  }
  nlohmann::json steps = nlohmann::json::array();
  const size_t every = timeline.steps.size() / std::max<size_t>(most_marks, 1) + 1;
  for (size_t i = 0; i < timeline.steps.size(); i += every) {
    steps.push_back({timeline.steps[i].time_ns / 1000, timeline.steps[i].step});
  }
  return {{"points", std::move(points)},
          {"steps", std::move(steps)},
          {"peak", {timeline.peak.time_ns / 1000, timeline.peak.total_bytes}},
          {"end", timeline.end_ns / 1000}};
}

/// Writes only numbers and Shardlens' own names, none of which can end the script.
void write_data(const std::vector<Timeline>& timelines, std::ostream& out) {
  const std::vector<size_t> used = used_categories(timelines);
  nlohmann::json data = {{"categories", nlohmann::json::array()},
                         {"ranks", nlohmann::json::array()}};
  for (const size_t i : used) data["categories"].push_back({kCategoryNames[i], kColours[i]});
  for (const Timeline& timeline : timelines) {
    data["ranks"].push_back(rank_data(timeline, used, kMostStepMarks / timelines.size()));
  }
  out << "<script>\nconst data = " << data.dump() << ";\n</script>\n";
  out << "<p class=\"key\">";
  for (const size_t i : used) {
    out << fmt::format("<span><i style=\"background:{}\"></i>{}</span>", kColours[i],
                       kCategoryNames[i]);
  }
  out << "</p>\n";
}

void write_rank(const Timeline& timeline, size_t index, std::ostream& out) {
  const Header& header = timeline.header;
  out << fmt::format("<h2>Rank {} of {}, {}</h2>\n", header.rank, header.world_size,
                     escaped(header.device));
  if (!header.notice.empty()) out << fmt::format("<p>{}</p>\n", escaped(header.notice));
  if (!is_whole(timeline.judgement)) {
    out << fmt::format("<p class=\"doubt\">This recording: {}</p>\n",
                       escaped(judgement_text(timeline.judgement)));
  }
  out << fmt::format(
      "<p>Peak of {} memory: <b>{}{} bytes</b> ({}) at {:.3f} ms, {}</p>\n",
      kSpaceNames[static_cast<size_t>(timeline.space)], bound_prefix(timeline.judgement),
      timeline.peak.total_bytes, bytes_text(timeline.peak.total_bytes),
      static_cast<double>(timeline.peak.time_ns) / 1e6, escaped(timeline.peak_place));
  out << fmt::format("<canvas id=\"rank{}\"></canvas>\n", index);
}

void write_largest(const Timeline& timeline, std::ostream& out) {
  const PlaceNames names(timeline.header);
  out << fmt::format(
      "<details><summary>The largest at the peak of rank {}</summary>\n<table>\n"
      "<tr><th>bytes</th><th>category</th><th>what</th><th>made in</th></tr>\n",
      timeline.header.rank);
  for (const PeakTensor& tensor : timeline.largest) {
    out << fmt::format("<tr><td class=\"bytes\">{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                       tensor.bytes, kCategoryNames[static_cast<size_t>(tensor.category)],
                       escaped(tensor.label), escaped(names.place(tensor.place)));
  }
  out << "</table></details>\n";
}

}  // namespace

size_t html_points(size_t ranks) {
  return std::max<size_t>(16, kMostPoints / std::max<size_t>(ranks, 1));
}

void write_html(const std::vector<Timeline>& timelines, std::ostream& out) {
  out << "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
         "<title>Memory over time</title>\n"
      << kStyle << "<h1>Memory over time</h1>\n";
  write_data(timelines, out);
  out << "<p id=\"at\"></p>\n";
  for (size_t i = 0; i < timelines.size(); ++i) {
    write_rank(timelines[i], i, out);
    if (i < kMostTables) write_largest(timelines[i], out);
  }
  out << kScript << "</html>\n";
}

}  // namespace shardlens::profiler
