// Makes the whole picture from recordings and state. Windows, screenshots and tests use the same
// function.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "viewer/model/alive_graph.h"
#include "viewer/model/joined_warp.h"
#include "viewer/model/levers/program_levers.h"
#include "viewer/model/run.h"
#include "viewer/model/search.h"
#include "viewer/paint/picture.h"
#include "viewer/scene/lane_image.h"
#include "viewer/scene/panels/block_facts.h"
#include "viewer/scene/plan_lanes.h"
#include "viewer/state/facts.h"
#include "viewer/state/view_state.h"

namespace shardlens::viewer {

/// The columns of a lane in the view, and the most bytes that any of them has of each category and
/// of all categories together.
struct DrawnColumns {
  Columns cells;
  CategoryBytes most{};
  int64_t most_bytes = 0;
};

/// Keeps the last result of a computation, keyed by all that it depends on.
template <typename T>
class Memo {
 public:
  const T& get(const std::string& key, const std::function<T()>& make) {
    if (!value_ || key_ != key) {
      value_ = make();
      key_ = key;
    }
    return *value_;
  }

 private:
  std::string key_;
  std::optional<T> value_;
};

/// Keeps what a picture was made from, keyed by what it shows. One picture's images stay valid
/// until the next picture is made.
class ImageCache {
 public:
  /// Returns the image of a place; `raster` makes it if `key` has changed. `slot` names the place,
  /// `key` holds everything that the content depends on.
  const Image& get(const std::string& slot, const std::string& key,
                   const std::function<Image()>& raster);
  /// Returns the columns of a lane; `make` makes them if `key` has changed. They stay valid as long
  /// as images do.
  const DrawnColumns& columns(const std::string& slot, const std::string& key,
                              const std::function<Columns()>& make);
  /// Removes the images that the last picture did not use.
  void end_picture();
  int64_t raster_count() const { return rastered_; }

  Memo<profiler::Matching> matching;          // of two moments
  Memo<AliveGraph> graph;                     // of the tree's panel
  Memo<std::vector<uint32_t>> picked_blocks;  // of the selection
  Memo<BlockFacts> facts;                     // of the shown block
  Memo<BlockFacts> hover_facts;               // of the block under the pointer

 private:
  struct Entry {
    std::string key;
    Image image;
    bool used = false;
  };
  struct ColumnsEntry {
    std::string key;
    DrawnColumns drawn;
    bool used = false;
  };
  std::map<std::string, std::unique_ptr<Entry>> entries_;
  std::map<std::string, ColumnsEntry> columns_;
  uint64_t version_ = 0;
  int64_t rastered_ = 0;
};

struct SearchHits {
  std::vector<Hit> hits;

  /// Returns the bytes of those that are alive after a change.
  int64_t alive_bytes(const Lane& lane, int64_t change) const;
};

struct SceneInput {
  const std::vector<Run>& runs;
  const Warps& warps;
  const std::vector<JoinedWarp>& plan_warps;  // one for each run, of its joined plan
  const PlanNews& plan_news;
  const ProgramLevers* levers;  // of the what-if panel's program; null if there is none
  const ViewState& state;
  const Facts& facts;
  const std::vector<SearchHits>& hits;       // one for each run, or none
  const std::vector<std::string>& messages;  // what could not be opened
  uint64_t generation = 0;                   // changes with the recordings
  int width = 0;                             // pixels
  int height = 0;
  int top = 0;             // pixels that a menu covers
  double scale = 1;        // pixels per point
  bool is_figure = false;  // only plots and the legend are drawn
};

/// Returns "step 5, BACKWARD mlp3, 1.240 s from step 0": the clock of the axis of time.
std::string moment_text(const RankLane& rank, int64_t change);

/// Returns "out of memory in step 3, at loss.py:42 forward (activation): 3.91 GiB asked, ...", with
/// what was free.
std::string failure_text(const RankLane& rank, const FailedRequest& failure);

Picture make_picture(const SceneInput& input, const Fonts& fonts, ImageCache& cache);

/// Returns the width of the plots of such a picture in pixels, which Facts needs.
int plot_columns(const SceneInput& input);

}  // namespace shardlens::viewer
