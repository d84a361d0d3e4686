#include "profiler/null_device/checks/race_checker.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

namespace shardlens::profiler {

void RaceChecker::give(AddressRange range) { known_.add(range); }

void RaceChecker::take_back(AddressRange range) {
  known_.remove(range);
  freed_.remove(range);
  const auto first = tile(range);
  pieces_.erase(first, pieces_.lower_bound(range.end));
}

void RaceChecker::use(Handle stream, AddressRange range, bool writes, std::string_view what) {
  if (range.bytes() == 0) return;
  access(stream, range, writes, what);
}

void RaceChecker::allocate(Handle stream, AddressRange range) {
  if (range.bytes() == 0) return;
  freed_.remove(range);
  access(stream, range, true, "allocation");
}

void RaceChecker::free(AddressRange range) {
  if (range.bytes() > 0) freed_.add(range);
}

void RaceChecker::access(Handle stream, AddressRange range, bool writes, std::string_view what) {
  const Access now{order_.enqueue(stream), &*names_.emplace(what).first, writes};
  if (!known_.cover(range)) {
    report("use of unknown memory: " + text(now, range));
    return;
  }
  if (freed_.overlap(range)) {
    report("use of freed memory: " + text(now, range));
    return;
  }
  std::vector<Race> races;
  for (auto piece = tile(range); piece != pieces_.end() && piece->first < range.end; ++piece) {
    add_races(*piece, now, races);
  }
  for (const Race& race : races) {
    const std::string other = std::to_string(order_.stream_of(race.earlier.operation));
    report("race: " + text(now, race.range) + ", not ordered after " + *race.earlier.what +
           " (stream " + other + ") which " + (race.earlier.writes ? "writes it" : "reads it"));
  }
  remember(range, now);
}

void RaceChecker::split(uint64_t address) {
  const auto after = pieces_.upper_bound(address);
  if (after == pieces_.begin()) return;
  const auto piece = std::prev(after);
  if (piece->first == address || piece->second.end <= address) return;
  pieces_.emplace_hint(after, address, piece->second);
  piece->second.end = address;
}

RaceChecker::Pieces::iterator RaceChecker::tile(AddressRange range) {
  split(range.begin);
  split(range.end);
  uint64_t reached = range.begin;
  for (auto piece = pieces_.lower_bound(range.begin); reached < range.end; ++piece) {
    const uint64_t next = piece == pieces_.end() ? range.end : std::min(piece->first, range.end);
    if (next > reached) piece = pieces_.emplace_hint(piece, reached, Piece{next, {}});
    reached = piece->second.end;
  }
  return pieces_.lower_bound(range.begin);
}

void RaceChecker::add_races(const Pieces::value_type& piece, const Access& later,
                            std::vector<Race>& races) const {
  const AddressRange range{piece.first, piece.second.end};
  for (const Access& earlier : piece.second.accesses) {
    if (!earlier.writes && !later.writes) continue;
    if (order_.precedes(earlier.operation, later.operation)) continue;
    const auto continued = std::ranges::find_if(races, [&](const Race& race) {
      return race.range.end == range.begin &&
             race.earlier.operation.stream == earlier.operation.stream &&
             race.earlier.operation.number == earlier.operation.number;
    });
    if (continued == races.end()) {
      races.push_back({earlier, range});
    } else {
      continued->range.end = range.end;
    }
  }
}

void RaceChecker::remember(AddressRange range, const Access& access) {
  auto piece = pieces_.find(range.begin);
  if (access.writes) {
    piece->second = {range.end, {access}};
    pieces_.erase(std::next(piece), pieces_.lower_bound(range.end));
    return;
  }
  for (; piece != pieces_.end() && piece->first < range.end; ++piece) {
    std::vector<Access>& accesses = piece->second.accesses;
    std::erase_if(accesses, [&](const Access& earlier) {
      return !earlier.writes && earlier.operation.stream == access.operation.stream;
    });
    accesses.push_back(access);
  }
}

std::string RaceChecker::text(const Access& access, AddressRange range) const {
  std::ostringstream text;
  text << *access.what << " (stream " << order_.stream_of(access.operation) << ") "
       << (access.writes ? "writes" : "reads") << " 0x" << std::hex << range.begin << " + "
       << std::dec << range.bytes() << " bytes";
  return text.str();
}

void RaceChecker::report(std::string finding) {
  if (seen_.contains(finding)) return;
  if (findings_.size() == kMaxFindings) {
    ++left_out_;
    return;
  }
  seen_.insert(finding);
  findings_.push_back(std::move(finding));
}

std::vector<std::string> RaceChecker::take_findings() {
  std::vector<std::string> taken = std::exchange(findings_, {});
  const uint64_t left_out = std::exchange(left_out_, 0);
  if (left_out > 0) taken.push_back("and " + std::to_string(left_out) + " more");
  return taken;
}

}  // namespace shardlens::profiler
