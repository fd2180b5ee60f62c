#include "solver/planners/search/finish.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "tests/solver/search_fixtures.hpp"

namespace dflop {
namespace search_finish_test {

/// Chooses between a plan that needs much memory and one that recomputes. The GPU has a given fraction of the
/// memory that the first plan needs in the further batch. The objectives are invented.
class FurtherMemory : public ::testing::Test {
 protected:
  FurtherMemory() : further_{testing::small_random_batch(random_, 1)}, search_(2, 4, 1, 1, 1, 1, 5) {
    search_.cost.linear.token_bytes = 60;
    further_[0].front().llm_tokens = 300;
    for (const Plan& plan : testing::all_plans(SearchSpace(search_.request()), search_.model)) {
      if (plan.recomputation == Recomputation::none) large_ = plan;
      if (plan.recomputation == Recomputation::full) small_ = plan;
    }
    needs_ = needed(large_);
    EXPECT_LT(needed(small_), 0.8 * needs_);
  }

  double needed(const Plan& plan) const {
    const PlanRequest request = search_.request();
    return static_cast<double>(
        filled_peak(request, plan, further_[0], *make_scheduler("lpt"), 1, 0, {})->count);
  }

  /// Returns the recomputation of the remaining plans, the chosen one first. The large plan takes 1 s.
  std::vector<Recomputation> chosen(double part, double seconds_of_small) {
    search_.cluster.gpu.memory = search_.cluster.gpu.reserved_memory;
    search_.cluster.gpu.memory += Bytes{static_cast<std::int64_t>(part * needs_)};
    PlanRequest request = search_.request();
    request.further = further_;
    const SearchBounds bounds(request);
    std::vector<RankedPlan> plans(2);
    plans[0].plan = large_;
    plans[0].objective = Seconds(1);
    plans[1].plan = small_;
    plans[1].objective = Seconds(seconds_of_small);
    for (RankedPlan& plan : plans) plan.scheduler = "lpt";
    PlanFinisher(request, bounds).put_choice_first(plans, [] { return false; });
    std::vector<Recomputation> left;
    for (const RankedPlan& plan : plans) left.push_back(plan.plan.recomputation);
    return left;
  }

  Random random_{1};
  std::vector<Batch> further_;
  testing::SmallSearch search_;
  Plan large_;
  Plan small_;
  double needs_ = 0;
};

using enum Recomputation;
using Left = std::vector<Recomputation>;

// With 3 % of memory to spare the faster plan is chosen. With 1 %, which is less than 2 %, more spare memory
// is worth up to 3 % of time. Without enough memory the large plan is never chosen, whatever the other one
// costs.
TEST_F(FurtherMemory, SpareMemoryIsWorthSomeTime) {
  EXPECT_EQ(chosen(1.03, 1.001), Left({none, full}));
  EXPECT_EQ(chosen(1.01, 1.02), Left({full, none}));
  EXPECT_EQ(chosen(1.01, 1.04), Left({none, full}));
  EXPECT_EQ(chosen(0.99, 1.04), Left({full}));
  EXPECT_EQ(chosen(0.99, 10), Left({full}));
}

TEST_F(FurtherMemory, NoPlanIsLeftIfNoneFits) {
  EXPECT_EQ(chosen(0.9 * needed(small_) / needs_, 1.1), Left{});
}

}  // namespace search_finish_test
}  // namespace dflop
