#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/input_file.h"
#include "base/limits.h"
#include "base/output_file.h"
#include "base/process/program.h"
#include "base/shown.h"
#include "commands/recording_replay.h"
#include "commands/step_times.h"
#include "planner/config/foreign/document.h"
#include "profiler/record/search/matrix.h"

namespace {

using namespace shardlens;
using namespace shardlens::profiler;

std::vector<Recipe> recipes_in(const MatrixOptions& options) {
  const std::string text = read_file(options.file, kWritten.bytes, "give a file of recipes");
  try {
    return recipes_of(planner::parse_document(text, planner::notation_of(options.file)),
                      options.out);
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument(fmt::format("{}: {}", shown(options.file), error.what()));
  }
}

int run(const MatrixOptions& options) {
  const Matrix matrix = run_matrix(options, recipes_in(options), replays_of, times_to_compare_with);
  print_output(options.prints_json ? matrix_json(options, matrix) : matrix_text(options, matrix));
  if (!options.markdown.empty()) write_text(options.markdown, matrix_markdown(options, matrix));
  if (options.updates) update_baseline(options, matrix);
  return exit_code_of(matrix);
}

}  // namespace

int main(int argc, char** argv) {
  return run_program("shardlens matrix", [&] {
    const MatrixOptions options = parse_matrix_options({argv + 1, argv + argc});
    if (options.help) return fmt::print("{}", matrix_help()), 0;
    return run(options);
  });
}
