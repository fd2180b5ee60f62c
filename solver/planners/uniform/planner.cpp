#include "solver/planners/uniform/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <numeric>
#include <vector>

#include "core/support/parallel.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

/// A Split has the layers of encoder and LLM on every stage.
struct Split {
  std::vector<int> encoder;
  std::vector<int> llm;
};

std::vector<Split> split_by_count(const ModelSpec& model, int stages) {
  const int layers = model.encoder.layers + model.llm.layers;
  if (stages > layers) return {};
  Split split;
  int encoder_left = model.encoder.layers;
  for (const int count : split_layers(layers, stages)) {
    split.encoder.push_back(std::min(count, encoder_left));
    split.llm.push_back(count - split.encoder.back());
    encoder_left -= split.encoder.back();
  }
  return {split};
}

std::vector<Split> split_encoder_first(const ModelSpec& model, int stages) {
  const int layers = model.llm.layers;
  const int even = (layers + stages - 1) / stages;
  std::vector<int> kept = {even, even * 3 / 4, even / 2, even / 4, 0};
  if (stages == 1) kept = {layers};
  kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
  std::vector<Split> splits;
  for (const int first : kept) {
    if (layers - first < stages - 1) continue;
    Split split{std::vector<int>(stages, 0), {first}};
    split.encoder.front() = model.encoder.layers;
    if (stages > 1) {
      const std::vector<int> rest = split_layers(layers - first, stages - 1);
      split.llm.insert(split.llm.end(), rest.begin(), rest.end());
    }
    splits.push_back(std::move(split));
  }
  return splits;
}

/// Returns, of the counts with the same whole number of samples per microbatch, the largest; where dp divides
/// the batch only those that leave no rest.
std::vector<int> microbatch_counts(int gbs, int dp) {
  const int samples = gbs / dp;
  std::vector<int> counts;
  for (int m = 1; m <= samples; ++m) {
    const bool wanted = gbs % dp == 0 ? samples % m == 0 : m == samples / (samples / m);
    if (wanted) counts.push_back(m);
  }
  return counts;
}

/// A Trial says how one candidate did.
struct Trial {
  Nanoseconds total{0};  // of the iterations run
  std::size_t iterations = 0;
  Bytes needed;
  bool fits = true;
};

/// A UniformSearch runs the candidates, in parallel; what it finds does not depend on who runs first.
class UniformSearch {
 public:
  UniformSearch(const PlanRequest& request, std::vector<Plan> candidates)
      : request_(request),
        candidates_(std::move(candidates)),
        trials_(candidates_.size()),
        progress_(request, static_cast<std::int64_t>(candidates_.size() * request.batches.size())) {}

  PlanResult run() {
    run_first_iterations();
    run_all_iterations();
    return best();
  }

 private:
  bool out(const Trial& trial) const { return !trial.fits || trial.total.count() > best_total_; }
  std::size_t iterations() const { return request_.batches.size(); }

  void run_next_iteration(std::size_t candidate) {
    const Plan& plan = candidates_[candidate];
    Trial& trial = trials_[candidate];
    const std::size_t iteration = trial.iterations++;
    const Assignment assignment =
        random_assignment(request_.batches[iteration].size(), plan, request_.seed, iteration);
    const Timeline timeline = run_iteration(request_, plan, iteration, assignment);
    trial.total += timeline.makespan;
    trial.needed = peak_memory(timeline);
    trial.fits = trial.needed <= request_.cluster.gpu.usable_memory();
    progress_.add(1);
  }

  void run_first_iterations() {
    parallel_for(candidates_.size(), [&](std::size_t c) {
      trials_[c].needed = largest_model_state(request_, candidates_[c]);
      trials_[c].fits = trials_[c].needed <= request_.cluster.gpu.usable_memory();
      if (trials_[c].fits) run_next_iteration(c);
    });
  }

  /// Runs the promising ones first, so that the others are given up early.
  void run_all_iterations() {
    std::vector<std::size_t> order(candidates_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::ranges::stable_sort(order, {}, [&](std::size_t c) { return trials_[c].total; });
    std::atomic<std::size_t> next = 0;
    parallel_for(order.size(), [&](std::size_t) {
      const std::size_t candidate = order[next++];
      Trial& trial = trials_[candidate];
      while (trial.iterations < iterations() && !out(trial)) run_next_iteration(candidate);
      progress_.add(static_cast<std::int64_t>(iterations() - trial.iterations));
      if (out(trial)) return;
      std::int64_t best = best_total_;
      while (trial.total.count() < best && !best_total_.compare_exchange_weak(best, trial.total.count())) {
      }
    });
  }

  PlanResult best() const {
    PlanResult result;
    result.candidates = static_cast<std::int64_t>(candidates_.size());
    const auto complete = [&](const Trial& t) { return t.fits && t.iterations == iterations(); };
    const auto better = [&](const Trial& a, const Trial& b) {
      return complete(a) && (!complete(b) || a.total < b.total);
    };
    const auto best = std::min_element(trials_.begin(), trials_.end(), better);
    if (best != trials_.end() && complete(*best)) {
      result.plan = candidates_[best - trials_.begin()];
      result.objective = Seconds(best->total) / static_cast<double>(iterations());
      return result;
    }
    ClosestMiss closest;
    for (std::size_t c = 0; c < trials_.size(); ++c) closest.add(candidates_[c], trials_[c].needed);
    result.infeasible_reason = closest.reason(request_.cluster);
    return result;
  }

  const PlanRequest& request_;
  std::vector<Plan> candidates_;
  std::vector<Trial> trials_;
  TrialProgress progress_;
  /// This is the total of the best candidate that has run all iterations, in nanoseconds.
  std::atomic<std::int64_t> best_total_ = std::numeric_limits<std::int64_t>::max();
};

}  // namespace

std::vector<Plan> uniform_candidates(const PlanRequest& request, UniformSplit split) {
  Plan plan = blank_plan(request, UniformPlanner(split).name());
  plan.layout = Layout::uniform;
  std::vector<Plan> candidates;
  const int gpus = request.cluster.gpus();
  for (const auto& [tp, pp, dp, none] : module_plans(request.cluster, gpus, gpus, request.gbs)) {
    const int stages = pp * plan.chunks;
    for (const Split& layers : split == UniformSplit::by_count ? split_by_count(request.model, stages)
                                                               : split_encoder_first(request.model, stages)) {
      plan.encoder = {tp, pp, dp, layers.encoder};
      plan.llm = {tp, pp, dp, layers.llm};
      for (const int microbatches : microbatch_counts(request.gbs, dp)) {
        if (traits(plan.order).in_rounds && microbatches % pp != 0) continue;
        plan.microbatches = microbatches;
        candidates.push_back(plan);
      }
    }
  }
  return candidates;
}

PlanResult UniformPlanner::plan(const PlanRequest& request) const {
  check_batches(request);
  std::vector<Plan> candidates = uniform_candidates(request, split_);
  if (!candidates.empty()) return UniformSearch(request, std::move(candidates)).run();
  PlanResult result;
  result.infeasible_reason = fmt::format(
      "{} GPUs cannot be split into tp x pp x dp with tp dividing the {} of a node, dp at most the global "
      "batch of {} and a layer for every stage of {} encoder and {} LLM layers",
      request.cluster.gpus(), request.cluster.gpus_per_node, request.gbs, request.model.encoder.layers,
      request.model.llm.layers);
  return result;
}

}  // namespace dflop
