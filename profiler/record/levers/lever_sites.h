// Reads where levers acted in a program, or would act, as its processes wrote down
// (profiler/record/python/shardlens_record/levers/sites.py).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profiler/record/accounts.h"
#include "profiler/record/levers/levers.h"

namespace shardlens::profiler {

/// Holds a place of the program where a lever acts.
struct LeverSite {
  std::string lever;
  std::optional<std::string> now = {};    // the value that the program uses there
  std::optional<std::string> value = {};  // the only value that acts there; nothing: any
  std::string code = {};                  // that stands for the lever there
  std::string where = {};                 // "/home/me/train.py:30"; "" if it is not known

  bool operator==(const LeverSite&) const = default;
};

/// Returns these places, each once, in the order in which the program came to them.
std::vector<LeverSite> lever_sites(const Accounts& accounts);

/// True if the lever, with its value, changes what the program does at this place.
bool acts_at(const LeverSite& site, const Lever& lever);

/// Returns why a lever changes nothing in the program, or cannot; nothing if it acts somewhere.
Problem why_not(const Lever& lever, const Accounts& accounts);

/// Returns what processes wrote down about levers, to be kept beside a recording.
nlohmann::json lever_accounts_json(const Accounts& accounts);
/// Reads it again: what it says about levers is as it was. Entries that make no sense are left out.
Accounts read_lever_accounts(const nlohmann::json& json);

/// Returns why the program with these levers pulled must not be recorded: one does not apply to it.
/// A program that failed may not have come to where they act.
Problem idle_lever(const std::vector<Lever>& levers, const Accounts& accounts, bool has_failed);

}  // namespace shardlens::profiler
