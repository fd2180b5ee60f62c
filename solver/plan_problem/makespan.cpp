#include "solver/plan_problem/makespan.hpp"

#include <algorithm>
#include <utility>

namespace dflop {
namespace {

constexpr std::size_t kMostPlans = 64;  // that are remembered

}  // namespace

std::vector<PathFlow> KnownPaths::find(const Plan& plan) const {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::find_if(plans_.begin(), plans_.end(), [&](const auto& p) { return p.first == plan; });
  return known == plans_.end() ? std::vector<PathFlow>{} : known->second;
}

void KnownPaths::keep(const Plan& plan, std::vector<PathFlow> flows) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::find_if(plans_.begin(), plans_.end(), [&](const auto& p) { return p.first == plan; });
  if (known != plans_.end()) plans_.erase(known);
  if (plans_.size() == kMostPlans) plans_.erase(plans_.begin());
  plans_.emplace_back(plan, std::move(flows));
}

PlanMakespan::PlanMakespan(const ScheduleRequest& request)
    : plan_(plan_pipeline(request.plan, request.model, request.cost, request.samples, request.limits.memory)),
      bounds_(plan_.floor, plan_.bound) {}

void PlanMakespan::describe(AssignmentProblem& problem) {
  problem.pipeline = &plan_.pipeline;
  problem.features = plan_.features();
  problem.bounds = &bounds_;
}

bool PlanMakespan::recall(const Plan& plan, const KnownPaths& known) {
  for (const PathFlow& flow : known.find(plan)) bounds_.use(flow);
  return !bounds_.flows().empty();
}

void PlanMakespan::prove() {
  bounds_.prepare(plan_.features());
}

void PlanMakespan::remember(const Plan& plan, KnownPaths& known) const {
  if (!bounds_.flows().empty()) known.keep(plan, bounds_.flows());
}

}  // namespace dflop
