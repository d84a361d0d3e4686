// The viewer without a window: recordings, state, and the user's actions on them. A window, a
// screenshot and a test all drive the same object.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/run.h"
#include "viewer/scene/lever_lanes.h"
#include "viewer/scene/plan_lanes.h"
#include "viewer/scene/scene.h"
#include "viewer/state/commands.h"
#include "viewer/state/facts.h"
#include "viewer/state/history.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// The size of the target of pictures, in pixels.
struct Canvas {
  int width = 0;
  int height = 0;
  int top = 0;             // covered by a menu
  double scale = 1;        // pixels per point
  bool is_figure = false;  // only plots and the legend

  bool operator==(const Canvas&) const = default;
};

class Presenter {
 public:
  /// Opens `state.files`; messages() says what could not be opened. `meanwhile` is called here and
  /// whenever recordings are read, as open_runs does.
  Presenter(ViewState state, std::string cache_folder, ReadProgress meanwhile = {});

  const ViewState& state() const { return state_; }
  const std::vector<Run>& runs() const { return opened_.runs; }
  const std::vector<std::string>& messages() const { return messages_; }
  const Facts& facts();

  /// Chooses the most telling view of recordings that were just opened: the focus is on the first
  /// run that is compared with the baseline. If all memory has one category, as in PyTorch's
  /// snapshots, plots show blocks and lists show names.
  void choose_view();
  /// Adds runs to the open ones, and keeps the state. reload() reads all recordings again.
  void open(const std::vector<std::string>& paths);
  void reload();
  /// Forgets the messages, once the user has read them.
  void forget_messages();
  /// Reads recordings again that have grown since. Returns true if any has.
  bool follow_recordings();
  /// Sets how long a picture waits for a plan before it shows the previous one; an hour unless this
  /// is called.
  void set_patience(std::chrono::milliseconds most) { patience_ = most; }
  /// Sets how long a picture waits for programs that are recorded with levers; an hour unless this
  /// is called.
  void set_lever_patience(std::chrono::milliseconds most) { lever_patience_ = most; }
  /// Takes a plan that a picture did not wait for. Returns true if there is something new to draw.
  bool follow_plan();
  bool is_planning() const { return plan_lanes_.news().is_stale; }
  /// Takes what programs that are recorded with levers have come to. Returns true if there is
  /// something new to draw.
  bool follow_levers();
  bool is_recording() const { return lever_lanes_.is_busy(); }
  /// Sets the file of `shardlens-record`; the one beside this program unless this is called.
  void record_with(std::string program) { lever_lanes_.record_with(std::move(program)); }
  /// Replaces the state with that of a session file, and opens its recordings.
  void restore(const ViewState& state);

  /// Runs the command and remembers the state for undo. Returns what the command asks of the
  /// surrounding program; undo and redo are done here.
  Request perform(const Command& command);
  /// Sets the search text. Throws std::invalid_argument for a search that cannot be parsed.
  void set_search(const std::string& text);
  /// Adds a note at the cursor, or else in the middle of the view.
  void add_note(const std::string& text);

  void go_to_note(size_t note);
  void remove_note(size_t note);
  /// Renames the focused run; an empty name restores the original one.
  void rename(const std::string& name);

  /// Sets the range of x that is shown.
  void show(const Range& view);

  /// These take the pointer's position, in pixels of the last picture.
  void press(float x, float y);
  void drag(float x);
  void release();
  /// Moves the view to the right and, over a plot with a zoomed y axis, up.
  void pan(float x, float y, float pixels, float pixels_up);
  /// Zooms the y axes at the pointer.
  void wheel_heights(float x, float y, float notches);
  /// Zooms at the pointer, or scrolls the list or the lanes under it; `notches` upwards zoom in.
  void wheel(float x, float y, float notches);
  /// Returns the full text about the point under the pointer; empty if there is none.
  std::string hover_text(float x, float y);

  /// Returns the picture, made again only if something has changed. It is valid until the next
  /// call.
  const Picture& picture(const Canvas& canvas, const Fonts& fonts);
  /// Returns the image of the last picture: everything except its text.
  const Image& ground() const { return ground_; }
  int64_t pictures_made() const { return pictures_made_; }
  int64_t images_rastered() const { return cache_.raster_count(); }

  /// Returns the selection as text, with its whole stack; empty if nothing is selected.
  std::string pick_text();
  /// Returns the marked call in the stack of the selected block, if the call has a file.
  std::optional<profiler::TreePlace> pick_call();

  /// Returns the table of categories as CSV, as it is on screen.
  std::string table_csv();

 private:
  SceneInput input();
  void refresh();
  bool update_plans(std::chrono::milliseconds most);
  bool update_levers(std::chrono::milliseconds most);
  void add_run(Run run);
  std::vector<std::string> lever_names() const;
  Request run_levers();
  void run_or_open(const std::vector<profiler::Lever>& levers);
  void press_lever(const Area& area);
  void name_runs();
  void refresh_plan_warps();
  void refresh_hits();
  void refresh_facts();
  void count_alive();
  void count_tree();
  double x_of_event(const Area& event) const;
  void turn_stack(int64_t calls);
  std::optional<int64_t> first_event() const;
  std::optional<int64_t> time_under(const Area& area, float x) const;
  const Span* span_under(const Area& area, float x, float y) const;
  std::string span_text(const Area& area, float x, const Span& span) const;
  void go_to_moment(const Area& area, float x, float y, ViewState& next) const;
  void select_span(const Area& area, float x, float y, ViewState& next) const;
  void select_interval(const Area& area, int64_t begin_ns, int64_t end_ns, ViewState& next) const;
  std::optional<JoinedTrace::Work> work_under(const Area& area, float x, float y) const;
  std::string work_text(const Area& area, float x, float y) const;
  void select_failure(const Area& area, ViewState& next) const;
  void begin_motion();
  void keep_place(const ViewState& before, const Warps& warps);
  void press_overview(const Area& area);
  void press_lane(const Area& area, float y, ViewState& next) const;
  void select(const Area& area, float x, float y, ViewState& next);
  void clamp_state();
  void align_by_what_there_is();
  /// Returns the area of the last picture that is at a point; nullptr if there is none, or if other
  /// recordings are open now.
  const Area* area_under(float x, float y);
  std::optional<double> x_at(const Area& area, float x) const;
  void change(const ViewState& next);
  void drag_control(float x);
  std::string outcome_of(const Area& area);

  ViewState state_;
  std::string cache_folder_;
  ReadProgress meanwhile_;
  OpenedRuns opened_;
  ShownMemory opened_memory_{};
  Clock opened_clock_{};
  std::vector<std::string> opened_without_;  // the runs that were closed then
  PlanLanes plan_lanes_;
  std::chrono::milliseconds patience_ = std::chrono::hours(1);
  LeverLanes lever_lanes_;
  std::chrono::milliseconds lever_patience_ = std::chrono::hours(1);
  std::vector<std::string> messages_;  // of files and of plans
  History history_;
  uint64_t generation_ = 0;  // changes with opened_ and its plans

  // Derived from recordings and state; made again when these change.
  Warps warps_;
  std::vector<JoinedWarp> plan_warps_;  // one for each run
  std::string plan_warps_key_;
  Facts facts_;
  std::string facts_key_;  // the inputs that they were made of
  std::vector<SearchHits> hits_;
  struct WarpInputs {
    uint64_t generation = 0;
    Alignment alignment{};
    size_t baseline = 0;
    bool operator==(const WarpInputs&) const = default;
  };
  std::optional<WarpInputs> warps_made_;
  std::optional<std::pair<uint64_t, std::string>> hits_made_;

  ImageCache cache_;
  Memo<std::string> outcome_;  // of the last control under the pointer
  Picture picture_;
  Image ground_;
  Canvas canvas_;
  std::optional<ViewState> pictured_;
  uint64_t pictured_generation_ = 0;
  uint64_t pictured_levers_ = 0;
  size_t pictured_runs_ = 0;
  int64_t pictures_made_ = 0;

  std::optional<Area> pressed_;
  bool is_moving_ = false;    // the last act was a turn of the wheel or a pan
  bool frames_view_ = false;  // by a drag over the minimap that began unzoomed
  double pressed_x_ = 0;
  float pressed_at_ = 0;
};

}  // namespace shardlens::viewer
