#include "viewer/app/window.h"

#include <GLFW/glfw3.h>
#include <backends/imgui_impl_glfw.h>
#include <backends/imgui_impl_opengl3.h>
#include <fmt/format.h>
#include <imgui.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include "viewer/app/editor.h"
#include "viewer/app/figure.h"
#include "viewer/app/gl.h"
#include "viewer/app/imgui_session.h"
#include "viewer/app/recent.h"
#include "viewer/figure/png.h"
#include "viewer/page/page.h"
#include "viewer/state/session.h"
#include "viewer/ui/interface.h"

namespace shardlens::viewer {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kIdleSeconds = 0.5;                // between looks at live recordings,
constexpr double kPlanningSeconds = 0.02;           // at a plan that is being made,
constexpr double kRecordingSeconds = 0.1;           // and at a program that is being recorded
constexpr std::chrono::milliseconds kPatience(30);  // how long a frame waits for a plan
constexpr std::chrono::seconds kMessageTime(15);    // to show what could not be opened
constexpr const char* kInstead = "use --export page.html, --screenshot out.png or --report out.txt";
constexpr int kRestlessFrames = 3;  // drawn after an event: ImGui needs a few to settle

/// Returns an unused file name that begins with the session's name, so that no earlier export is
/// overwritten.
std::string export_name(const std::string& session_file, const std::string& ending) {
  namespace fs = std::filesystem;
  const std::string stem = fs::path(session_file).stem().stem().string();
  std::string name = stem + ending;
  for (int i = 2; fs::exists(name); ++i) name = fmt::format("{}-{}{}", stem, i, ending);
  return name;
}

std::string last_glfw_error() {
  const char* text = nullptr;
  glfwGetError(&text);
  return text != nullptr ? text : "no reason given";
}

/// GLFW's library with one window.
class Window {
 public:
  explicit Window(const WindowOptions& options) {
    if (glfwInit() != GLFW_TRUE) {
      throw std::runtime_error(
          fmt::format("cannot open a window: {}; {}", last_glfw_error(), kInstead));
    }
    glfwWindowHint(GLFW_CONTEXT_VERSION_MAJOR, 3);
    glfwWindowHint(GLFW_CONTEXT_VERSION_MINOR, 3);
    glfwWindowHint(GLFW_OPENGL_PROFILE, GLFW_OPENGL_CORE_PROFILE);
    window_ = glfwCreateWindow(options.width, options.height, "Shardlens", nullptr, nullptr);
    if (window_ == nullptr) {
      const std::string why = last_glfw_error();
      glfwTerminate();
      throw std::runtime_error(fmt::format("cannot open a window: {}; {}", why, kInstead));
    }
    glfwSetWindowUserPointer(window_, this);
    listen();
    glfwMakeContextCurrent(window_);
    glfwSwapInterval(1);
  }
  ~Window() {
    glfwDestroyWindow(window_);
    glfwTerminate();
  }
  Window(const Window&) = delete;
  Window& operator=(const Window&) = delete;

  GLFWwindow* get() const { return window_; }
  /// Each returns what arrived since its last call.
  std::vector<Input> take_inputs() { return std::exchange(inputs_, {}); }
  std::vector<std::string> take_dropped() { return std::exchange(dropped_, {}); }
  /// Returns true if anything has happened to the window since the last call.
  bool take_happened() { return std::exchange(has_happened_, false); }
  double scale() const {
    float x = 1;
    float y = 1;
    glfwGetWindowContentScale(window_, &x, &y);
    return x;
  }
  std::pair<int, int> pixels() const {
    std::pair<int, int> size;
    glfwGetFramebufferSize(window_, &size.first, &size.second);
    return size;
  }

 private:
  /// Returns the window, and records that something has happened to it.
  static Window& window_of(GLFWwindow* window) {
    auto& self = *static_cast<Window*>(glfwGetWindowUserPointer(window));
    self.has_happened_ = true;
    return self;
  }

  static bool is_down(GLFWwindow* window, int left, int right) {
    return glfwGetKey(window, left) == GLFW_PRESS || glfwGetKey(window, right) == GLFW_PRESS;
  }
  static PointerMove pointer_of(GLFWwindow* window) {
    double x = 0;
    double y = 0;
    glfwGetCursorPos(window, &x, &y);
    return {static_cast<float>(x), static_cast<float>(y)};
  }
  static WheelTurn turn_of(GLFWwindow* window, double notches) {
    const PointerMove at = pointer_of(window);
    return {.x = at.x,
            .y = at.y,
            .notches = static_cast<float>(notches),
            .ctrl = is_down(window, GLFW_KEY_LEFT_CONTROL, GLFW_KEY_RIGHT_CONTROL),
            .shift = is_down(window, GLFW_KEY_LEFT_SHIFT, GLFW_KEY_RIGHT_SHIFT),
            .alt = is_down(window, GLFW_KEY_LEFT_ALT, GLFW_KEY_RIGHT_ALT)};
  }

  void listen() {
    glfwSetKeyCallback(
        window_, [](GLFWwindow* window, int key, int scancode, int action, int modifiers) {
          Window& self = window_of(window);
          if (action == GLFW_RELEASE) return;
          self.inputs_.push_back(KeyPress{chord_of(key, modifiers, glfwGetKeyName(key, scancode))});
        });
    // The character of a key arrives right after it; of several keys that compose one, the last has
    // it.
    glfwSetCharCallback(window_, [](GLFWwindow* window, unsigned character) {
      Window& self = window_of(window);
      auto* const key =
          self.inputs_.empty() ? nullptr : std::get_if<KeyPress>(&self.inputs_.back());
      const bool has_key = key != nullptr && key->character == 0;
      if (!has_key) return self.inputs_.push_back(KeyPress{KeyChord{}, character});
      *key = {with_character(key->chord, character), character};
    });
    glfwSetDropCallback(window_, [](GLFWwindow* window, int count, const char** paths) {
      window_of(window).dropped_.assign(paths, paths + count);
    });
    glfwSetCursorPosCallback(window_, [](GLFWwindow* window, double x, double y) {
      window_of(window).inputs_.push_back(
          PointerMove{static_cast<float>(x), static_cast<float>(y)});
    });
    glfwSetMouseButtonCallback(window_, [](GLFWwindow* window, int button, int action, int) {
      const PointerMove at = pointer_of(window);
      window_of(window).inputs_.push_back(
          ButtonChange{at.x, at.y, button == GLFW_MOUSE_BUTTON_LEFT ? Button::left : Button::other,
                       action == GLFW_PRESS});
    });
    glfwSetScrollCallback(window_, [](GLFWwindow* window, double, double notches) {
      window_of(window).inputs_.push_back(turn_of(window, notches));
    });
    glfwSetFramebufferSizeCallback(window_,
                                   [](GLFWwindow* window, int, int) { window_of(window); });
    glfwSetWindowRefreshCallback(window_, [](GLFWwindow* window) { window_of(window); });
  }

  GLFWwindow* window_ = nullptr;
  std::vector<Input> inputs_;
  std::vector<std::string> dropped_;
  bool has_happened_ = false;
};

/// ImGui's connection to the window's events.
class Backend {
 public:
  explicit Backend(const Window& window) { ImGui_ImplGlfw_InitForOpenGL(window.get(), true); }
  ~Backend() { ImGui_ImplGlfw_Shutdown(); }
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
};

class Program {
 public:
  Program(const OpenPresenter& open, const WindowOptions& options)
      : options_(options),
        editor_(options.editor),
        window_(options),
        session_(options.font_file),
        backend_(window_),
        opened_(open([this](double part) { return show_progress(part); })),
        presenter_(*opened_),
        interface_(presenter_, session_.fonts(), backdrop_) {
    shown_ = &presenter_;
    remember(presenter_.state().files);
  }

  void run() {
    presenter_.set_patience(kPatience);
    int frames = kRestlessFrames;
    while (glfwWindowShouldClose(window_.get()) == GLFW_FALSE) {
      if (frames > 0) {
        glfwPollEvents();
        --frames;
      } else {
        frames = wait();
        if (frames == 0) continue;
      }
      if (window_.take_happened()) frames = kRestlessFrames;  // also while drawing
      take_events();
      draw();
      serve(interface_.take_request());
      if (interface_.has_inputs()) frames = kRestlessFrames;
    }
    autosave();
  }

 private:
  double scale() const { return options_.scale > 0 ? options_.scale : window_.scale(); }

  /// Remembers what was opened for the next window.
  void remember(const std::vector<std::string>& paths) {
    remember_paths(paths, options_.recent_file);
    interface_.set_recent(recent_paths(options_.recent_file));
  }

  /// Opens what the user has named or dropped.
  void open_paths(const std::vector<std::string>& paths) {
    presenter_.open(paths);
    remember(paths);
  }

  /// Waits for an event or for something new to draw. Returns how many frames to draw then.
  int wait() {
    const double most = presenter_.is_planning()    ? kPlanningSeconds
                        : presenter_.is_recording() ? kRecordingSeconds
                                                    : kIdleSeconds;
    const auto before = Clock::now();
    glfwWaitEventsTimeout(most);
    const bool had_event = Clock::now() - before < std::chrono::duration<double>(most);
    const bool has_news = presenter_.follow_plan() || presenter_.follow_levers() ||
                          (!presenter_.is_planning() && presenter_.follow_recordings()) ||
                          interface_.forgets() || forgets_messages();
    if (!had_event) autosave();
    return had_event || has_news ? kRestlessFrames : 0;
  }

  /// Forgets what could not be opened, once it was shown long enough. Returns true if it does.
  bool forgets_messages() {
    if (presenter_.messages() != messages_) {
      messages_ = presenter_.messages();
      messages_since_ = Clock::now();
    }
    const bool is_alone = presenter_.runs().empty();  // nothing else says why
    if (messages_.empty() || is_alone) return false;
    if (Clock::now() - messages_since_ < kMessageTime) return false;
    presenter_.forget_messages();
    return true;
  }

  void autosave() {
    if (options_.autosave_file.empty() || autosaved_ == presenter_.state()) return;
    autosaved_ = presenter_.state();
    try {
      std::filesystem::create_directories(
          std::filesystem::path(options_.autosave_file).parent_path());
      save_session(presenter_.state(), options_.autosave_file);
    } catch (const std::exception&) {
      // A full disk must not disturb a user who only looks.
    }
  }

  void begin_frame(double zoom) {
    session_.set_scale(scale() * zoom);
    ImGui_ImplOpenGL3_NewFrame();
    ImGui_ImplGlfw_NewFrame();
    ImGui::NewFrame();
    is_in_frame_ = true;
  }

  void end_frame() {
    ImGui::Render();
    is_in_frame_ = false;
    session_.render();
  }

  void draw() {
    const auto [width, height] = window_.pixels();
    begin_frame(presenter_.state().zoom);
    interface_.draw({width, height, scale(), true});
    end_frame();
    if (wants_picture_) save_picture(width, height);
    glfwSwapBuffers(window_.get());
  }

  /// Draws the progress of reading; returns true if reading should go on. A frame that reads
  /// recordings itself draws nothing here, since frames cannot nest.
  bool show_progress(double part) {
    if (is_in_frame_) return true;
    glfwPollEvents();
    begin_frame(shown_ != nullptr ? shown_->state().zoom : 1);
    draw_progress(part, colors_of(shown_ != nullptr ? shown_->state().theme : options_.theme));
    end_frame();
    glfwSwapBuffers(window_.get());
    const std::vector<Input> inputs = window_.take_inputs();
    const bool is_stopped = std::ranges::any_of(inputs, [](const Input& input) {
      const auto* const key = std::get_if<KeyPress>(&input);
      return key != nullptr && key->chord == parse_chord("Escape");
    });
    return !is_stopped && glfwWindowShouldClose(window_.get()) == GLFW_FALSE;
  }

  void take_events() {
    for (const Input& input : window_.take_inputs()) interface_.take(input);
    const std::vector<std::string> dropped = window_.take_dropped();
    if (!dropped.empty()) open_paths(dropped);
  }

  void serve(Request request) {
    switch (request) {
      case Request::quit:
        return glfwSetWindowShouldClose(window_.get(), GLFW_TRUE);
      case Request::reload:
        return presenter_.reload();
      case Request::open_file:
        return open_paths({interface_.path()});
      case Request::edit_pick:
        return edit();
      case Request::save_session:
        return tell(options_.session_file,
                    [&] { save_session(presenter_.state(), options_.session_file); });
      case Request::copy_link:
        return copy_link();
      case Request::export_table:
        return save_table();
      case Request::export_picture:
        wants_picture_ = true;
        return;
      case Request::export_figure:
        return save_figure();
      case Request::export_page:
        return save_page();
      default:
        return;
    }
  }

  template <typename Save>
  void tell(const std::string& path, const Save& save) {
    try {
      save();
      interface_.say("saved " + std::filesystem::absolute(path).string());
    } catch (const std::exception& error) {
      interface_.say(error.what());
    }
  }

  /// Saves the session, and copies the command that opens it.
  void copy_link() {
    try {
      save_session(presenter_.state(), options_.session_file);
      interface_.copy(link_to(options_.session_file), "");
    } catch (const std::exception& error) {
      interface_.say(error.what());
    }
  }

  void save_picture(int width, int height) {
    wants_picture_ = false;
    const std::string path = export_name(options_.session_file, ".png");
    tell(path, [&] { write_png(read_target(width, height), path); });
  }

  void save_table() {
    const std::string path = export_name(options_.session_file, ".csv");
    tell(path, [&] {
      std::ofstream file(path, std::ios::binary | std::ios::trunc);
      file << presenter_.table_csv();
      if (!file.flush()) throw std::runtime_error(path + ": cannot write this table");
    });
  }

  /// Writes the plots in the size of the window.
  void save_figure() {
    if (presenter_.runs().empty()) return interface_.say("there is no run to export");
    const std::string path = export_name(options_.session_file, ".svg");
    const auto [width, height] = window_.pixels();
    const auto points = [&](int pixels) { return static_cast<int>(pixels / scale()); };
    tell(path, [&] {
      write_figure(
          presenter_,
          {.width = points(width), .height = points(height), .font_file = options_.font_file},
          path);
    });
  }

  void save_page() {
    if (presenter_.runs().empty()) return interface_.say("there is no run to export");
    const std::string path = export_name(options_.session_file, ".html");
    tell(path, [&] {
      std::ofstream file(path, std::ios::binary | std::ios::trunc);
      write_page(presenter_.runs(), presenter_.state(), file);
      if (!file.flush()) throw std::runtime_error(path + ": cannot write this page");
    });
  }

  /// Opens the call that the user has marked, and shows the editor's message.
  void edit() {
    const auto call = presenter_.pick_call();
    interface_.say(call ? editor_.open(*call)
                        : "no source line is selected: click a block, then a call in its stack");
  }

  WindowOptions options_;
  Editor editor_;
  Window window_;
  ImGuiSession session_;
  Backend backend_;
  GlBackdrop backdrop_;
  bool is_in_frame_ = false;
  const Presenter* shown_ = nullptr;  // null while the first recordings are read
  std::unique_ptr<Presenter> opened_;
  Presenter& presenter_;
  Interface interface_;
  bool wants_picture_ = false;
  std::vector<std::string> messages_;
  Clock::time_point messages_since_{};
  std::optional<ViewState> autosaved_ = presenter_.state();
};

}  // namespace

void show_window(const OpenPresenter& open, const WindowOptions& options) {
  Program(open, options).run();
}

}  // namespace shardlens::viewer
