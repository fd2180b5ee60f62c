// What every executor must do, whether it simulates or computes. The suite is value-parameterised: an
// implementation is put to it by INSTANTIATE_TEST_SUITE_P with its kind.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "core/iteration/iteration.hpp"

namespace dflop::testing {

struct ExecutorKind {
  std::string name;  ///< for the names of tests: letters and digits
  bool of_one_plan = false;
  /// Makes one that runs iterations of the plan. Plan and model outlive it.
  std::function<std::unique_ptr<Executor>(const Plan& plan, const ModelSpec& model)> make;
};

inline std::ostream& operator<<(std::ostream& out, const ExecutorKind& kind) {
  return out << kind.name;
}

/// Gives INSTANTIATE_TEST_SUITE_P the names of kinds.
struct ExecutorName {
  std::string operator()(const ::testing::TestParamInfo<ExecutorKind>& info) const { return info.param.name; }
};

class ExecutorContract : public ::testing::TestWithParam<ExecutorKind> {};

}  // namespace dflop::testing
