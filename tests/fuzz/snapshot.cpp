// Reads PyTorch's memory snapshots, as pickle and as JSON: imports, reports, draws and exports
// them.

#include <sstream>

#include "base/document/document_writer.h"
#include "profiler/exchange/export_memory_viz.h"
#include "profiler/exchange/import_memory_viz.h"
#include "profiler/report/report.h"
#include "tests/fuzz/harness.h"
#include "viewer/model/lane_builder.h"

namespace shardlens::fuzz {

void snapshot(std::string_view input) {
  profiler::Profile profile;
  const bool is_read = answers([&] { profile = profiler::import_memory_viz(input); });
  if (!is_read) return;
  for (const profiler::Event& event : profile.events) {
    expect(event.label < profile.strings.size(), "an event has a label that does not exist");
  }
  profiler::report_text({profiler::analyse(profile)});
  viewer::lane_of(profile);
  std::ostringstream again;
  if (!answers([&] { profiler::export_memory_viz(profile, *pickle_writer(again)); })) {
    return;
  }
  answers([&] { profiler::import_memory_viz(again.str()); });
}

}  // namespace shardlens::fuzz
