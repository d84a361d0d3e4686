#include "base/host_queue.h"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <numeric>
#include <semaphore>
#include <stdexcept>
#include <vector>

using shardlens::HostQueue;

TEST_CASE("work is done in order, beside the thread that posts it", "[threads]") {
  HostQueue queue(/*has_device=*/true);
  std::binary_semaphore may_begin(0);
  std::vector<int> done;
  queue.post(3, [&] { may_begin.acquire(); });
  for (int action = 4; action < 200; ++action) {
    queue.post(action, [&done, action] { done.push_back(action); });
  }
  may_begin.release();  // so no post has waited
  queue.wait(100);
  queue.join();
  std::vector<int> expected(196);
  std::iota(expected.begin(), expected.end(), 4);
  CHECK(done == expected);
}

TEST_CASE("a wait ends with its action, not with those behind it", "[threads]") {
  HostQueue queue(/*has_device=*/true);
  std::binary_semaphore may_end(0);
  int value = 0;
  queue.post(1, [&] { value = 1; });
  queue.post(2, [&] { may_end.acquire(); });
  queue.wait(1);
  CHECK(value == 1);
  may_end.release();
  queue.join();
}

TEST_CASE("without a device there is nothing to run beside", "[threads]") {
  HostQueue queue(/*has_device=*/false);
  int value = 0;
  queue.post(0, [&] { value = 7; });
  CHECK(value == 7);
  CHECK_THROWS_AS(queue.post(1, [] { throw std::runtime_error("no"); }), std::runtime_error);
}

TEST_CASE("an exception of work reaches the thread that waits, and stops the work", "[threads]") {
  HostQueue queue(/*has_device=*/true);
  std::atomic<int> later = 0;
  queue.post(0, [] { throw std::runtime_error("out of host memory"); });
  queue.post(1, [&] { ++later; });
  CHECK_THROWS_MATCHES(queue.wait(1), std::runtime_error,
                       Catch::Matchers::Message("out of host memory"));
  CHECK_THROWS_AS(queue.join(), std::runtime_error);
  CHECK(later == 0);
}

TEST_CASE("a queue that ends drops what has not begun", "[threads]") {
  std::atomic<int> done = 0;
  {
    HostQueue queue(/*has_device=*/true);
    std::binary_semaphore has_begun(0);
    queue.post(0, [&] {
      has_begun.release();
      ++done;
    });
    has_begun.acquire();
    for (int action = 1; action < 1000; ++action) queue.post(action, [&] { ++done; });
  }
  CHECK(done >= 1);
  CHECK(done <= 1000);
}

TEST_CASE("work is not posted with the id of work in the queue", "[threads]") {
  HostQueue queue(/*has_device=*/true);
  std::binary_semaphore may_end(0);
  queue.post(5, [&] { may_end.acquire(); });
  CHECK_THROWS_AS(queue.post(5, [] {}), std::logic_error);
  CHECK_THROWS_AS(queue.post(4, [] {}), std::logic_error);
  may_end.release();
  queue.join();
}
