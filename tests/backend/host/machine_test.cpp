#include "backend/host/machine.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "backend/host/world.hpp"

namespace dflop {
namespace machine_test {

TEST(HostBudget, GivesAtMostItsBytes) {
  HostBudget budget(Bytes{100});
  EXPECT_TRUE(budget.take(60));
  EXPECT_FALSE(budget.take(41));
  EXPECT_TRUE(budget.take(40));
  EXPECT_EQ(budget.left().count, 0);
  budget.give_back(60);
  EXPECT_EQ(budget.left().count, 60);
  EXPECT_FALSE(budget.take(std::numeric_limits<std::size_t>::max()));
}

TEST(HostBudget, ThreadsTakeAtMostItsBytes) {
  constexpr int kThreads = 8;
  HostBudget budget(Bytes{1000});
  std::vector<int> taken(kThreads, 0);
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        while (budget.take(7)) ++taken[static_cast<std::size_t>(t)];
      });
    }
  }
  int all = 0;
  for (const int count : taken) all += count;
  EXPECT_EQ(all, 1000 / 7);
}

TEST(HostBudget, DevicesShareItsBytes) {
  const auto budget = std::make_shared<HostBudget>(Bytes{1000});
  const std::unique_ptr<Device> first = make_host_device({0, std::nullopt, budget});
  const std::unique_ptr<Device> second = make_host_device({1, std::nullopt, budget});
  std::unique_ptr<Buffer> large = first->allocate(600);
  try {
    second->allocate(600);
    FAIL() << "expected OutOfMemory";
  } catch (const OutOfMemory& error) {
    EXPECT_EQ(error.needed().count, 600);
    EXPECT_EQ(error.available().count, 400);
  }
  large.reset();
  EXPECT_NO_THROW(second->allocate(600));
}

TEST(HostBudget, AvailableHostMemoryIsPositiveIfKnown) {
  const std::optional<Bytes> available = available_host_memory();
  EXPECT_GT(available.value_or(Bytes{1}).count, 0);
}

}  // namespace machine_test
}  // namespace dflop
