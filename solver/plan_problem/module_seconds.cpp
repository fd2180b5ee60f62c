#include "solver/plan_problem/module_seconds.hpp"

#include <algorithm>
#include <cmath>

#include "core/program/lowering.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/plan_problem/work.hpp"

namespace dflop {
namespace {

Work mean_samples(std::span<const Sample> profile, double count) {
  const Work total = total_work(profile);
  const auto scaled = [&](std::int64_t sum) {  // counts of hostile records might overflow 64 bits
    const double mean = static_cast<double>(sum) * count / static_cast<double>(profile.size());
    return static_cast<std::int64_t>(std::min(std::ceil(mean), 4e18));
  };
  return {each_count(scaled, total.encoder), each_count(scaled, total.llm)};
}

}  // namespace

ModuleSeconds mean_module_seconds(const PlanRequest& request, std::span<const Sample> profile, int tp,
                                  double samples) {
  const Work work = mean_samples(profile, samples);
  Plan plan = blank_plan(request, "");
  plan.encoder = {tp, 1, 1, {request.model.encoder.layers}};
  plan.llm = {tp, 1, 1, {request.model.llm.layers}};
  const std::vector<Stage> stages = plan_stages(plan, request.model);
  const auto seconds = [&](const Stage& stage) {
    const Work its = work_of_stage(stage, work);
    return (request.cost.compute(Op::forward, stage, its) + request.cost.compute(Op::backward, stage, its))
        .count();
  };
  return {seconds(stages.front()), seconds(stages.back())};
}

std::vector<int> divisors(int number) {
  std::vector<int> found;
  for (int d = 1; d <= number; ++d) {
    if (number % d == 0) found.push_back(d);
  }
  return found;
}

}  // namespace dflop
