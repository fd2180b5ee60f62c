// CPU cores that groups use in turns.
#include "core/support/core_gate.hpp"

#include <gtest/gtest.h>

#include <initializer_list>

namespace dflop {
namespace core_gate_test {

CoreGate make_gate(int cores, std::initializer_list<std::int32_t> ranks) {
  CoreGate gate(cores);
  for (const std::int32_t r : ranks) gate.add_group(r);
  return gate;
}

TEST(CoreGate, GivesCoresInOrderOfRequests) {
  CoreGate gate = make_gate(2, {1, 1, 1});
  EXPECT_EQ(gate.admit(), std::nullopt);
  for (const std::int32_t group : {2, 0, 1}) gate.ask(group);
  EXPECT_EQ(gate.admit(), 2);
  EXPECT_EQ(gate.admit(), 0);
  EXPECT_EQ(gate.admit(), std::nullopt);
  gate.give_back(0);
  EXPECT_EQ(gate.admit(), 1);
}

/// One core of two is free, enough for group 2; but group 1 asked before it and needs both.
TEST(CoreGate, LetsNobodyOvertake) {
  CoreGate gate = make_gate(2, {1, 2, 1});
  for (const std::int32_t group : {0, 1, 2}) gate.ask(group);
  EXPECT_EQ(gate.admit(), 0);
  EXPECT_EQ(gate.admit(), std::nullopt);
  gate.give_back(0);
  EXPECT_EQ(gate.admit(), 1);
  EXPECT_EQ(gate.admit(), std::nullopt);
  gate.give_back(1);
  EXPECT_EQ(gate.admit(), 2);
}

TEST(CoreGate, GivesALargeGroupAllCores) {
  CoreGate gate = make_gate(3, {8, 2});
  EXPECT_EQ(gate.cores_of(0), 3);
  EXPECT_EQ(gate.cores_of(1), 2);
  gate.ask(0);
  gate.ask(1);
  EXPECT_EQ(gate.admit(), 0);
  EXPECT_EQ(gate.admit(), std::nullopt);
  gate.give_back(0);
  EXPECT_EQ(gate.admit(), 1);
}

}  // namespace core_gate_test
}  // namespace dflop
