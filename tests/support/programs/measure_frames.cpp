// Measures what tests/bench/frame_time prints: how long recordings take to open, for the first time
// and again, and how long frames take under the installed OpenGL, while zooming and while nothing
// changes; or, as `measure_frames what-if CONFIG.json`, how long the picture takes after a control
// of the what-if panel was turned. All panels are shown.

#include <GL/gl.h>
#include <backends/imgui_impl_opengl3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "viewer/app/gl.h"
#include "viewer/app/imgui_session.h"
#include "viewer/app/offscreen.h"
#include "viewer/scene/presenter.h"
#include "viewer/state/commands.h"
#include "viewer/ui/interface.h"

namespace {

using namespace shardlens;
using namespace shardlens::viewer;
using Clock = std::chrono::steady_clock;

constexpr int kWidth = 1600;
constexpr int kHeight = 900;
constexpr int kFrames = 230;
constexpr int kWhatIfs = 80;
constexpr int kWarmUp = 5;  // llvmpipe compiles its shaders in the first frames

/// Time on the clock, and on all cores together: on a busy machine only the second is reliable.
struct FrameTime {
  double ms = 0;
  double core_ms = 0;
};

double core_ms() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e6;
}

FrameTime measure_time(const std::function<void()>& work) {
  const auto begin = Clock::now();
  const double begin_core_ms = core_ms();
  work();
  return {std::chrono::duration<double, std::milli>(Clock::now() - begin).count(),
          core_ms() - begin_core_ms};
}

void print_frames(const char* what, int frames, const std::function<void(int)>& frame) {
  std::vector<double> ms;
  std::vector<double> core;
  for (int i = -kWarmUp; i < frames; ++i) {
    const FrameTime one = measure_time([&] { frame(i); });
    if (i < 0) continue;
    ms.push_back(one.ms);
    core.push_back(one.core_ms);
  }
  std::ranges::sort(ms);
  std::ranges::sort(core);
  const size_t p95 = ms.size() * 95 / 100;
  fmt::print("{:24} median {:6.1f} ms, p95 {:6.1f} ms; on all cores {:6.1f} and {:6.1f} ms\n", what,
             ms[ms.size() / 2], ms[p95], core[core.size() / 2], core[p95]);
}

class Frames {
 public:
  explicit Frames(Presenter& presenter)
      : presenter_(presenter),
        target_(kWidth, kHeight),
        session_(""),
        interface_(presenter, session_.fonts(), backdrop_) {
    ImGui::GetIO().DisplaySize = {kWidth, kHeight};
    ImGui::GetIO().DeltaTime = 1.0F / 60;
  }

  void draw() {
    session_.set_scale(presenter_.state().zoom);
    ImGui_ImplOpenGL3_NewFrame();
    ImGui::NewFrame();
    interface_.draw({kWidth, kHeight, 1, true});
    ImGui::Render();
    session_.render();
    glFinish();
  }

  /// Points at the middle of the first plot.
  void aim() {
    for (const Area& area : presenter_.picture(kCanvas, plain_fonts(1)).areas) {
      if (area.kind != Area::Kind::lane) continue;
      x_ = area.box.x + area.box.w / 2;
      y_ = area.box.y + area.box.h / 2;
      return;
    }
  }

  /// Zooms in and out around that point: every frame shows another view.
  void zoom(int frame) {
    const int phase = (frame + kWarmUp) % 80;
    const float notches = phase < 40 ? 0.5F : -0.5F;
    presenter_.wheel(x_, y_, notches);
    draw();
  }

 private:
  static constexpr Canvas kCanvas{kWidth, kHeight, 20, 1};  // the menu takes 20 pixels

  float x_ = 0;
  float y_ = 0;
  Presenter& presenter_;
  OffscreenContext target_;
  ImGuiSession session_;
  GlBackdrop backdrop_;
  Interface interface_;
};

}  // namespace

namespace {

/// A control is turned before every frame, so that every frame needs a new plan.
int measure_what_if(const std::string& config) {
  constexpr std::array kControls = {
      "whatif.batch.more", "whatif.offload.next", "whatif.reshard.next",   "whatif.dtype.next",
      "whatif.batch.less", "whatif.world.more",   "whatif.recompute.next", "whatif.world.less"};
  ViewState state;
  state.files = {config};
  Presenter presenter(state, "");
  Frames frames(presenter);
  frames.draw();
  presenter.perform(*find_command("whatif"));
  frames.draw();
  print_frames("frame after a what-if", kWhatIfs, [&](int frame) {
    const size_t turn = static_cast<size_t>(frame + kWarmUp) % kControls.size();
    presenter.perform(*find_command(kControls[turn]));
    frames.draw();
  });
  return presenter.messages().empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    fmt::print(stderr,
               "usage: measure_frames CACHE_FOLDER FILE.slp...\n"
               "       measure_frames what-if CONFIG.json\n");
    return 2;
  }
  if (argv[1] == std::string("what-if")) return measure_what_if(argv[2]);
  ViewState state;
  state.files.assign(argv + 2, argv + argc);
  const std::string cache = argv[1];
  const FrameTime first = measure_time([&] { Presenter(state, cache); });
  const FrameTime again = measure_time([&] { Presenter(state, cache); });
  Presenter presenter(state, cache);
  presenter.choose_view();  // as when a window opens
  int64_t events = 0;
  for (const Run& run : presenter.runs()) events += run.at_peak().lane.info().events;
  fmt::print("{} lanes, {} events\n", presenter.runs().size(), events);
  const auto print_opening = [](const char* what, const FrameTime& one) {
    fmt::print("{:24} {:13.0f} ms; on all cores {:18.0f} ms\n", what, one.ms, one.core_ms);
  };
  print_opening("open for the first time", first);
  print_opening("open again", again);
  Frames frames(presenter);
  frames.aim();
  print_frames("frame while zooming", kFrames, [&](int frame) { frames.zoom(frame); });
  print_frames("frame of a still view", kFrames, [&](int) { frames.draw(); });
  print_frames("... while lanes scroll", kFrames, [&](int frame) {
    presenter.perform(*find_command(frame % 20 < 10 ? "lanes.down" : "lanes.up"));
    frames.draw();
  });
  presenter.perform(*find_command("tree"));
  frames.aim();
  print_frames("... with flame graph", kFrames, [&](int frame) { frames.zoom(frame); });
  presenter.perform(*find_command("tree.form"));
  presenter.perform(*find_command("pick.next"));
  print_frames("... with list, selected", kFrames, [&](int frame) { frames.zoom(frame); });
  return presenter.messages().empty() ? 0 : 1;
}
