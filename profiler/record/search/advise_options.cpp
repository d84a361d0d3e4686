#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "base/gpus.h"
#include "base/process/command_line.h"
#include "base/units.h"
#include "profiler/record/search/advise.h"
#include "profiler/record/search/split_flags.h"

namespace shardlens::profiler {

namespace {

int64_t parse_fit(const std::string& text, const Device& device) {
  if (text.empty()) return memory_bytes_of(device);
  const auto known = std::ranges::find(gpus(), text, &Gpu::name);
  if (known != gpus().end()) return known->memory_bytes;
  try {
    return parse_bytes(text);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(
        fmt::format("--fit {}; or the name of a GPU, such as l4", error.what()));
  }
}

/// Parses the levers of --levers, which may exclude each other: they are tried one by one.
std::vector<Lever> parse_wanted(std::string_view text) {
  std::vector<Lever> wanted;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    for (Lever& lever : parse_levers(std::string(text.substr(0, end)))) {
      wanted.push_back(std::move(lever));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return wanted;
}

/// Throws std::invalid_argument if a lever that is to be tried contradicts a flag.
void check_wanted(const AdviseOptions& options) {
  for (const Lever& lever : options.wanted) {
    RecordOptions one = options.record;
    one.levers.push_back(lever);
    pull_machine_levers(one);
  }
}

}  // namespace

AdviseOptions parse_advise_options(const std::vector<std::string>& arguments) {
  AdviseOptions options;
  CLI::App app;
  std::string fit, wanted, by;
  app.set_help_flag();
  app.add_flag("--help,-h", options.help);
  app.add_flag("--json", options.prints_json);
  app.add_option("--fit", fit);
  app.add_option("--levers", wanted);
  app.add_option("--most", options.most_levers)->check(positive_number());
  app.add_option("--by", by);
  const std::vector<std::string> others = parse_own_flags(app, arguments);
  if (options.help) return options;
  options.record = parse_simulated("advise", others);
  options.fit_bytes = parse_fit(fit, options.record.device);
  options.wanted = parse_wanted(wanted);
  options.by_time = parse_by_time(by);
  if (options.by_time) options.record.traces_work = true;
  check_wanted(options);
  return options;
}

std::string advise_help() {
  return "usage: shardlens advise [flags] -- COMMAND ...\n\n"
         "Finds what would make an unmodified PyTorch program fit a GPU: runs it on a simulated\n"
         "GPU as it is, with each lever that applies (`shardlens record --levers` lists them), "
         "and\n"
         "with sets of those that helped, the cheapest first, until one fits.\n\n"
         "  --device D         the simulated GPU, such as null:h100\n"
         "  --fit SIZE         memory that the program is to fit, such as 24GiB, or a GPU, such "
         "as\n"
         "                     l4; default: that of the device\n"
         "  --levers LEVERS    try only these, such as recompute,optimizer=8bit\n"
         "  --most N           levers in one set; default: 3\n"
         "  --time             also predict how long a step takes, as it is and with each set\n"
         "  --by time          the best set is the fastest that fits, by that prediction, among\n"
         "                     those that were run; default: cost, the cheapest\n"
         "  --json             print JSON\n"
         "  --out DIR          where to put the recording of each run; default: "
         "runs/SCRIPT-TIME\n\n"
         "It takes the other flags of `shardlens record`, too: --world, --rank, --steps, --with, "
         "...\n\n"
         "Exit code: 0 if the program fits, as it is or with levers, 3 if no set that was tried\n"
         "fits, 5 if the program itself could not be measured, or the search was interrupted "
         "before\n"
         "one did; 2 for wrong use.\n";
}

}  // namespace shardlens::profiler
