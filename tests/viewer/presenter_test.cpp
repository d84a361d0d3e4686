// A session from opening to closing, without a window: what is drawn follows from what is done.

#include "viewer/scene/presenter.h"

#include <catch2/catch_approx.hpp>
#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <filesystem>
#include <map>
#include <random>
#include <stdexcept>

#include "base/units.h"
#include "tests/support/recordings/random_events.h"
#include "tests/support/recordings/view_recording.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/viewer/acts.h"
#include "viewer/model/pyramid.h"
#include "viewer/paint/geometry.h"
#include "viewer/paint/painter.h"
#include "viewer/state/session.h"

namespace shardlens::viewer {
namespace {

namespace fs = std::filesystem;

/// Three strategies, the first of two ranks.
struct Runs {
  Runs() {
    write("keep", {.keep_weights = true}, 2);
    write("reshard", {.forward_ns = 9'000'000}, 1);
    write("large", {.steps = 4, .activation_bytes = 5 << 20}, 1);
  }
  void write(const std::string& name, tests::ViewRecordingOptions options, int32_t ranks) {
    fs::create_directories(folder.file(name));
    for (options.rank = 0; options.rank < ranks; ++options.rank) {
      options.activation_bytes += options.rank << 20;
      tests::write_profile(folder.file(name) + "/rank" + std::to_string(options.rank) + ".slp",
                           tests::view_recording(options));
    }
    state.files.push_back(folder.file(name));
  }

  tests::TemporaryFolder folder;
  ViewState state;
};

const Runs& runs() {
  static const Runs all;
  return all;
}

constexpr Canvas kCanvas{1400, 900, 0, 1};

const Picture& draw(Presenter& presenter) {
  return presenter.picture(kCanvas, plain_fonts(kCanvas.scale));
}

void perform(Presenter& presenter, std::string_view id) {
  const Command* const command = find_command(id);
  REQUIRE(command != nullptr);
  presenter.perform(*command);
}

const Area& area_of(const Picture& picture, Area::Kind kind, size_t run) {
  for (const Area& area : picture.areas) {
    if (area.kind == kind && area.run == run) return area;
  }
  FAIL("no such area");
  return picture.areas.front();
}

/// Items and every pixel of their images.
std::string everything(const Picture& picture) {
  std::string all = to_text(picture);
  for (const Item& item : picture.items) {
    const auto* const placed = std::get_if<PlacedImage>(&item);
    if (placed == nullptr) continue;
    const auto& pixels = placed->image->pixels;
    all.append(reinterpret_cast<const char*>(pixels.data()), 4 * pixels.size());
  }
  return all;
}

/// The acts that a user might do in a few minutes.
std::vector<std::string> scripted_session(const std::string& session_file) {
  Presenter presenter(runs().state, "");
  std::vector<std::string> pictures = {everything(draw(presenter))};
  const auto then = [&](std::string_view id) {
    perform(presenter, id);
    pictures.push_back(everything(draw(presenter)));
  };
  for (const char* id : {"align.phase", "step.next", "zoom.in", "focus.next", "peak", "zoom.in",
                         "group.next", "layout.difference", "layout.overlay", "layout.rows",
                         "detail.next", "detail.next", "detail.next", "ranks.next", "theme.next"}) {
    then(id);
  }
  presenter.set_search("mlp3 >1MiB");
  pictures.push_back(everything(draw(presenter)));
  then("search.next");
  presenter.add_note("here");
  save_session(presenter.state(), session_file);
  pictures.push_back(everything(draw(presenter)));
  Presenter again(load_session(session_file), "");
  CHECK(again.state() == presenter.state());
  CHECK(everything(draw(again)) == pictures.back());
  return pictures;
}

}  // namespace

TEST_CASE("a session drawn twice is the same to the last pixel, and so it is when it is reopened") {
  const tests::TemporaryFolder folder;
  const auto first = scripted_session(folder.file("a.json"));
  const auto second = scripted_session(folder.file("b.json"));
  REQUIRE(first.size() == second.size());
  for (size_t i = 0; i < first.size(); ++i) {
    CAPTURE(i);
    CHECK(first[i] == second[i]);
    if (i > 0) CHECK(first[i] != first[i - 1]);
  }
}

TEST_CASE("runs on a device and on the host are compared separately, on card and in table") {
  Runs mixed;
  mixed.state.files.resize(1);  // on a device
  mixed.write("host", {.device = "cpu"}, 1);
  mixed.write("more", {.activation_bytes = 5 << 20, .device = "cpu"}, 1);
  Presenter presenter(mixed.state, "");
  const std::string text = to_text(draw(presenter));
  const auto peak = [&](size_t run) {
    return presenter.runs()[run].at_peak().lane.peak().max_bytes;
  };
  REQUIRE(peak(2) - peak(1) != peak(2) - peak(0));
  const auto count = [&](int64_t growth) {
    const std::string words = bytes_text(growth) + " more";
    size_t found = 0;
    for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; ++at) ++found;
    return found;
  };
  CHECK(count(peak(2) - peak(1)) >= 2);
  CHECK(count(peak(2) - peak(0)) == 0);
}

TEST_CASE("the table of fourteen runs cuts no number") {
  Runs many;
  many.state.files.clear();
  for (int i = 0; i < 14; ++i) {
    many.write("run" + std::to_string(i), {.steps = 1, .activation_bytes = (3 + i) << 20}, 1);
  }
  Presenter presenter(many.state, "");
  perform(presenter, "panel.alive");
  const Picture& picture = draw(presenter);
  const Box table = area_of(picture, Area::Kind::table, 0).box;
  for (const Item& item : picture.items) {
    const auto* const text = std::get_if<Text>(&item);
    if (text == nullptr || text->y < table.y || text->text.empty()) continue;
    const bool is_number = std::isdigit(static_cast<unsigned char>(text->text[0])) != 0;
    CAPTURE(text->text);
    CHECK_FALSE((is_number && text->text.ends_with("...")));
  }
}

TEST_CASE("numbers in the table are right-aligned, whatever is beside them") {
  for (const int width : {1000, 1400, 2200}) {
    CAPTURE(width);
    Presenter presenter(runs().state, "");
    const Canvas canvas{width, 900, 0, 1};
    const Fonts fonts = plain_fonts(1);
    const Picture& picture = presenter.picture(canvas, fonts);
    const Box table = area_of(picture, Area::Kind::table, 0).box;
    std::map<int, int> ends;  // how many numbers end at an x
    for (const Item& item : picture.items) {
      const auto* const text = std::get_if<Text>(&item);
      if (text == nullptr || !table.contains(text->x, text->y)) continue;
      const bool is_number = text->text.ends_with("B") && std::isdigit(text->text[0]) != 0;
      const float end = text->x + fonts.width(text->style, text->text);
      if (is_number) ++ends[static_cast<int>(std::lround(end / 4))];
    }
    // A change may be an amount, too, so a run has two such columns at most.
    CHECK(ends.size() <= 2 * presenter.runs().size() + 2);
    CHECK(std::ranges::any_of(ends, [](const auto& one) { return one.second >= 5; }));
  }
}

TEST_CASE("names that are cut keep both their ends") {
  Picture picture;
  const Fonts fonts = plain_fonts(1);
  const Painter paint(picture, fonts, colors_of(Theme::light), 1);
  const std::string name = "block0-9 bucket 2 exp_avg_sq x 10";
  CHECK(paint.fitted_ends(Style::small, name, 1e6F) == name);
  std::string longest;
  for (float width = 0; width < 400; ++width) {
    const std::string cut = paint.fitted_ends(Style::small, name, width);
    CHECK(fonts.width(Style::small, cut) <= width);
    CHECK(cut.size() >= longest.size());
    longest = cut;
    if (cut.size() < 12 || cut == name) continue;
    const size_t dots = cut.find("...");
    CHECK(name.starts_with(cut.substr(0, dots)));
    CHECK(name.ends_with(cut.substr(dots + 3)));
  }
  // No multi-byte character is cut in two.
  const std::string umlauts = "\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc\u00fc";
  for (float width = 0; width < 120; ++width) {
    const std::string cut = paint.fitted_ends(Style::small, umlauts, width);
    const size_t dots = std::min(cut.find("..."), cut.size());
    CHECK(dots % 2 == 0);
    CHECK((cut.size() - dots) % 2 == (dots == cut.size() ? 0 : 1));
  }
}

TEST_CASE("a category shown alone has its own headline, change and axis") {
  Presenter presenter(runs().state, "");
  draw(presenter);
  ViewState state = presenter.state();
  constexpr auto kActivation = static_cast<size_t>(Category::activation);
  state.hidden_categories = ((1U << kCategories) - 1) & ~(1U << kActivation);
  presenter.restore(state);
  const std::string text = to_text(draw(presenter));
  CHECK(text.find("activation at the peak") != std::string::npos);
  const auto bytes = [&](size_t run) {
    return presenter.runs()[run].at_peak().lane.peak().at_max[kActivation];
  };
  CHECK(text.find(bytes_text(bytes(0))) != std::string::npos);
  CHECK(text.find(change_in_words(bytes(0), bytes(2))) != std::string::npos);
}

TEST_CASE("every strategy is named with its peak and what changed, in words") {
  Presenter presenter(runs().state, "");
  const Picture& picture = draw(presenter);
  for (const Run& run : presenter.runs()) {
    CHECK(says(picture, run.name));
    CHECK(says(picture, run.strategy));
  }
  CHECK(says(picture, "Memory of 3 runs"));
  CHECK(says(picture, "compared with keep"));
  CHECK(says(picture, "baseline"));
  CHECK(says(picture, " less (-"));
  CHECK(says(picture, " more (+"));
  CHECK(says(picture, "activation"));
  CHECK(says(picture, "rank 1 of 2"));
}

TEST_CASE("an unchanged view is not drawn again, a zoomed one rasters only its lanes") {
  Presenter presenter(runs().state, "");
  draw(presenter);
  const int64_t pictures = presenter.pictures_made();
  const int64_t images = presenter.images_rastered();
  draw(presenter);
  CHECK(presenter.pictures_made() == pictures);
  perform(presenter, "group.next");
  draw(presenter);
  CHECK(presenter.pictures_made() == pictures + 1);
  CHECK(presenter.images_rastered() == images);
  perform(presenter, "zoom.in");
  draw(presenter);
  CHECK(presenter.images_rastered() == images + 6);  // three lanes and their ribbons
}

TEST_CASE("the pointer places the cursor, selects, zooms and moves") {
  Presenter presenter(runs().state, "");
  const Box plot = area_of(draw(presenter), Area::Kind::lane, 1).box;
  const float y = plot.y + plot.h / 2;
  presenter.press(plot.x + plot.w / 4, y);
  CHECK(presenter.state().focus == 1);
  const Range all = presenter.facts().extent;
  CHECK(*presenter.state().cursor == Catch::Approx(all.begin + all.length() / 4));
  presenter.drag(plot.x + plot.w / 2);
  presenter.release();
  REQUIRE(presenter.state().selection.has_value());
  CHECK(presenter.state().selection->end == Catch::Approx(all.begin + all.length() / 2));
  perform(presenter, "zoom.selection");
  CHECK(presenter.state().view->begin == Catch::Approx(*presenter.state().cursor));

  // The point under the pointer stays the same.
  perform(presenter, "zoom.all");
  draw(presenter);
  presenter.wheel(plot.x + plot.w * 0.3F, y, 3);
  draw(presenter);
  const Range view = *presenter.state().view;
  CHECK(view.begin + 0.3 * view.length() == Catch::Approx(all.begin + 0.3 * all.length()));
  presenter.pan(plot.x + 1, y, -20, 0);
  CHECK(presenter.state().view->begin > view.begin);

  const Box map = area_of(draw(presenter), Area::Kind::minimap, 1).box;
  presenter.press(map.x + map.w * 0.6F, map.y + 1);
  presenter.release();
  const Range moved = *presenter.state().view;
  CHECK((moved.begin + moved.end) / 2 == Catch::Approx(all.begin + 0.6 * all.length()));
}

TEST_CASE("the y axis fits what is in view, and is zoomed where the pointer is") {
  Presenter presenter(runs().state, "");
  const Box plot = area_of(draw(presenter), Area::Kind::lane, 0).box;
  // The category under a pixel is the one at the height that the pixel represents.
  const auto category_under = [&](float y) {
    const std::string text = presenter.hover_text(plot.x + plot.w / 2, y);
    const size_t line = text.rfind('\n');
    return text.substr(line, text.rfind(':') - line);
  };
  const float low = plot.bottom() - plot.h * 0.2F;
  const std::string before = category_under(low);
  presenter.wheel_heights(plot.x + plot.w / 2, low, 4);
  const Range heights = presenter.state().heights;
  CHECK(heights.length() < 0.5);
  CHECK(heights.begin + 0.2 * heights.length() == Catch::Approx(0.2));
  draw(presenter);
  CHECK(category_under(low) == before);
  presenter.pan(plot.x + 1, plot.y + 1, 0, -plot.h / 10);
  CHECK(presenter.state().heights.begin > heights.begin);
  perform(presenter, "height.fit");
  CHECK(presenter.state().heights == Range{0, 1});
  presenter.show({-1, -0.5});  // before the first step
  CHECK(says(draw(presenter), "y axis fits the view"));
  const std::string fitted = everything(draw(presenter));
  perform(presenter, "height.next");
  CHECK(everything(draw(presenter)) != fitted);
}

TEST_CASE("the legend hides a category, a card takes the focus") {
  Presenter presenter(runs().state, "");
  const Area legend = area_of(draw(presenter), Area::Kind::legend, 0);
  presenter.press(legend.box.x + 2, legend.box.y + 2);
  presenter.release();
  CHECK(presenter.state().hidden_categories == 1U << legend.index);
  const Box card = area_of(draw(presenter), Area::Kind::card, 2).box;
  presenter.press(card.x + 2, card.y + 2);
  CHECK(presenter.state().focus == 2);
  perform(presenter, "undo");
  CHECK(presenter.state().focus == 0);
  perform(presenter, "undo");
  CHECK(presenter.state().hidden_categories == 0);
}

TEST_CASE("the tooltip shows the exact number") {
  Presenter presenter(runs().state, "");
  const Area lane = area_of(draw(presenter), Area::Kind::lane, 2);
  const double peak = presenter.facts().peak_x[2];
  const Range all = presenter.facts().extent;
  const float x =
      lane.box.x + static_cast<float>((peak - all.begin) / all.length()) * lane.box.w - 0.5F;
  const std::string text = presenter.hover_text(x, lane.box.bottom() - 2);
  const int64_t bytes = presenter.runs()[2].at_peak().lane.peak().max_bytes;
  CHECK(text.find(std::to_string(bytes)) != std::string::npos);
  CHECK(text.find("parameter shard") != std::string::npos);
  CHECK(presenter.hover_text(1, 1).empty());
}

TEST_CASE("the results of a search are counted, and a search that makes no sense is refused") {
  Presenter presenter(runs().state, "");
  CHECK_THROWS_AS(presenter.set_search(">many"), std::invalid_argument);
  CHECK(presenter.state().search.empty());
  presenter.set_search("mlp3");
  CHECK_FALSE(presenter.facts().hits_x.empty());
  const size_t found = presenter.facts().hits_x.size();  // in the first strategy
  CHECK(says(draw(presenter), "mlp3: " + std::to_string(found) + " blocks, "));
  presenter.set_search("nosuch");
  CHECK(says(draw(presenter), "nosuch: nothing found"));
  perform(presenter, "search.clear");
  CHECK_FALSE(says(draw(presenter), "nothing found"));
  CHECK(presenter.facts().hits_x.empty());
}

TEST_CASE("a recording without steps is aligned by its allocations") {
  const tests::TemporaryFolder folder;
  tests::write_profile(folder.file("short.slp"), tests::view_recording({.steps = 0}));
  ViewState state;
  state.files = {folder.file("short.slp")};
  Presenter presenter(state, "");
  CHECK(presenter.state().alignment == Alignment::event);
  CHECK(says(draw(presenter), "allocations and frees"));
}

TEST_CASE("with very many actions the ribbon still shows computation and communication") {
  const tests::TemporaryFolder folder;
  tests::write_profile(folder.file("long.slp"), tests::view_recording({.steps = 60}));
  ViewState state;
  state.files = {folder.file("long.slp")};
  Presenter presenter(state, "");
  const auto rows_with_color = [&] {
    int rows = 0;
    for (const Item& item : draw(presenter).items) {
      const auto* const placed = std::get_if<PlacedImage>(&item);
      if (placed == nullptr || placed->image->height != 2) continue;
      for (int y = 0; y < 2; ++y) {
        const auto first = placed->image->pixels.begin() + y * placed->image->width;
        const auto has_color = [](uint32_t pixel) { return pixel != 0; };
        rows += std::any_of(first, first + placed->image->width, has_color) ? 1 : 0;
      }
    }
    return rows;
  };
  REQUIRE(presenter.runs()[0].at_peak().lane.arrays().spans.size() > 5000);
  CHECK(rows_with_color() == 2);
  presenter.perform(*find_command("step.next"));
  CHECK(rows_with_color() == 2);
}

TEST_CASE("the list of live memory can be scrolled to its end, and no further") {
  ViewState state = runs().state;
  state.grouping = Grouping::none;
  Presenter presenter(state, "");
  const Area row = area_of(draw(presenter), Area::Kind::alive_row, 0);
  presenter.wheel(row.box.x + 1, row.box.y + 1, -1);
  CHECK(presenter.state().alive_first == 1);
  for (int i = 0; i < 100; ++i) perform(presenter, "alive.down");
  const Lane& lane = presenter.runs()[0].at_peak().lane;
  CHECK(presenter.state().alive_first == lane.alive_after(lane.peak().max_change).size() - 1);
  draw(presenter);
}

TEST_CASE("legend and table name all categories in view, not only those at the peak") {
  Presenter presenter(runs().state, "");
  const auto in_legend = [&](Category category) {
    return std::ranges::any_of(draw(presenter).areas, [&](const Area& area) {
      return area.kind == Area::Kind::legend && area.index == static_cast<size_t>(category);
    });
  };
  // Forward takes a workspace that is freed before the peak, which is in backward.
  for (const Run& run : presenter.runs()) {
    CHECK(run.at_peak().lane.peak().at_max[static_cast<size_t>(Category::workspace)] == 0);
  }
  CHECK(in_legend(Category::workspace));
  CHECK(presenter.table_csv().find("\nworkspace,0,0,0\n") != std::string::npos);
  CHECK_FALSE(in_legend(Category::checkpoint_staging));
}

TEST_CASE("a narrow window's legend wraps into further lines, and covers nothing") {
  Presenter presenter(runs().state, "");
  const auto legend_at = [&](int width) {
    const Canvas canvas{width, 900, 0, 1};
    std::vector<Box> entries;
    Box name;  // the entry of the legend's next area
    for (const Area& area : presenter.picture(canvas, plain_fonts(canvas.scale)).areas) {
      if (area.kind == Area::Kind::category) name = area.box;
      if (area.kind != Area::Kind::legend) continue;
      entries.push_back({area.box.x, area.box.y, name.right() - area.box.x, area.box.h});
    }
    return entries;
  };
  const size_t all = legend_at(2400).size();
  REQUIRE(all > 5);
  for (int width = 2400; width >= 500; width -= 50) {
    CAPTURE(width);
    const std::vector<Box> entries = legend_at(width);
    REQUIRE(entries.size() == all);
    for (size_t i = 0; i < all; ++i) {
      CHECK(entries[i].right() <= static_cast<float>(width));
      if (i == 0) continue;
      const bool is_below = entries[i].y >= entries[i - 1].bottom();
      CHECK((is_below || entries[i].x >= entries[i - 1].right()));
    }
  }
}

TEST_CASE("the table scrolls if it lacks room, and keeps the sum and the decisive rows") {
  Presenter presenter(runs().state, "");
  const Canvas low{1400, 560, 0, 1};
  const auto picture = [&] { return presenter.picture(low, plain_fonts(low.scale)); };
  CHECK(says(picture(), "more rows: Shift+PageDown"));
  CHECK(says(picture(), "optimizer state"));
  const Area table = area_of(picture(), Area::Kind::table, 0);
  const auto rows_below = [&](const std::string& text) {
    // The legend names categories, too, above the table.
    for (const Item& item : picture().items) {
      const auto* const written = std::get_if<Text>(&item);
      if (written != nullptr && written->text == text && written->y > table.box.y) return true;
    }
    return false;
  };
  CHECK(rows_below("optimizer state"));
  CHECK_FALSE(rows_below("headroom"));
  for (int i = 0; i < 20; ++i) presenter.wheel(table.box.x + 1, table.box.y + 1, -1);
  CHECK(rows_below("all"));
  CHECK(rows_below("headroom"));
  CHECK_FALSE(rows_below("optimizer state"));
  for (int i = 0; i < 20; ++i) perform(presenter, "table.up");
  CHECK(presenter.state().table_first == 0);
}

TEST_CASE("two runs open with their changes") {
  Presenter presenter(runs().state, "");
  CHECK_FALSE(says(draw(presenter), "Compared with keep"));
  presenter.choose_view();
  CHECK(presenter.state().focus == 1);
  CHECK(says(draw(presenter), "Compared with keep"));
  CHECK(says(draw(presenter), "in both"));
}

TEST_CASE("the table's CSV matches the screen") {
  Presenter presenter(runs().state, "");
  const std::string csv = presenter.table_csv();
  CHECK(csv.starts_with("category,\"keep bytes\",\"reshard bytes\",\"large bytes\"\nall,"));
  CHECK(csv.find(std::to_string(presenter.runs()[1].at_peak().lane.peak().max_bytes)) !=
        std::string::npos);
}

TEST_CASE("messages are shown beside what could be opened; without any run there is help") {
  ViewState state = runs().state;
  state.files.push_back(runs().folder.file("missing"));
  Presenter presenter(state, "");
  CHECK(says(draw(presenter), "missing: no such file or folder"));
  CHECK(presenter.runs().size() == 3);
  Presenter nothing(ViewState{}, "");
  CHECK(says(draw(nothing), "No run is open"));
  for (const Command& command : commands()) nothing.perform(command);
  draw(nothing);
}

TEST_CASE("any state can be drawn at any size") {
  const auto seed = Catch::getSeed();
  CAPTURE(seed);
  std::mt19937_64 engine(seed);
  Presenter presenter(runs().state, "");
  for (int i = 0; i < 150; ++i) {
    const auto all = commands();
    const Command& command = all[engine() % all.size()];
    presenter.perform(command);
    const Canvas canvas{static_cast<int>(64 + engine() % 2000),
                        static_cast<int>(64 + engine() % 1200), static_cast<int>(engine() % 30),
                        0.5 + static_cast<double>(engine() % 6) / 2};
    CAPTURE(i, command.id, canvas.width, canvas.height, canvas.scale);
    const Picture& picture = presenter.picture(canvas, plain_fonts(canvas.scale));
    for (const Item& item : picture.items) {
      if (const auto* text = std::get_if<Text>(&item)) CHECK_FALSE(text->text.empty());
    }
  }
}

TEST_CASE("parts of the picture do not cover each other") {
  struct Case {
    LaneLayout layout{};
    size_t lanes = 0;
    size_t folded = 0;
    size_t cards = 0;
  };
  for (const Case& one :
       {Case{LaneLayout::rows, 5, 0, 5}, Case{LaneLayout::columns, 5, 0, 5},
        Case{LaneLayout::rows, 44, 20, 4}, Case{LaneLayout::columns, 44, 20, 12}}) {
    CAPTURE(one.lanes);
    ViewState state;
    state.layout = one.layout;
    const Geometry geometry = geometry_of({.width = 1600,
                                           .height = 1000,
                                           .top = 20,
                                           .scale = 1,
                                           .runs = one.lanes + one.folded,
                                           .lanes = one.lanes,
                                           .folded = one.folded,
                                           .table_rows = 12,
                                           .messages = 1,
                                           .has_plans = false},
                                          state);
    std::vector<Box> boxes = {geometry.header,  geometry.legend, geometry.messages,
                              geometry.minimap, geometry.alive,  geometry.table};
    for (const CardGeometry& card : geometry.cards) boxes.push_back(card.card);
    boxes.insert(boxes.end(), geometry.folded.begin(), geometry.folded.end());
    if (one.cards < one.lanes) boxes.push_back(geometry.lane_bar);
    CHECK(geometry.cards.size() == one.cards);
    CHECK(geometry.folded.size() == one.folded);
    for (size_t i = 0; i < boxes.size(); ++i) {
      CHECK(boxes[i].x >= 0);
      CHECK(boxes[i].right() <= 1600);
      CHECK(boxes[i].bottom() <= 1000);
      for (size_t j = i + 1; j < boxes.size(); ++j) {
        const bool apart = boxes[i].right() <= boxes[j].x || boxes[j].right() <= boxes[i].x ||
                           boxes[i].bottom() <= boxes[j].y || boxes[j].bottom() <= boxes[i].y;
        CHECK(apart);
      }
    }
  }
}

TEST_CASE("a search counts what is alive, not all that was ever allocated") {
  Presenter presenter(runs().state, "");
  perform(presenter, "layout.rows");
  presenter.set_search("mlp");
  const RankLane& rank = presenter.runs()[presenter.state().focus].at_peak();
  int64_t alive = 0;
  for (const Hit& hit : search(rank.lane, rank.names, parse_query("mlp alive@peak"))) {
    alive += hit.bytes;
  }
  CHECK(says(draw(presenter), bytes_text(alive) + " alive at the peak"));
}

}  // namespace shardlens::viewer
