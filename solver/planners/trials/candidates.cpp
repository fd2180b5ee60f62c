#include "solver/planners/trials/candidates.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>
#include <utility>

#include "core/support/parallel.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

constexpr std::size_t kVaried = 16;     // candidates that get all placements and buckets
constexpr std::size_t kRunInFull = 64;  // candidates that run all iterations
constexpr Bytes kUsualBucket{std::int64_t{25} << 20};

/// Returns the values that a list of SearchOptions permits, in the order of `all`.
template <typename T>
std::vector<T> open_of(const std::vector<T>& list, std::vector<T> all) {
  std::erase_if(all, [&](const T& value) { return !may_be(list, value); });
  return all;
}

/// Returns the permitted gradient buckets; no buckets at all comes last.
std::vector<Bytes> open_buckets(const std::vector<Bytes>& list) {
  std::vector<Bytes> open = list.empty() ? std::vector{kUsualBucket, Bytes{0}} : list;
  std::stable_partition(open.begin(), open.end(), [](Bytes bucket) { return bucket.count > 0; });
  return open;
}

/// Gives a plan the first of all permitted values.
Plan with_first(Plan plan, const FreeParts& parts) {
  plan.recomputation = parts.recomputations.front();
  plan.placement = parts.placements.front();
  plan.gradient_bucket = parts.gradient_buckets.front();
  return plan;
}

}  // namespace

FreeParts free_parts(const PlanRequest& request) {
  const SearchOptions& open = request.search;
  return {open_of(open.recomputations, all_of<Recomputation>()),
          open_of(open.placements, all_of<RankOrder>()), open_buckets(open.gradient_buckets)};
}

CandidateRace::CandidateRace(const PlanRequest& request, CandidateFilter filter)
    : request_(request),
      filter_(std::move(filter)),
      parts_(free_parts(request)),
      random_(make_scheduler("random")),
      best_total_(std::numeric_limits<std::int64_t>::max()) {}

void CandidateRace::add(std::vector<Plan> candidates) {
  const std::size_t first = candidates_.size();
  for (Plan& plan : candidates) plan = with_first(std::move(plan), parts_);
  if (filter_) filter_(candidates);
  std::ranges::move(candidates, std::back_inserter(candidates_));
  trials_.resize(candidates_.size());
  run_first_iterations(first);
}

std::vector<Plan> CandidateRace::leaders(std::size_t most) const {
  std::vector<Plan> plans;
  for (const std::size_t c : ahead(most)) plans.push_back(candidates_[c]);
  return plans;
}

PlanResult CandidateRace::best() {
  add_variants();
  run_all_iterations();
  PlanResult result;
  result.candidates = static_cast<std::int64_t>(candidates_.size());
  // Candidates that have run in full have equally many iterations; one that the time limit ended has fewer.
  const auto better = [&](const Trial& a, const Trial& b) {
    if (!a.fits || !b.fits) return a.fits;
    return a.iterations > b.iterations || (a.iterations == b.iterations && a.total < b.total);
  };
  while (!trials_.empty()) {
    const auto best = std::min_element(trials_.begin(), trials_.end(), better);
    if (!best->fits || (!complete(*best) && (!is_late() || best->iterations == 0))) break;
    check_further(best - trials_.begin());  // a candidate that the time limit ended has not been checked
    if (!best->fits) continue;
    result.plan = candidates_[best - trials_.begin()];
    result.objective = Seconds(best->total) / static_cast<double>(best->iterations);
    return result;
  }
  ClosestMiss closest;
  for (std::size_t c = 0; c < trials_.size(); ++c) {
    if (!trials_[c].fits) closest.add(candidates_[c], trials_[c].needed);
  }
  result.infeasible_reason = closest.reason(request_.cluster);
  if (result.infeasible_reason.empty())
    result.infeasible_reason = "the time limit ended the search for a plan";
  return result;
}

void CandidateRace::check_memory(Trial& trial, Bytes needed) const {
  trial.needed = needed;
  trial.fits = needed <= request_.cluster.gpu.usable_memory();
}

void CandidateRace::run_next_iteration(const Plan& plan, Trial& trial) const {
  const std::size_t iteration = trial.iterations++;
  const Assignment assignment =
      random_assignment(request_.batches[iteration].size(), plan, request_.seed, iteration);
  if (iteration == 0 && memory_needs_no_run(plan)) {  // far less work than a run
    check_memory(trial, peak_memory(plan, request_.model, request_.cost, request_.batches[0], assignment));
    if (!trial.fits) return;
  }
  const Timeline timeline = run_iteration(request_, plan, iteration, assignment);
  trial.total += timeline.makespan;
  check_memory(trial, peak_memory(timeline));
}

/// Restarts a candidate with the next recomputation, if there is one.
bool CandidateRace::take_next_recomputation(std::size_t candidate) {
  Trial& trial = trials_[candidate];
  if (trial.level + 1 == parts_.recomputations.size()) return false;
  trial = {.level = trial.level + 1};
  candidates_[candidate].recomputation = parts_.recomputations[trial.level];
  return true;
}

/// Runs `count` iterations of a candidate, or fewer if their total exceeds the best candidate's. If one does
/// not fit, the candidate restarts with the next recomputation.
void CandidateRace::run_iterations(std::size_t candidate, std::size_t count) {
  const Plan& plan = candidates_[candidate];
  Trial& trial = trials_[candidate];
  do {
    if (trial.iterations == 0) check_memory(trial, largest_model_state(request_, plan));
    while (trial.fits && trial.iterations < count && trial.total.count() <= best_total_) {
      if (is_late()) return;
      run_next_iteration(plan, trial);
      if (trial.fits) has_run_ = true;
    }
  } while (!trial.fits && take_next_recomputation(candidate));
}

/// Checks whether a candidate that fits the request's batches fits the further ones.
void CandidateRace::check_further(std::size_t candidate) {
  Trial& trial = trials_[candidate];
  if (trial.fits_further) return;
  const std::optional<Bytes> needed = overrun(request_, candidates_[candidate], request_.further, *random_,
                                              request_.seed, false, request_.cluster.gpu.usable_memory());
  trial.fits_further = !needed;
  if (needed) check_memory(trial, *needed);
}

/// Runs all iterations of a candidate and, if it is the best so far, makes it fit the further batches, too.
void CandidateRace::run_to_the_end(std::size_t candidate) {
  const Trial& trial = trials_[candidate];
  do {
    run_iterations(candidate, iterations());
    if (!complete(trial) || trial.total.count() > best_total_) return;
    check_further(candidate);
  } while (!trial.fits && take_next_recomputation(candidate));
}

/// Returns whether the time is over. Until something fits the limit is longer.
bool CandidateRace::is_late() const {
  constexpr int kPatience = 4;
  constexpr Seconds kMin{1};
  if (!request_.search.time_limit) return false;
  const Seconds limit = *request_.search.time_limit;
  return watch_.elapsed() >= (has_run_ ? limit : kPatience * limit + kMin);
}

void CandidateRace::run_first_iterations(std::size_t first) {
  TrialProgress progress(request_, static_cast<std::int64_t>(candidates_.size() - first));
  parallel_for(candidates_.size() - first, [&](std::size_t c) {
    run_iterations(first + c, 1);
    progress.add(1);
  });
}

std::vector<std::size_t> CandidateRace::ahead(std::size_t most) const {
  std::vector<std::size_t> order;
  for (std::size_t c = 0; c < trials_.size(); ++c) {
    if (trials_[c].fits && trials_[c].iterations > 0) order.push_back(c);  // zero: there was no time
  }
  std::ranges::stable_sort(order, {}, [&](std::size_t c) { return trials_[c].total; });
  order.resize(std::min(order.size(), most));
  return order;
}

/// Returns whether the placement of a plan makes a difference.
bool CandidateRace::has_placements(const Plan& plan) const {
  const bool one_group = plan.layout == Layout::uniform && plan.llm.pp == 1;
  const bool fills_nodes = std::min(plan.encoder.tp, plan.llm.tp) == request_.cluster.gpus_per_node;
  return !one_group && !fills_nodes;
}

void CandidateRace::add_variants() {
  const std::size_t first = candidates_.size();
  for (const std::size_t c : ahead(kVaried)) {
    for (const RankOrder placement : parts_.placements) {
      if (placement != parts_.placements.front() && !has_placements(candidates_[c])) continue;
      for (const Bytes bucket : parts_.gradient_buckets) {
        if (placement == parts_.placements.front() && bucket == parts_.gradient_buckets.front()) continue;
        Plan variant = candidates_[c];
        variant.placement = placement;
        variant.gradient_bucket = bucket;
        candidates_.push_back(std::move(variant));
        trials_.push_back({.level = trials_[c].level});
      }
    }
  }
  run_first_iterations(first);
}

/// Runs the promising candidates first, so that the others are given up early.
void CandidateRace::run_all_iterations() {
  const std::vector<std::size_t> order = ahead(candidates_.size());
  for (std::size_t first = 0; first < order.size(); first += kRunInFull) {
    if (best_total_ < std::numeric_limits<std::int64_t>::max()) return;
    std::atomic<std::size_t> next = first;
    parallel_for(std::min(kRunInFull, order.size() - first), [&](std::size_t) {
      const std::size_t candidate = order[next++];
      run_to_the_end(candidate);
      const Trial& trial = trials_[candidate];
      if (!complete(trial)) return;
      std::int64_t best = best_total_;
      while (trial.total.count() < best && !best_total_.compare_exchange_weak(best, trial.total.count())) {
      }
    });
  }
}

namespace {

/// Returns a plan with the given recomputation; a separate race chooses its other FreeParts. Its objective is
/// infinite if it does not fit.
RankedPlan raced(const PlanRequest& request, Plan plan, Recomputation recomputation) {
  PlanRequest with_it = request;  // with the rest of the time limit
  with_it.search.recomputations = {recomputation};
  plan.recomputation = recomputation;
  CandidateRace race(with_it);
  race.add({plan});
  PlanResult best = race.best();
  RankedPlan ranked;
  ranked.plan = best.plan ? std::move(*best.plan) : std::move(plan);
  ranked.scheduler = "random";
  ranked.objective = best.plan ? best.objective : Seconds(std::numeric_limits<double>::infinity());
  return ranked;
}

}  // namespace

PlanResult with_best_parts(const Planner& planner, const PlanRequest& request, bool for_each_recomputation) {
  struct Choice {
    RankedPlan raced;
    Seconds objective;  // the planner's own objective
  };
  PlanResult result;
  std::vector<Choice> choices;
  const std::vector<Recomputation> open = free_parts(request).recomputations;
  const Stopwatch watch;
  for (const Recomputation recomputation : open) {
    PlanRequest with_it = request;
    PlanRequest race = request;
    if (request.search.time_limit) {
      const Seconds left = *request.search.time_limit - watch.elapsed();
      if (left.count() <= 0 && !choices.empty()) break;
      with_it.search.time_limit = race.search.time_limit = std::max(left, Seconds{0.1});
    }
    if (for_each_recomputation) with_it.options.recomputation = recomputation;
    if (for_each_recomputation || recomputation == open.front()) {
      PlanResult planned = planner.plan(with_it);
      planned.candidates += result.candidates;
      result = std::move(planned);
    }
    if (result.plan) choices.push_back({raced(race, *result.plan, recomputation), result.objective});
  }
  if (choices.empty()) return result;
  const auto raced_s = [](const Choice& choice) { return choice.raced.objective.count(); };
  std::ranges::stable_sort(choices, {}, raced_s);
  if (std::isinf(raced_s(choices.front()))) std::ranges::reverse(choices);
  result.plan = choices.front().raced.plan;
  result.objective = choices.front().objective;
  result.infeasible_reason.clear();
  result.best.clear();
  for (Choice& choice : choices) result.best.push_back(std::move(choice.raced));
  return result;
}

}  // namespace dflop
