#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/fixtures.hpp"

namespace dflop {
namespace register_method_test {

AssignmentSolution find_in_turn(const BinProblem& problem, const SolveLimits&) {
  AssignmentSolution solution;
  for (std::size_t i = 0; i < problem.items(); ++i)
    solution.bin.push_back(static_cast<std::int32_t>(i % static_cast<std::size_t>(problem.bins)));
  return solution;
}

constexpr Method kInTurn{"in-turn", Objective::bins, Budget::none, false, find_in_turn};

/// A Registered method is in the table for the lifetime of this object, so that other tests see the original
/// table.
struct Registered {
  explicit Registered(const Method& method) : name(method.name) { register_method(method); }
  ~Registered() { unregister_method(name); }
  Registered(const Registered&) = delete;

  std::string_view name;
};

std::string refusal(void (*call)()) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.message();
  }
  return "none";
}

TEST(RegisterMethod, ListsItAfterTheBuiltInOnesAndNamesItInErrors) {
  std::vector<std::string_view> names = scheduler_names();
  {
    const Method& lpt = find_method("lpt");
    const Registered registered(kInTurn);
    EXPECT_EQ(&find_method("lpt"), &lpt) << "references into the table stay valid";
    names.emplace_back("in-turn");
    EXPECT_EQ(scheduler_names(), names);
    EXPECT_EQ(methods().size(), names.size());
    const std::string error = refusal([] { make_scheduler("fifo"); });
    EXPECT_NE(error.find(", in-turn"), std::string::npos) << error;
  }
  names.pop_back();
  EXPECT_EQ(scheduler_names(), names);
  EXPECT_NE(refusal([] { make_scheduler("in-turn"); }), "none");
}

TEST(RegisterMethod, SchedulesByName) {
  const Registered registered(kInTurn);
  const testing::LinearCostModel cost;
  const ModelSpec model = testing::small_model(1, 1);
  const Plan plan = testing::disaggregated_plan(model, 4, 1, 1, 2);
  const Batch batch = {testing::small_sample(0, 60), testing::small_sample(0, 50),
                       testing::small_sample(0, 40), testing::small_sample(0, 30)};
  const auto scheduler = make_scheduler("in-turn");
  EXPECT_EQ(scheduler->name(), "in-turn");
  ScheduleRequest request{batch, plan, model, cost};
  const ScheduleResult result = scheduler->schedule(request);
  EXPECT_EQ(result.objective, Objective::bins);
  EXPECT_EQ(result.assignment.bin, (std::vector<std::int32_t>{0, 1, 0, 1}));

  // The method knows no caps, but they are still obeyed: 60 + 30 and 50 + 40 is the only way.
  request.limits.token_cap = 90;
  const ScheduleResult capped = scheduler->schedule(request);
  EXPECT_EQ(capped.status, ScheduleStatus::fallback);
  ASSERT_EQ(capped.assignment.bin.size(), 4u);
  EXPECT_EQ(capped.assignment.bin[0], capped.assignment.bin[3]);
}

TEST(RegisterMethod, RejectsNamesThatExistAndHalfMethods) {
  const Registered registered(kInTurn);
  const std::size_t count = methods().size();
  EXPECT_EQ(refusal([] { register_method(kInTurn); }),
            "method 'in-turn': a method of this name is already registered");
  EXPECT_EQ(refusal([] {
              register_method({"lpt", Objective::bins, Budget::none, false, find_in_turn});
            }),
            "method 'lpt': a method of this name is already registered");
  EXPECT_EQ(refusal([] {
              register_method({"", Objective::bins, Budget::none, false, find_in_turn});
            }),
            "method '': expected a name and a function find_bins");
  EXPECT_EQ(refusal([] {
              register_method({"half", Objective::bins, Budget::none, false, nullptr});
            }),
            "method 'half': expected a name and a function find_bins");
  EXPECT_EQ(refusal([] { unregister_method("lpt"); }), "method 'lpt': no method of this name is registered");
  EXPECT_EQ(refusal([] { unregister_method("fifo"); }),
            "method 'fifo': no method of this name is registered");
  EXPECT_EQ(methods().size(), count);
}

}  // namespace register_method_test
}  // namespace dflop
