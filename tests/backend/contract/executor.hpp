// Requirements for every executor, whether it simulates or computes. The suite is value-parameterized: each
// implementation runs it by INSTANTIATE_TEST_SUITE_P with its kind.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "core/iteration/iteration.hpp"

namespace dflop::testing {

struct ExecutorKind {
  std::string name;  ///< for test names: letters and digits
  bool of_one_plan = false;
  /// Makes an executor that runs iterations of the plan. Plan and model must outlive it.
  std::function<std::unique_ptr<Executor>(const Plan& plan, const ModelSpec& model)> make;
};

inline std::ostream& operator<<(std::ostream& out, const ExecutorKind& kind) {
  return out << kind.name;
}

/// Names kinds for INSTANTIATE_TEST_SUITE_P.
struct ExecutorName {
  std::string operator()(const ::testing::TestParamInfo<ExecutorKind>& info) const { return info.param.name; }
};

class ExecutorContract : public ::testing::TestWithParam<ExecutorKind> {};

}  // namespace dflop::testing
