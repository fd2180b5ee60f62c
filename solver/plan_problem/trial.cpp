#include "solver/plan_problem/trial.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "core/error.hpp"
#include "core/program/lowering.hpp"

namespace dflop {
namespace {

/// Returns "91.3 GiB".
std::string gib(Bytes bytes) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.1f GiB",
                static_cast<double>(bytes.count) / (1024.0 * 1024 * 1024));
  return text.data();
}

}  // namespace

Plan blank_plan(const PlanRequest& request, std::string_view planner) {
  Plan plan;
  plan.planner = planner;
  plan.model = request.model.name;
  plan.cluster = request.cluster.name;
  plan.gbs = request.gbs;
  static_cast<PlanOptions&>(plan) = request.options;
  return plan;
}

void check_batches(const PlanRequest& request) {
  if (request.batches.empty())
    throw Error(ErrorKind::input, "planning needs at least one iteration of samples");
  for (const Batch& batch : request.batches) {
    if (request.gbs > 0 && batch.size() == static_cast<std::size_t>(request.gbs)) continue;
    throw Error(ErrorKind::input, "expected iterations of gbs " + std::to_string(request.gbs) +
                                      " (at least 1) samples, found one of " + std::to_string(batch.size()));
  }
}

Bytes largest_model_state(const PlanRequest& request, const Plan& plan) {
  const std::vector<Stage> stages = plan_stages(plan, request.model);
  Bytes largest;
  for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(plan))) {
    ModelState state;
    for (const int s : of_rank) state += request.cost.model_state(stages[s]);
    largest = std::max(largest, state.total());
  }
  return largest;
}

Timeline run_iteration(const PlanRequest& request, const Plan& plan, std::size_t iteration,
                       const Assignment& assignment) {
  return request.executor.run(make_iteration(request, plan, request.batches[iteration], assignment),
                              Detail::usage);
}

void ClosestMiss::add(const Plan& plan, Bytes needed) {
  if (plan_ && needed_ <= needed) return;
  plan_ = plan;
  needed_ = needed;
}

std::string ClosestMiss::reason(const ClusterSpec& cluster) const {
  if (!plan_) return "";
  return "every configuration exceeds GPU memory; the closest (" + describe(*plan_) + ") needs at least " +
         gib(needed_) + " on one rank, " + gib(cluster.gpu.usable_memory()) + " are usable";
}

void TrialProgress::add(std::int64_t done) {
  const std::lock_guard lock(mutex_);
  done_ += done;
  if (request_.progress) request_.progress(done_, total_);
}

}  // namespace dflop
