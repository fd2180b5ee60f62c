#include "sim/event_queue.hpp"

#include <gtest/gtest.h>

#include "core/support/random.hpp"

namespace dflop::testing {
namespace {

TEST(EventQueue, OrdersByTimeAndThenByInsertion) {
  EventQueue queue(4);
  queue.push(Nanoseconds(5), 0);
  queue.push(Nanoseconds(3), 1);
  queue.push(Nanoseconds(5), 2);
  queue.push(Nanoseconds(3), 3);
  // 3 ns before 5 ns; of two at one time the one that was pushed first.
  for (const std::int32_t what : {1, 3, 0, 2}) EXPECT_EQ(queue.pop().what, what);
  EXPECT_TRUE(queue.empty());
}

// Pushes and pops at random, with few distinct times: pops of one time keep the order of the pushes.
TEST(EventQueue, KeepsTheOrderAmongManyEvents) {
  Random random(3);
  EventQueue queue(1000);
  for (std::int32_t k = 0; k < 1000; ++k) queue.push(Nanoseconds(random.below(20)), k);
  Event before = queue.pop();
  for (int k = 1; k < 1000; ++k) {
    const Event event = queue.pop();
    ASSERT_TRUE(before.time < event.time || (before.time == event.time && before.what < event.what));
    before = event;
  }
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace dflop::testing
