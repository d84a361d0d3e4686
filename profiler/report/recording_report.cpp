#include "profiler/report/recording_report.h"

#include <vector>

#include "profiler/file/reader.h"

namespace shardlens::profiler {

RankReport report_of(const std::string& path) {
  Reader reader(path);
  Analysis analysis;
  std::vector<Event> events;
  while (reader.next(events)) {
    for (const Event& event : events) analysis.take(event);
  }
  RankReport report = analysis.finish(reader.header(), reader.strings(), reader.judgement());
  report.source = path;
  return report;
}

}  // namespace shardlens::profiler
