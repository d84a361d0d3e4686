#include "profiler/record/levers/lever_sites.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/strict_json.h"

namespace shardlens::profiler {

namespace {

// The words with which processes write down facts about levers.
constexpr std::string_view kActs = "lever";
constexpr std::string_view kCannot = "lever_cannot";

std::optional<nlohmann::json> told_of_lever(const AccountEntry& told, std::string_view what) {
  if (told.what != what) return std::nullopt;
  auto json = find_json(told.text);
  if (!json || !json->is_object()) return std::nullopt;
  return json;
}

/// Returns why the lever cannot act, as the program's processes wrote down.
Problem obstacle_to(const Lever& lever, const Accounts& accounts) {
  for (const AccountEntry& told : accounts.told) {
    const auto json = told_of_lever(told, kCannot);
    const bool is_this = json && text_in(*json, "lever") == lever.name &&
                         lever.value.starts_with(text_in(*json, "value").value_or(""));
    if (is_this) return text_in(*json, "why").value_or("");
  }
  return std::nullopt;
}

}  // namespace

nlohmann::json lever_accounts_json(const Accounts& accounts) {
  nlohmann::json json = nlohmann::json::array();
  for (const AccountEntry& told : accounts.told) {
    const bool is_of_lever = told.what == kActs || told.what == kCannot;
    if (is_of_lever) json.push_back({{"what", told.what}, {"text", told.text}});
  }
  return json;
}

Accounts read_lever_accounts(const nlohmann::json& json) {
  Accounts accounts;
  if (!json.is_array()) return accounts;
  for (const auto& entry : json) {
    const auto what = text_in(entry, "what"), text = text_in(entry, "text");
    if (what && text) accounts.told.push_back({.what = *what, .text = *text});
  }
  return accounts;
}

std::vector<LeverSite> lever_sites(const Accounts& accounts) {
  std::vector<LeverSite> sites;
  for (const AccountEntry& told : accounts.told) {
    const auto json = told_of_lever(told, kActs);
    if (!json) continue;
    const LeverSite site{.lever = text_in(*json, "lever").value_or(""),
                         .now = text_in(*json, "now"),
                         .value = text_in(*json, "value"),
                         .code = text_in(*json, "code").value_or(""),
                         .where = text_in(*json, "where").value_or("")};
    if (std::ranges::find(sites, site) == sites.end()) sites.push_back(site);
  }
  return sites;
}

bool acts_at(const LeverSite& site, const Lever& lever) {
  return site.lever == lever.name && site.now != lever.value &&
         (!site.value || *site.value == lever.value);
}

Problem why_not(const Lever& lever, const Accounts& accounts) {
  if (Problem why = obstacle_to(lever, accounts)) return why;
  const LeverSite* done = nullptr;
  const std::vector<LeverSite> sites = lever_sites(accounts);
  for (const LeverSite& site : sites) {
    if (acts_at(site, lever)) return std::nullopt;
    if (site.lever == lever.name && site.now == lever.value) done = &site;
  }
  if (done != nullptr) return fmt::format("the program does that already ({})", done->where);
  return fmt::format("it applies {}", lever_info(lever.name).applies);
}

Problem idle_lever(const std::vector<Lever>& levers, const Accounts& accounts, bool has_failed) {
  for (const Lever& lever : levers) {
    const Problem why = has_failed ? obstacle_to(lever, accounts) : why_not(lever, accounts);
    if (why) return fmt::format("{} does not apply: {}", lever_text(lever), *why);
  }
  return std::nullopt;
}

}  // namespace shardlens::profiler
