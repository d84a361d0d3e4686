#include "runtime/train/progress.h"

#include <catch2/catch_test_macros.hpp>

using shardlens::runtime::progress_line;
using shardlens::runtime::ProgressState;

TEST_CASE("a progress line says how far, how good, how fast and how long") {
  ProgressState state{
      .step = 312, .steps = 469, .epoch = 1, .epochs = 1, .loss = 0.61234, .per_s = 1119.6};
  CHECK(progress_line(state, 40.2) ==
        "epoch 1/1  step 312/469  loss 0.6123  1120 images/s  0:41 left");
  CHECK(progress_line(state, 3600 * 2 + 61) ==
        "epoch 1/1  step 312/469  loss 0.6123  1120 images/s  2:01:01 left");
  CHECK(progress_line(state, -1) ==
        "epoch 1/1  step 312/469  loss 0.6123  1120 images/s  0:00 left");
  state.restarts = 2;
  CHECK(progress_line(state, -1) ==
        "attempt 3  epoch 1/1  step 312/469  loss 0.6123  1120 images/s  0:00 left");
}
