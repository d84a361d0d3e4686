#include "planner/plan_torch.h"

#include <fmt/format.h>

#include <optional>
#include <vector>

#include "base/process/program_output.h"
#include "base/shown.h"

namespace shardlens::planner {

namespace {

/// A script that prints Python's path and the version of its PyTorch. It does not import PyTorch:
/// that takes seconds.
constexpr const char* kQuestion = R"(
import importlib.util, sys
spec, facts = importlib.util.find_spec("torch"), {}
exec(open(spec.submodule_search_locations[0] + "/version.py").read(), facts)
print(sys.executable, facts["__version__"], sep="\n")
)";

struct InstalledTorch {
  std::string python;
  std::string version;
};

std::optional<InstalledTorch> torch_of(const char* python) {
  const ProgramOutput answer =
      output_of({"sh", "-c", "exec \"$0\" -c \"$1\" 2>/dev/null", python, kQuestion});
  // The user's own sitecustomize may print something before the two lines.
  const std::vector<std::string> lines = lines_of(answer.text);
  if (answer.exit_code != 0 || lines.size() < 2) return std::nullopt;
  return InstalledTorch{.python = lines[lines.size() - 2], .version = lines.back()};
}

std::optional<InstalledTorch> installed_torch() {
  auto found = torch_of("python");
  return found ? found : torch_of("python3");
}

PlanTorch installed_plan_torch(const InstalledTorch& torch) {
  const std::string version = shown(torch.version);
  PlanTorch made{.rules = &models::nearest_torch_rules(torch.version),
                 .source = fmt::format("PyTorch {} of {}", version, shown(torch.python)),
                 .doubt = {}};
  if (models::find_torch_rules(torch.version) == nullptr) {
    made.doubt = fmt::format(
        "the rules of PyTorch {} are not known, so this is what {} takes; shardlens record is "
        "exact",
        version, made.rules->version);
  }
  return made;
}

}  // namespace

PlanTorch plan_torch(const std::string& asked, bool is_python_program) {
  if (!asked.empty()) {
    return {.rules = &models::torch_rules(asked), .source = "--torch", .doubt = {}};
  }
  if (!is_python_program) return {};
  const auto installed = installed_torch();
  if (installed) return installed_plan_torch(*installed);
  return {.source = "this build; no python on PATH has PyTorch", .doubt = {}};
}

}  // namespace shardlens::planner
