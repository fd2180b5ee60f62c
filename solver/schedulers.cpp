#include "solver/schedulers.hpp"

#include <algorithm>
#include <string>

#include "core/error.hpp"
#include "costmodel/sample_costs.hpp"
#include "solver/bin_order.hpp"
#include "solver/bins.hpp"
#include "solver/ilp.hpp"
#include "solver/lpt.hpp"
#include "solver/random_scheduler.hpp"

namespace dflop {
namespace {

/// A scheduler that is one way of solving the partition problem.
class BinScheduler : public Scheduler {
 public:
  ScheduleResult schedule(const ScheduleRequest& request) const final {
    require_enough_samples(request.samples.size(), request.plan);
    const SampleCosts costs = sample_costs(request.cost, request.plan, request.model, request.samples);
    const BinProblem problem{costs.encoder_s, costs.llm_s, request.plan.bins(), request.plan.llm.dp};
    BinSolution solution = solve(problem, request);
    const double c_max = largest_load(problem, solution.bin);
    ScheduleResult result;
    result.c_max = Seconds(c_max);
    // Sums in another order may round to above c_max.
    result.bound = Seconds(std::min(solution.bound_s, c_max));
    result.status = meets_bound(c_max, solution.bound_s) ? ScheduleStatus::optimal : solution.status;
    result.assignment = {request.plan.microbatches, request.plan.llm.dp, std::move(solution.bin)};
    return result;
  }

 private:
  virtual BinSolution solve(const BinProblem& problem, const ScheduleRequest& request) const = 0;
};

class RandomScheduler final : public BinScheduler {
 public:
  std::string_view name() const override { return "random"; }

 private:
  BinSolution solve(const BinProblem& problem, const ScheduleRequest& request) const override {
    Assignment assignment =
        random_assignment(request.samples.size(), request.plan, request.seed, request.iteration);
    return {std::move(assignment.bin), lower_bound(problem), ScheduleStatus::heuristic};
  }
};

class LptScheduler final : public BinScheduler {
 public:
  std::string_view name() const override { return "lpt"; }

 private:
  BinSolution solve(const BinProblem& problem, const ScheduleRequest&) const override {
    BinSolution solution{lpt(problem), lower_bound(problem), ScheduleStatus::heuristic};
    arrange_bins(problem, solution.bin);
    return solution;
  }
};

class IlpScheduler final : public BinScheduler {
 public:
  explicit IlpScheduler(std::int64_t node_budget) : node_budget_(node_budget) {}
  std::string_view name() const override { return "ilp"; }

 private:
  BinSolution solve(const BinProblem& problem, const ScheduleRequest& request) const override {
    BinSolution solution = solve_ilp(problem, {0, node_budget_, request.time_limit});
    arrange_bins(problem, solution.bin);
    return solution;
  }

  std::int64_t node_budget_;
};

}  // namespace

std::unique_ptr<Scheduler> make_scheduler(std::string_view name, const SchedulerOptions& options) {
  if (name == "random") return std::make_unique<RandomScheduler>();
  if (name == "lpt") return std::make_unique<LptScheduler>();
  if (name == "ilp") return std::make_unique<IlpScheduler>(options.node_budget);
  std::string known;
  for (const std::string_view other : scheduler_names())
    known += (known.empty() ? "" : ", ") + std::string(other);
  throw Error(ErrorKind::usage, "unknown scheduler '" + std::string(name) + "', expected one of " + known);
}

std::vector<std::string_view> scheduler_names() {
  return {"random", "lpt", "ilp"};
}

void require_enough_samples(std::size_t samples, const Plan& plan) {
  if (samples >= static_cast<std::size_t>(plan.bins())) return;
  throw Error(ErrorKind::input, "global batch of " + std::to_string(samples) + " samples cannot fill " +
                                    std::to_string(plan.bins()) + " bins (dp " + std::to_string(plan.llm.dp) +
                                    " x " + std::to_string(plan.microbatches) + " microbatches)");
}

}  // namespace dflop
