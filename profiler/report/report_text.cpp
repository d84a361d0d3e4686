#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shown.h"
#include "base/units.h"
#include "profiler/program/pulled_levers.h"
#include "profiler/recording/events.h"
#include "profiler/recording/profile.h"
#include "profiler/report/block_names.h"
#include "profiler/report/place_totals.h"
#include "profiler/report/report.h"

namespace shardlens::profiler {

namespace {

constexpr size_t kStepRows = 6;
constexpr size_t kLibraryRows = 5;
constexpr size_t kPinnedRows = 3;
constexpr size_t kFaultRows = 6;
constexpr size_t kHolderRows = 4;
constexpr size_t kKeptRows = 4;

std::string percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.1f} %", 100 * static_cast<double>(part) / static_cast<double>(whole));
}

/// Returns "  name            value", the look of all plain lines.
std::string row(std::string_view name, std::string_view value) {
  return fmt::format("  {:<22}{}\n", name, value);
}

/// Returns the plain line of an amount, or nothing if it was not recorded.
std::string bytes_row(std::string_view name, const std::optional<int64_t>& bytes) {
  return bytes ? row(name, bytes_text(*bytes)) : "";
}

/// Returns the plain line of an action, or nothing outside a pass.
std::string action_row(int32_t id, const std::string& words) {
  return id < 0 ? "" : row("action", action_text(id, words));
}

std::string_view name_in(const Header& header, Category category) {
  return category_name(category, has_shards(header));
}

std::string moment_text(const RankReport& rank, const Moment& at, const std::string& module) {
  std::string text(to_string(at.phase));
  if (at.step >= 0) text += fmt::format(", step {}", at.step);
  const auto part = program_part(rank.header, at.running);
  if (part) text += fmt::format(", {}", to_string(*part));
  if (!module.empty()) text += (part ? " of " : ", in ") + shown(module);
  return fmt::format("{}, {}", text, time_text(at.time_ns, rank.has_times));
}

std::string title_of(const RankReport& rank) {
  const Header& header = rank.header;
  std::string text =
      fmt::format("rank {} of {} on {}", header.rank, header.world_size,
                  header.device.empty() ? "an unknown device" : shown(header.device));
  if (!header.gpu.empty()) {
    text += fmt::format(" ({}, {})", shown(header.gpu), bytes_text(header.capacity_bytes));
  }
  return text;
}

/// Returns the rows of a judgement; none if the recording is whole.
std::string judgement_rows(const Judgement& judgement) {
  if (is_whole(judgement)) return {};
  std::string text = row("judgement", judgement_text(judgement));
  for (size_t i = 0; i < std::min(kFaultRows, judgement.faults.size()); ++i) {
    text += row("", judgement.faults[i]);
  }
  if (judgement.faults.size() <= kFaultRows) return text;
  return text + row("", fmt::format("and {} more", judgement.faults.size() - kFaultRows));
}

/// Returns the line of the ranges of the peaks, or nothing if they do not depend on addresses.
std::string bands_row(const RankReport& rank) {
  const std::string text = rank.bands ? bands_text(*rank.bands) : "";
  return text.empty() ? "" : row("by the addresses", text);
}

std::string peak_rows(const RankReport& rank, const SpaceReport& space) {
  const auto reserved = rank.reserved_peak_bytes();
  const auto peak_text = [&](int64_t bytes, const std::optional<int64_t>& of_segments) {
    const std::string_view bound = bound_prefix(rank.judgement);
    return fmt::format(
        "{}{} allocated{}", bound, bytes_text(bytes),
        of_segments ? fmt::format(", {}{} reserved", bound, bytes_text(*of_segments)) : "");
  };
  std::string text = row("peak", peak_text(space.peak_bytes, reserved));
  text += bands_row(rank);
  text += row("when", moment_text(rank, space.peak_at, space.peak_module));
  text += action_row(space.peak_at.action, space.peak_action);
  if (!rank.step_peak) return text;
  const auto& bytes = rank.step_peak->bytes;
  auto of_segments = reserved;
  if (of_segments) of_segments = bytes[static_cast<size_t>(Space::segment)];
  return text + row("peak of steps",
                    fmt::format("{}, from step {} on",
                                peak_text(bytes[static_cast<size_t>(rank.main)], of_segments),
                                rank.first_steady_step));
}

/// Returns the categories that have any bytes, the largest first.
std::vector<size_t> categories_by_size(const CategoryBytes& bytes) {
  std::vector<size_t> order;
  for (size_t i = 0; i < kCategories; ++i) {
    if (bytes[i] != 0) order.push_back(i);
  }
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return bytes[i]; });
  return order;
}

std::string category_rows(const RankReport& rank, const SpaceReport& space) {
  std::string text =
      fmt::format("\n  {:<20} {:>12} {:>12}\n", "alive at the peak", "given", "asked");
  const auto line = [&](std::string_view name, int64_t given, int64_t asked) {
    text += fmt::format("  {:<20} {:>12} {:>12} {:>8}\n", name, bytes_text(given),
                        bytes_text(asked), percent(given, space.peak_bytes));
  };
  for (const size_t i : categories_by_size(space.given))
    line(name_in(rank.header, static_cast<Category>(i)), space.given[i], space.asked[i]);
  line("total", space.peak_bytes, space.peak_asked_bytes);
  return text;
}

/// Returns ", 2 steps old", ", 0 to 2 steps old", or nothing if all are of the current step.
template <class Place>
std::string age_after_comma(const Place& place) {
  const std::string age = age_text(place.youngest_steps, place.oldest_steps);
  return age.empty() ? "" : ", " + age;
}

/// Returns the label and the action of a place, which may lack either.
std::string origin_text(const PlaceTotal& place) {
  const bool has_action = place.action_id >= 0;
  if (place.label.empty() && !has_action) return "without a line";
  const std::string action = has_action ? action_text(place.action_id, place.action) : "";
  if (place.label.empty()) return action;
  return shown(place.label) + (has_action ? ", " : "") + action;
}

/// Returns ": layers.0-7.up.weight", or nothing if nothing says what the blocks hold.
std::string named_text(const PlaceTotal& place) {
  return place.names.empty() ? "" : ": " + names_text(place.names);
}

/// Returns a row for each of the places with the most bytes, and one for all others.
std::string place_rows(const Header& header, const std::vector<NamedAllocation>& tensors) {
  const std::vector<PlaceTotal> places = place_totals(tensors);
  std::string text;
  for (size_t i = 0; i < std::min(kTensorRows, places.size()); ++i) {
    const PlaceTotal& place = places[i];
    text += fmt::format("  {:>12}  {:<24} {:<19} {}{}{}\n", bytes_text(place.given_bytes),
                        count_text(place), name_in(header, place.category), origin_text(place),
                        age_after_comma(place), named_text(place));
  }
  if (places.size() <= kTensorRows) return text;
  int64_t bytes = 0;
  for (size_t i = kTensorRows; i < places.size(); ++i) bytes += places[i].given_bytes;
  return text + fmt::format("  {:>12}  in {} more places\n", bytes_text(bytes),
                            places.size() - kTensorRows);
}

/// Returns what the peak holds from earlier steps, if that is more than a thousandth.
std::string kept_rows(const RankReport& rank, const SpaceReport& space) {
  constexpr int64_t kLeastShare = 1000;
  int64_t bytes = 0;
  for (const KeptPlace& place : rank.kept) bytes += place.given_bytes;
  if (bytes * kLeastShare < space.peak_bytes || bytes == 0) return {};
  std::string text = fmt::format("\n  kept from earlier steps: {}, {} of the peak\n",
                                 bytes_text(bytes), percent(bytes, space.peak_bytes));
  for (size_t i = 0; i < std::min(kKeptRows, rank.kept.size()); ++i) {
    const KeptPlace& place = rank.kept[i];
    const std::string caller = place.caller.empty() ? "" : ", called by " + shown(place.caller);
    text +=
        fmt::format("  {:>12}  {:<24} {:<19} {}{}{}\n", bytes_text(place.given_bytes),
                    place.count == 1 ? "" : fmt::format("{} blocks", place.count),
                    name_in(rank.header, place.category),
                    place.label.empty() ? "-" : shown(place.label), caller, age_after_comma(place));
  }
  if (rank.kept.size() <= kKeptRows) return text;
  return text + fmt::format("  in {} more places\n", rank.kept.size() - kKeptRows);
}

/// Returns the reserved memory that no tensor has: "13.00 MiB cached", or the sum and its parts.
std::string unused_text(const BlockTotals& blocks) {
  const std::array<std::pair<int64_t, std::string_view>, 4> parts = {
      {{blocks.split, "beside used blocks"},
       {blocks.cached, "cached"},
       {blocks.in_private, "in private pools"},
       {blocks.pending, "that other streams still use"}}};
  std::string text;
  int count = 0;
  for (const auto& [bytes, what] : parts) {
    if (bytes == 0) continue;
    text += fmt::format("{}{} {}", count++ == 0 ? "" : ", ", bytes_text(bytes), what);
  }
  if (count < 2) return text;
  const int64_t sum = blocks.split + blocks.cached + blocks.in_private + blocks.pending;
  return fmt::format("{} not ({})", bytes_text(sum), text);
}

/// Returns what the allocator held at a moment: what it gave to tensors, and what it kept besides.
/// Returns nothing if its segments were not recorded.
std::string held_row(const BlockTotals& blocks) {
  if (blocks.reserved == 0) return {};
  std::string text =
      fmt::format("{}: {} given", bytes_text(blocks.reserved), bytes_text(blocks.allocated()));
  if (blocks.rounding > 0) text += fmt::format(" ({} rounding)", bytes_text(blocks.rounding));
  const std::string unused = unused_text(blocks);
  if (!unused.empty()) text += ", " + unused;
  if (blocks.unplaced > 0) {
    text += fmt::format("; {} given lies outside its segments", bytes_text(blocks.unplaced));
  }
  return row("reserved then", text);
}

/// Returns "16th", "2nd".
std::string ordinal_text(int64_t number) {
  const int64_t last = number % 10, tens = number / 10 % 10;
  const std::string_view ending = tens == 1   ? "th"
                                  : last == 1 ? "st"
                                  : last == 2 ? "nd"
                                  : last == 3 ? "rd"
                                              : "th";
  return fmt::format("{}{}", number, ending);
}

/// Returns the row of steps that are higher than the others in a rhythm; nothing if there are none.
std::string pattern_row(const RankReport& rank) {
  const auto pattern = pattern_of_steps(rank);
  if (!pattern) return {};
  return row("", fmt::format("every {} step from {} on: {}, else at most {}",
                             ordinal_text(pattern->every), pattern->first_step,
                             bytes_text(pattern->high_bytes), bytes_text(pattern->low_bytes)));
}

std::string step_rows(const RankReport& rank) {
  if (rank.steps.empty()) return {};
  const auto main = static_cast<size_t>(rank.main);
  std::string peaks;
  for (size_t i = 0; i < std::min(kStepRows, rank.steps.size()); ++i) {
    peaks += (i == 0 ? "" : ", ") + bytes_text(rank.steps[i].bytes[main]);
  }
  const size_t more = rank.steps.size() - std::min(kStepRows, rank.steps.size());
  if (more > 0) peaks += fmt::format(", {} more", more);
  const auto highest = std::ranges::max_element(
      rank.steps, {}, [main](const StepPeak& step) { return step.bytes[main]; });
  if (highest - rank.steps.begin() >= static_cast<std::ptrdiff_t>(kStepRows)) {
    peaks +=
        fmt::format("; the most in step {}: {}", highest->step, bytes_text(highest->bytes[main]));
  }
  return row(fmt::format("steps from {}", rank.steps.front().step), peaks) + pattern_row(rank);
}

std::string phase_rows(const SpaceReport& space) {
  std::string peaks;
  for (size_t phase = 0; phase < kPhases; ++phase) {
    const auto& peak = space.phase_peaks[phase];
    if (!peak) continue;
    peaks +=
        fmt::format("{}{} {}", peaks.empty() ? "" : ", ", kWords<Phase>[phase], bytes_text(*peak));
  }
  return row("phases", peaks);
}

/// Returns "  name         1.00 MiB", a term of the sum above it; `what` explains it.
std::string term(std::string_view name, int64_t bytes, std::string_view what = "") {
  const std::string text = fmt::format("    {:<20}{:>12}", name, bytes_text(bytes));
  return what.empty() ? text + "\n" : fmt::format("{}  {}\n", text, what);
}

/// Returns the row of a term; nothing for one that was not recorded or is 0.
std::string term_if_any(std::string_view name, const std::optional<int64_t>& bytes,
                        std::string_view what = "") {
  return bytes.value_or(0) == 0 ? "" : term(name, *bytes, what);
}

/// Returns the rows of the device's used memory. The terms add up to it exactly, since the residual
/// is the rest.
std::string used_rows(const Ledger& ledger) {
  std::string text = bytes_row("device, used at most", ledger.device_used_bytes);
  text += term_if_any("before us", ledger.before_bytes, "other processes");
  text += term_if_any(ledger.before_bytes ? "context" : "context and others", ledger.context_bytes,
                      "when the recording began");
  text += term_if_any("given by the driver", ledger.driver_bytes);
  for (size_t i = 0; i < std::min(kLibraryRows, ledger.libraries.size()); ++i) {
    const auto& [library, bytes] = ledger.libraries[i];
    text += fmt::format("      {:>12}  {}\n", bytes_text(bytes), shown(library));
  }
  if (!ledger.residual_bytes) return text;
  return text + term("residual", *ledger.residual_bytes, "not explained");
}

/// Returns the rows of LibTorch's memory when most of the device was used.
std::string reserved_rows(const Ledger& ledger) {
  if (!ledger.device_used_bytes || !ledger.reserved_bytes) return {};
  const BlockTotals& blocks = ledger.blocks;
  std::string text = bytes_row("reserved by LibTorch", ledger.reserved_bytes);
  text += term_if_any("asked for", blocks.requested) + term_if_any("rounding", blocks.rounding);
  text += term_if_any("pending", blocks.pending, "freed, but other streams still use it");
  text += term_if_any("split", blocks.split, "free beside used blocks");
  text += term_if_any("private pools", blocks.in_private, "free there");
  return text + term_if_any("cached", blocks.cached);
}

// --- the parts of reserved memory ----------------------------------------------------------------

/// Returns " in 3 pieces of up to 2.00 MiB", and how many bytes the request cannot use for their
/// size.
std::string pieces_text(const FreePieces& pieces, int64_t asked_bytes) {
  std::string text = pieces.pieces == 1 ? " in one piece"
                                        : fmt::format(" in {} pieces of up to {}", pieces.pieces,
                                                      bytes_text(pieces.largest));
  const auto share = [&](int64_t bytes) {
    return bytes == pieces.bytes ? "" : bytes_text(bytes) + " ";
  };
  if (pieces.too_small > 0) text += fmt::format(", {}too small", share(pieces.too_small));
  if (pieces.other_sizes == 0) return text;
  const bool is_small = rounded_request(asked_bytes) <= kSmallRequestBytes;
  return text + fmt::format(", {}for requests {} {}", share(pieces.other_sizes),
                            is_small ? "above" : "up to", bytes_text(kSmallRequestBytes));
}

std::string places_text(const Header& header, const ReservedReport& reserved,
                        const std::vector<uint32_t>& places) {
  std::string text;
  for (size_t i = 0; i < std::min(kMostHolderPlaces, places.size()); ++i) {
    const ReservedPlace& place = reserved.places[places[i]];
    const std::string name =
        place.label.empty() ? std::string(name_in(header, place.category)) : shown(place.label);
    if (text.find(name) == text.npos) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::string more_rows(size_t count) {
  return count <= kHolderRows ? "" : fmt::format("      {:>12}  more\n", count - kHolderRows);
}

std::string pool_rows(const Header& header, const ReservedReport& reserved) {
  const std::vector<PrivatePool>& pools = reserved.parts.pools;
  if (pools.empty()) return {};
  const FreePieces& free = reserved.parts.private_pools;
  std::string text =
      term("private pools", free.bytes,
           fmt::format("free in {} private pool{} (CUDA graphs, MemPool), for their requests only",
                       pools.size(), pools.size() == 1 ? "" : "s"));
  for (size_t i = 0; i < std::min(kHolderRows, pools.size()); ++i) {
    const std::string places = places_text(header, reserved, pools[i].places);
    text += fmt::format("      {:>12}  free of {}{}{}\n", bytes_text(pools[i].free),
                        bytes_text(pools[i].reserved), places.empty() ? "" : ": ", places);
  }
  return text + more_rows(pools.size());
}

/// Returns ", 2 steps old", or nothing for blocks of the current step.
std::string holder_age_text(const ReservedReport& reserved, const SegmentHolder& holder) {
  const std::string age =
      age_text(reserved.at.step - holder.youngest_step, reserved.at.step - holder.oldest_step);
  return age.empty() ? "" : ", " + age;
}

std::string holder_rows(const Header& header, const ReservedReport& reserved) {
  const std::vector<SegmentHolder>& holders = reserved.parts.holders;
  std::string text;
  for (size_t i = 0; i < std::min(kHolderRows, holders.size()); ++i) {
    const SegmentHolder& holder = holders[i];
    const std::string places = places_text(header, reserved, holder.places);
    text +=
        fmt::format("      {:>12}  beside {} in {} block{}{}: {}\n", bytes_text(holder.free),
                    bytes_text(holder.used), holder.blocks, holder.blocks == 1 ? "" : "s",
                    holder_age_text(reserved, holder), places.empty() ? "several places" : places);
  }
  return text + more_rows(holders.size());
}

/// Returns a row for each part of reserved memory. They sum to it.
std::string part_rows(const Header& header, const ReservedReport& reserved) {
  const ReservedParts& parts = reserved.parts;
  const auto free_term = [&](std::string_view name, const FreePieces& pieces,
                             std::string_view what) {
    if (pieces.bytes == 0) return std::string();
    return term(name, pieces.bytes,
                fmt::format("free{}{}", pieces_text(pieces, reserved.asked_bytes), what));
  };
  std::string text = term_if_any("asked for", parts.requested);
  text += term_if_any("rounding", parts.rounding);
  text += term_if_any("pending", parts.pending, "freed, but other streams still use it");
  text += pool_rows(header, reserved);
  text += free_term("other streams", parts.other_streams, "; in segments of other streams");
  text += free_term("beside used blocks", parts.held, "") + holder_rows(header, reserved);
  text += free_term("whole", parts.whole, "; given back before an out-of-memory");
  if (parts.unplaced == 0) return text;
  return text + term("outside", parts.unplaced, "given, but in none of the segments");
}

/// Returns a moment and the request that came then, and what all reserved memory was.
std::string reserved_rows_at(const RankReport& rank, std::string_view title,
                             const ReservedReport& reserved) {
  std::string text =
      fmt::format("{}{}, {}", bound_prefix(rank.judgement), bytes_text(reserved.parts.reserved),
                  moment_text(rank, reserved.at, reserved.module));
  if (reserved.asked_bytes > 0) {
    text += fmt::format(
        ", for {} of {}", bytes_text(reserved.asked_bytes),
        reserved.label.empty() ? name_in(rank.header, reserved.category) : shown(reserved.label));
  }
  return "\n" + row(title, text) + part_rows(rank.header, reserved);
}

/// Returns the moment at which most memory was reserved and, if the cache was given back to serve a
/// request, the moment before that.
std::string reserved_peak_rows(const RankReport& rank) {
  std::string text;
  if (rank.reserved_peak) text += reserved_rows_at(rank, "reserved peak", *rank.reserved_peak);
  if (const OutOfMemory* const retry = rank.retry()) {
    text += reserved_rows_at(rank, "before a retry", retry->reserved);
  }
  return text;
}

/// Returns the ledger of the device, if the device or the driver was asked.
std::string ledger_rows(const Ledger& ledger) {
  if (!ledger.device_used_bytes && !ledger.driver_bytes) return {};
  return "\n" + bytes_row("device, total", ledger.device_total_bytes) + used_rows(ledger) +
         reserved_rows(ledger);
}

/// Returns a row for each of the places that the most pinned memory was given to.
std::string pinned_place_rows(const RankReport& rank) {
  const auto& space = rank.spaces[static_cast<size_t>(Space::pinned)];
  if (!space) return {};
  const std::vector<PlaceTotal> places = place_totals(space->tensors);
  std::string text;
  for (size_t i = 0; i < std::min(kPinnedRows, places.size()); ++i) {
    text +=
        fmt::format("    {:>12}  {:<24} {}\n", bytes_text(places[i].given_bytes),
                    count_text(places[i]), places[i].label.empty() ? "-" : shown(places[i].label));
  }
  return text;
}

/// Returns the rows of pinned memory: LibTorch's part by its own count, and the bytes that the
/// driver gave to any library.
std::string pinned_rows(const RankReport& rank) {
  std::string text;
  if (const auto& pinned = rank.spaces[static_cast<size_t>(Space::pinned)]) {
    text = fmt::format("at most {} from the driver", bytes_text(pinned->peak_bytes));
  }
  const CounterReport& held = rank.counters[static_cast<size_t>(Counter::pinned_held)];
  const CounterReport& used = rank.counters[static_cast<size_t>(Counter::pinned_used)];
  if (held.largest > 0) {
    text += fmt::format("{}{} held by LibTorch, {} in use", text.empty() ? "" : "; ",
                        bytes_text(held.largest), bytes_text(used.largest));
  }
  if (rank.pinned_use && rank.pinned_use->asked_bytes < rank.pinned_use->used_bytes) {
    text += fmt::format(" for {} asked: it rounds up", bytes_text(rank.pinned_use->asked_bytes));
  }
  return text.empty() ? "" : row("pinned memory", text) + pinned_place_rows(rank);
}

std::string counter_rows(const RankReport& rank) {
  const CounterReport& resident = rank.counters[static_cast<size_t>(Counter::resident_host)];
  std::string text;
  if (resident.count > 0) {
    text = row("host memory", fmt::format("at most {} resident, {} at the end",
                                          bytes_text(resident.largest), bytes_text(resident.last)));
  }
  text += pinned_rows(rank);
  if (rank.losses.count > 0) {
    text += row("loss", fmt::format("{:.4f} to {:.4f}, {} values", rank.losses.first,
                                    rank.losses.last, rank.losses.count));
  }
  return text;
}

std::string end_rows(const RankReport& rank, const SpaceReport& space) {
  std::string text = row("at the end", fmt::format("{} allocated", bytes_text(space.end_bytes)));
  text += row("events", fmt::format("{}, {} lost", rank.events, rank.judgement.lost_events));
  if (rank.unmatched > 0) {
    text += row("", fmt::format("{} of addresses that nothing had allocated", rank.unmatched));
  }
  return text;
}

std::string failure_rows(const RankReport& rank, const OutOfMemory& failure) {
  const Header& header = rank.header;
  std::string text =
      fmt::format("\n  out of memory: {} asked for, {}\n", bytes_text(failure.asked_bytes),
                  moment_text(rank, failure.at, failure.module));
  text += action_row(failure.at.action, failure.action);
  text += row("for", std::string(name_in(header, failure.category)) +
                         (failure.label.empty() ? "" : " of " + shown(failure.label)));
  text += row("free on the device", bytes_text(failure.device_free_bytes));
  text += row("would have fit", bytes_text(failure.would_fit_bytes));
  text += held_row(failure.blocks) + part_rows(header, failure.reserved);
  text += row("largest free block", bytes_text(failure.largest_free_bytes));
  text += row("allocated", bytes_text(failure.blocks.allocated()));
  for (const size_t i : categories_by_size(failure.given)) {
    text += fmt::format("    {:<20}{:>12}\n", name_in(header, static_cast<Category>(i)),
                        bytes_text(failure.given[i]));
  }
  return text + place_rows(header, failure.tensors);
}

std::string failures_text(const RankReport& rank) {
  std::string text;
  for (const OutOfMemory& failure : rank.out_of_memory) text += failure_rows(rank, failure);
  const int64_t more = rank.out_of_memory_count - static_cast<int64_t>(rank.out_of_memory.size());
  if (more > 0) text += fmt::format("  and {} more times before the last\n", more);
  return text;
}

std::string rank_text(const RankReport& rank) {
  const SpaceReport* space = rank.main_space();
  if (space == nullptr) {
    const std::string why = is_whole(rank.judgement)
                                ? ""
                                : "; the recording is not whole: " + judgement_text(rank.judgement);
    return fmt::format("{}: no allocation in {} events{}\n", title_of(rank), rank.events, why) +
           reserved_peak_rows(rank) + pinned_rows(rank);
  }
  std::string text = title_of(rank) + "\n";
  if (!rank.header.notice.empty()) text += row("notice", shown(rank.header.notice));
  const std::string levers = pulled_levers_text(rank.header.config);
  if (!levers.empty()) text += row("levers", shown(levers));
  text += judgement_rows(rank.judgement);
  const bool is_device = rank.main == Space::device;
  if (rank.growth) text += row("growth", growth_text(*rank.growth));
  for (const HoldingVariable& one : rank.holders) text += row("held by", holder_text(one));
  text += peak_rows(rank, *space);
  if (is_device) text += held_row(rank.blocks_at_peak);
  text += category_rows(rank, *space) + "\n" + place_rows(rank.header, space->tensors);
  text += kept_rows(rank, *space);
  if (is_device) text += reserved_peak_rows(rank);
  text += "\n" + step_rows(rank) + phase_rows(*space);
  if (is_device) text += ledger_rows(rank.ledger);
  return text + counter_rows(rank) + end_rows(rank, *space) + failures_text(rank);
}

/// Names the ranks in this report if others of their run are missing; a single rank's title says
/// so.
std::string missing_ranks_text(const std::vector<RankReport>& ranks) {
  if (ranks.size() < 2) return {};
  std::set<int32_t> there;
  int32_t world_size = 0;
  for (const RankReport& rank : ranks) {
    there.insert(rank.header.rank);
    world_size = std::max(world_size, rank.header.world_size);
  }
  if (std::ssize(there) >= world_size) return {};
  std::string names;
  for (const int32_t rank : there) names += fmt::format("{}{}", names.empty() ? "" : ", ", rank);
  return fmt::format("{} of {} ranks are in this report: {}\n", there.size(), world_size, names);
}

}  // namespace

std::string time_text(int64_t time_ns, bool has_times) {
  if (!has_times) return "no times";
  return fmt::format("after {:.3f} s", static_cast<double>(time_ns) / 1e9);
}

std::string action_text(int32_t id, const std::string& words) {
  if (id < 0) return "outside a pass";
  return words.empty() ? fmt::format("action {}", id) : fmt::format("{} {}", id, shown(words));
}

std::string out_of_memory_text(const RankReport& rank) {
  if (rank.out_of_memory.empty()) return {};
  return title_of(rank) + failure_rows(rank, rank.out_of_memory.back());
}

std::string reserved_text(const RankReport& rank) { return reserved_peak_rows(rank); }

std::string report_text(std::vector<RankReport> ranks) {
  std::ranges::stable_sort(ranks, std::greater(), &RankReport::peak_bytes);
  std::string text = missing_ranks_text(ranks);
  for (const RankReport& rank : ranks) text += (text.empty() ? "" : "\n") + rank_text(rank);
  return text;
}

}  // namespace shardlens::profiler
