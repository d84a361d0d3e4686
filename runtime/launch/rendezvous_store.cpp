#include "runtime/launch/rendezvous_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>
#include <sstream>
#include <utility>

#include "runtime/launch/watched_signals.h"

namespace shardlens::runtime {

namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kReason = "reason";
constexpr const char* kLeft = "left";
constexpr const char* kLine = "line";
constexpr const char* kStop = "stop";
constexpr const char* kHello = "hello";
constexpr const char* kWelcome = "welcome";

/// The longest wait for ranks that may be dead.
constexpr auto kStoreGrace = std::chrono::seconds(3);

/// The longest wait of a failed attempt for ranks that are still starting: they would report a
/// lost store instead of the failure.
constexpr auto kStartGrace = std::chrono::seconds(10);

/// The longest wait for all ranks to choose. A rank's thread answers within a beat, however long
/// the rank's step takes.
constexpr auto kChoice = std::chrono::seconds(10);

/// The pause between two looks for ranks that join.
constexpr auto kWelcomePause = std::chrono::milliseconds(10);

/// Returns how often a rank reports: less often with more ranks, since one store serves all.
std::chrono::milliseconds beat_of(int world_size) {
  return std::chrono::milliseconds(std::max(100, 2 * world_size));
}

/// Returns how long a rank that has joined may report nothing until it is taken for dead.
std::chrono::milliseconds longest_silence(int world_size) {
  return std::max<std::chrono::milliseconds>(kStoreGrace, 30 * beat_of(world_size));
}

/// Returns the signals that the mirror thread takes.
sigset_t stop_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : kStopSignals) ::sigaddset(&signals, signal);
  return signals;
}

/// Blocks the signals for this thread and threads that it starts. Returns the mask of before.
sigset_t block_signals() {
  const sigset_t signals = stop_signals();
  sigset_t before;
  ::pthread_sigmask(SIG_BLOCK, &signals, &before);
  return before;
}

timespec as_timespec(std::chrono::milliseconds time) {
  return {.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
}

GlooStoreOptions meeting_options(const Membership& place, std::chrono::milliseconds deadline) {
  return {.host = place.host,
          .port = place.port,
          .rank = place.rank,
          .world_size = place.world_size,
          .prefix = "shardlens/" + place.start_id,
          .deadline = deadline};
}

bool serves(const Membership& place) { return place.rank == 0 && !place.agent_serves; }

std::unique_ptr<GlooStore> open_store(const Membership& place, std::chrono::milliseconds deadline) {
  const GlooStoreOptions options = meeting_options(place, deadline);
  return serves(place) ? GlooStore::serve(options) : GlooStore::connect(options);
}

/// Writes "8 2 --batch 0: ...": kind, rank, reason.
std::string note_text(const AbortNote& note) {
  const std::string reason = note.reason();  // read first: it waits until kind and rank are set
  return std::to_string(static_cast<uint32_t>(note.fault())) + ' ' + std::to_string(note.rank()) +
         ' ' + reason;
}

Failure failure_of(const std::string& text) {
  std::istringstream words(text);
  uint32_t fault = 0;
  int rank = -1;
  words >> fault >> rank;
  words.get();
  return {static_cast<Fault>(fault), std::string(std::istreambuf_iterator<char>(words), {}), rank};
}

[[noreturn]] void fail_as(const AbortNote& note) {
  const std::string reason = note.reason();
  throw CommunicationError(reason, note.fault(), note.rank());
}

std::string with_rank(const std::string& name, int rank) {
  return name + "/" + std::to_string(rank);
}

/// Returns a word that no other attempt and no other rank has.
std::string new_word() {
  std::random_device random;
  std::ostringstream word;
  word << std::hex << ::getpid() << '-' << random() << random();
  return word.str();
}

// [Note: hello]
// A store that torchrun's agent serves outlives an attempt, with all names that were set in it. No
// count tells one attempt from the next: each agent counts only the restarts that it has caused,
// and the agent of a replaced node begins at 0. So rank 0 makes up a word for each attempt, and
// prefixes the attempt's names with it. Each other rank makes up a word, too, and says hello with
// it; rank 0 answers with that word and the attempt's. A rank takes no answer to another word, so
// it cannot join an earlier attempt. Rank 0 answers until it has seen every rank's line, and
// answers again if a rank comes with a new word, because its old one may be of an earlier attempt.

/// Returns the name of the attempt. An attempt that has lost a rank may notice that up to a
/// deadline later than the rank comes back.
std::string name_of_attempt(GlooStore& meeting, const Membership& place, const Board& board,
                            std::chrono::milliseconds deadline) {
  const std::string own = new_word();
  meeting.set(with_rank(kHello, place.rank), own + ' ' + std::to_string(place.restarts));
  if (place.rank == 0) return own;
  std::string attempt;
  wait_for_peer(board, place.rank, 0, "answer this rank's hello", 2 * deadline, [&] {
    const auto answer = meeting.find(with_rank(kWelcome, place.rank));
    std::string answered;
    std::istringstream words(answer.value_or(""));
    return words >> answered >> attempt && answered == own;
  });
  return attempt;
}

std::vector<int> all_but_first(int world_size) {
  std::vector<int> ranks(static_cast<size_t>(world_size) - 1);
  std::iota(ranks.begin(), ranks.end(), 1);
  return ranks;
}

}  // namespace

RendezvousStore::RendezvousStore(const Membership& place, const Board& board,
                                 std::chrono::milliseconds deadline)
    : place_(place),
      board_(board),
      deadline_(deadline),
      signals_before_(block_signals()),
      meeting_(open_store(place, deadline)),
      attempt_(name_of_attempt(*meeting_, place, board, deadline)),
      gloo_(meeting_->below(attempt_)),
      mirror_meeting_(GlooStore::connect(meeting_options(place, deadline))),
      mirrored_(mirror_meeting_->below(attempt_)) {
  if (place.rank == 0) strangers_ = all_but_first(place.world_size);
  board_.join(place.rank, ::getpid());
  mirror_ = std::thread([this] { mirror(); });
}

RendezvousStore::~RendezvousStore() {
  if (!has_left_) leave(false);
}

std::string RendezvousStore::get(const std::string& name, int peer, const std::string& what) const {
  std::optional<std::string> words;
  Pulse pulse{.peer = peer};
  wait_for_peer(board_, place_.rank, peer, what, deadline_, [&] {
    words = gloo_->find(name);
    if (!words) expect_alive(pulse, what);
    return words.has_value();
  });
  return *words;
}

void RendezvousStore::expect_alive(Pulse& pulse, const std::string& what) const {
  const auto now = Clock::now();
  if (now < pulse.next_look) return;
  pulse.next_look = now + beat_of(place_.world_size);
  const int64_t before = std::exchange(pulse.beat, 0);
  see_line(pulse.peer, pulse.beat, *gloo_);
  if (pulse.beat == 0 || pulse.beat != before) pulse.last_change = now;
  const auto longest = longest_silence(place_.world_size);
  if (now - pulse.last_change <= longest) return;
  throw CommunicationError(
      fmt::format("rank {}, rendezvous: rank {} did not {}, and has reported nothing for {} s",
                  place_.rank, pulse.peer, what, longest.count() / 1000),
      Fault::hung, pulse.peer);
}

void RendezvousStore::wait_for_all(const std::string& name, const std::string& what) const {
  for (int peer = 0; peer < place_.world_size; ++peer) get(with_rank(name, peer), peer, what);
}

int RendezvousStore::most_restarts() const {
  wait_for_all(kLine, "join");
  int most = place_.restarts;
  for (int rank = 0; rank < place_.world_size; ++rank) {
    std::istringstream words(meeting_->find(with_rank(kHello, rank)).value_or(""));
    std::string word;
    int restarts = 0;
    if (words >> word >> restarts) most = std::max(most, restarts);
  }
  return most;
}

/// Answers ranks that have not joined this attempt. Returns true if some are still missing.
bool RendezvousStore::welcome() {
  std::erase_if(strangers_,
                [&](int rank) { return mirrored_->find(with_rank(kLine, rank)).has_value(); });
  for (const int rank : strangers_) {
    const std::string hello = mirror_meeting_->find(with_rank(kHello, rank)).value_or("");
    const std::string word = hello.substr(0, hello.find(' '));
    if (!word.empty()) mirror_meeting_->set(with_rank(kWelcome, rank), word + ' ' + attempt_);
  }
  return !strangers_.empty();
}

void RendezvousStore::mirror() {
  const sigset_t signals = stop_signals();
  int64_t beat = 0, beat_of_server = 0;
  try {
    while (!ends_) {
      carry_reason();
      set_line(++beat);
      if (lost_server()) see_line(*lost_server(), beat_of_server, *mirrored_);
      choose_stop();
      const timespec pause = as_timespec(welcome() ? kWelcomePause : beat_of(place_.world_size));
      take_signal(::sigtimedwait(&signals, nullptr, &pause));
    }
    carry_reason();
  } catch (const std::exception& error) {
    if (!ends_) raise_lost_store(error.what());
    is_told_ = true;  // no rank is left to tell
  }
}

void RendezvousStore::raise_lost_store(const std::string& what) {
  const std::optional<int> server = lost_server();
  if (!server) return board_.abort_note().raise(what, Fault::connection);
  const RankStatus last = board_.read(*server);
  std::ostringstream text;
  text << what << "; rank " << *server << ", which served it, no longer responds";
  if (last.pid != 0) text << ", last seen in " << to_string(last.phase) << ", step " << last.step;
  board_.abort_note().raise(text.str(), Fault::lost, *server);
}

void RendezvousStore::take_signal(int signal) {
  if (signal <= 0) return;
  if (may_stop_ && !wants_stop_) return ask_to_stop();
  std::string text = fmt::format("rank {} was ended by signal {}", place_.rank, signal);
  if (!strangers_.empty()) {
    text += fmt::format(" while it waited for rank{} {}, which {} not joined",
                        strangers_.size() == 1 ? "" : "s", fmt::join(strangers_, ", "),
                        strangers_.size() == 1 ? "has" : "have");
  }
  board_.abort_note().raise(text, Fault::interrupted, place_.rank);
}

void RendezvousStore::ask_to_stop() { wants_stop_ = true; }

// [Note: one step for all hosts]
// Ranks reach the end of a step at different times, and all must stop after the same one. Once the
// store knows that a rank wants to stop, each rank's thread reports how many steps that rank has
// done, and holds the rank at the next boundary. When all have reported, the last step is the one
// after the furthest: no rank can have begun a later one, since a step needs all ranks.
void RendezvousStore::choose_stop() {
  {
    const std::lock_guard lock(stop_mutex_);
    if (stop_step_ != kNoStop) return;
  }
  if (!is_choosing_) {
    if (wants_stop_) mirrored_->set(kStop, "wanted");
    if (!mirrored_->find(kStop)) return;
    int64_t boundary = 0;
    {
      const std::lock_guard lock(stop_mutex_);
      is_choosing_ = true;
      boundary = boundary_;
    }
    mirrored_->set(with_rank(kStop, place_.rank), std::to_string(boundary));
  }
  int64_t furthest = 0;
  for (int rank = 0; rank < place_.world_size; ++rank) {
    const std::optional<std::string> told = mirrored_->find(with_rank(kStop, rank));
    if (!told) return;
    furthest = std::max<int64_t>(furthest, std::stoll(*told));
  }
  const std::lock_guard lock(stop_mutex_);
  stop_step_ = furthest + 1;
}

bool RendezvousStore::must_stop(int64_t step) {
  const auto last_moment = Clock::now() + std::min<std::chrono::milliseconds>(deadline_, kChoice);
  for (;;) {
    {
      const std::lock_guard lock(stop_mutex_);
      boundary_ = is_choosing_ ? boundary_ : step;
      if (!is_choosing_ || stop_step_ != kNoStop) return step >= stop_step_;
    }
    if (board_.abort_note().is_raised()) fail_as(board_.abort_note());
    if (Clock::now() > last_moment) {
      throw CommunicationError("rank " + std::to_string(place_.rank) + ", step " +
                                   std::to_string(step) +
                                   ": the ranks did not agree in time on where to stop",
                               Fault::hung);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

void RendezvousStore::set_line(int64_t beat) {
  const RankStatus status = board_.read(place_.rank);
  std::ostringstream line;
  line << beat << ' ' << static_cast<int32_t>(status.phase) << ' ' << status.step << ' '
       << status.action << ' ' << status.pid;
  mirrored_->set(with_rank(kLine, place_.rank), line.str());
}

/// Carries the reason from the board to the store, or back.
void RendezvousStore::carry_reason() {
  if (is_told_) return;
  AbortNote& note = board_.abort_note();
  const std::optional<std::string> first =
      note.is_raised() ? mirrored_->set_first(kReason, note_text(note)) : mirrored_->find(kReason);
  if (!first) return;
  first_failure_ = failure_of(*first);
  note.raise(first_failure_->what(), first_failure_->fault(), first_failure_->rank());
  is_told_ = true;
}

Failure RendezvousStore::first_failure() const {
  const auto last_moment = Clock::now() + kStoreGrace;
  while (!is_told_ && Clock::now() < last_moment) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  if (is_told_ && first_failure_) return *first_failure_;
  return failure_of(note_text(board_.abort_note()));
}

/// Copies a rank's line from the store to the board.
void RendezvousStore::see_line(int rank, int64_t& beat, GlooStore& store) const {
  const std::optional<std::string> line = store.find(with_rank(kLine, rank));
  if (!line) return;
  RankStatus status;
  int32_t phase = 0;
  std::istringstream words(*line);
  words >> beat >> phase >> status.step >> status.action >> status.pid;
  if (rank == place_.rank) return;
  board_.join(rank, status.pid);
  board_.enter(rank, static_cast<RankPhase>(phase), status.step, status.action);
}

std::vector<int64_t> RendezvousStore::ask_beats() const {
  std::vector<int64_t> beats(static_cast<size_t>(place_.world_size), 0);
  for (int rank = 0; rank < place_.world_size; ++rank) see_line(rank, beats[rank], *gloo_);
  return beats;
}

/// Returns the rank that has served the store, for when the store is gone. Returns nothing if an
/// agent has, whose end says nothing about a rank.
std::optional<int> RendezvousStore::lost_server() const {
  return place_.agent_serves || place_.rank == 0 ? std::nullopt : std::optional(0);
}

std::vector<int> RendezvousStore::silent_ranks() const {
  std::vector<int> silent;
  try {
    const std::vector<int64_t> before = ask_beats();
    std::this_thread::sleep_for(5 * beat_of(place_.world_size));
    const std::vector<int64_t> after = ask_beats();
    for (int rank = 0; rank < place_.world_size; ++rank) {
      if (rank != place_.rank && after[rank] == before[rank]) silent.push_back(rank);
    }
  } catch (const CommunicationError&) {
    // Without a store no other rank can be asked.
    if (const auto server = lost_server()) return {*server};
  }
  return silent;
}

Failure RendezvousStore::with_silent(
    const Failure& failure, const std::function<std::string(const RankStatus&)>& place_of) const {
  if (board_.abort_note().is_raised()) return failure;
  const std::vector<int> silent = silent_ranks();
  if (silent.empty()) return failure;
  std::string text = failure.what();
  for (const int rank : silent) {
    const RankStatus last = board_.read(rank);
    text +=
        "; rank " + std::to_string(rank) +
        (last.pid == 0 ? " has not joined" : " no longer responds, last seen in " + place_of(last));
  }
  return {Fault::lost, text, silent.front()};
}

void RendezvousStore::leave(bool is_well) {
  has_left_ = true;
  ends_ = true;
  mirror_.join();
  ::pthread_sigmask(SIG_SETMASK, &signals_before_, nullptr);
  try {
    int64_t left = gloo_->add(kLeft, 1);
    const auto begin = Clock::now();
    const auto is_needed = [&] {
      const std::chrono::milliseconds grace = welcome() ? kStartGrace : kStoreGrace;
      const bool is_awaited = !strangers_.empty() || (serves(place_) && left < place_.world_size);
      return is_awaited && Clock::now() < begin + (is_well ? deadline_ : grace);
    };
    while (is_needed()) {
      std::this_thread::sleep_for(kWelcomePause);
      left = gloo_->add(kLeft, 0);
    }
  } catch (const CommunicationError&) {
    // The store ended before this rank, so no rank waits for this one.
  }
}

}  // namespace shardlens::runtime
