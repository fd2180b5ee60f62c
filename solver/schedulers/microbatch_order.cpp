#include "solver/schedulers/microbatch_order.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "solver/bins/heuristics.hpp"

namespace dflop {
namespace {

using Order = std::vector<std::int32_t>;  // microbatches by position

/// Moves the bins of one dp rank to the positions of its order.
void place(const Order& order, int rank, int dp, std::span<const std::int32_t> before,
           std::vector<std::int32_t>& bin) {
  std::vector<std::int32_t> position(order.size());
  for (std::size_t p = 0; p < order.size(); ++p) position[order[p]] = static_cast<std::int32_t>(p);
  for (std::size_t i = 0; i < bin.size(); ++i) {
    if (before[i] % dp == rank) bin[i] = position[before[i] / dp] * dp + rank;
  }
}

/// Removes from `left` the `count` adjacent microbatches whose forwards sum up to nearest to `seconds`, and
/// appends them to `order`. `left` is sorted by forward.
void take_nearest(const ReplicaRun& replica, int rank, std::size_t count, double seconds, Order& left,
                  Order& order) {
  count = std::min(count, left.size());
  std::size_t best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (std::size_t first = 0; first + count <= left.size(); ++first) {
    double sum = 0;
    for (std::size_t k = first; k < first + count; ++k) sum += replica.forward(rank, left[k]);
    const double miss = std::abs(sum - seconds);
    if (miss >= least) continue;
    least = miss;
    best = first;
  }
  const auto begin = left.begin() + static_cast<std::ptrdiff_t>(best);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  order.insert(order.end(), begin, end);
  left.erase(begin, end);
}

Order order_by_intervals(ReplicaRun& replica, int rank, int microbatches) {
  Order left = numbered(microbatches);
  std::ranges::stable_sort(left, {}, [&](std::int32_t m) { return replica.forward(rank, m); });
  Order order = {left.front()};
  const auto warm_up = static_cast<std::size_t>(replica.warm_up());
  const std::size_t kept = std::min(left.size() - 1, warm_up - 1);
  const Order rear(left.begin() + 1, left.begin() + 1 + static_cast<std::ptrdiff_t>(kept));
  left.erase(left.begin(), left.begin() + 1 + static_cast<std::ptrdiff_t>(kept));
  for (int position = 0; !left.empty(); ++position) {
    // Without a warm-up, the first interval has no forwards, and the next forward fills the second.
    const bool is_first = position == 0 && warm_up > 1;
    const double seconds = replica.interval(rank, order, position);
    take_nearest(replica, rank, is_first ? warm_up - 1 : 1, seconds, left, order);
  }
  order.insert(order.end(), rear.rbegin(), rear.rend());
  return order;
}

}  // namespace

ReplicaRun::ReplicaRun(const AssignmentProblem& problem, const std::vector<std::int32_t>& bin)
    : pipeline_(*problem.pipeline),
      dp_(problem.bins.dp),
      ends_(pipeline_.steps.size(), 0.0),
      last_(pipeline_.ranks(), 0.0) {
  for (const Load& load : pipeline_.loads) {
    std::vector<double>& sums = table_.emplace_back(problem.bins.bins, 0.0);
    const double share = load.of_microbatch ? dp_ : 1;
    for (std::size_t f = 0; f < load.mix.size(); ++f) {
      if (load.mix[f] == 0) continue;
      for (std::size_t i = 0; i < bin.size(); ++i)
        sums[bin[i]] += share * load.mix[f] * problem.features[f][i];
    }
  }
  find_first_rank_steps();
}

void ReplicaRun::find_first_rank_steps() {
  forwards_.assign(pipeline_.microbatches, -1);
  backwards_ = forwards_;
  bool any_backward = false;
  for (std::size_t i = 0; i < pipeline_.steps.size(); ++i) {
    const LoadStep& step = pipeline_.steps[i];
    if (step.rank != 0) continue;
    if (step.after >= 0 && pipeline_.steps[step.after].rank == 0) continue;  // second part of a step
    std::int32_t& forward = forwards_[step.microbatch];
    std::int32_t& backward = backwards_[step.microbatch];
    if (backward >= 0) has_intervals_ = false;
    any_backward = any_backward || forward >= 0;
    if (!any_backward) ++warm_up_;
    (forward < 0 ? forward : backward) = static_cast<std::int32_t>(i);
  }
  for (const std::int32_t step : backwards_) has_intervals_ = has_intervals_ && step >= 0;
}

/// Steps of positions without a microbatch are left out. In every order, the other steps keep their sequence.
void ReplicaRun::run(int rank, const std::vector<std::int32_t>& microbatches) {
  std::ranges::fill(last_, 0.0);
  const auto count = static_cast<std::int32_t>(microbatches.size());
  for (std::size_t i = 0; i < ends_.size(); ++i) {
    const LoadStep& step = pipeline_.steps[i];
    if (step.microbatch >= count) continue;
    const std::int32_t microbatch = microbatches[step.microbatch];
    double& last = last_[step.rank];
    if (step.after >= 0) last = std::max(last, ends_[step.after] + time(step.message, rank, microbatch));
    ends_[i] = last += time(step.duration, rank, microbatch);
  }
}

double ReplicaRun::makespan(int rank, const std::vector<std::int32_t>& microbatches) {
  run(rank, microbatches);
  double makespan = 0;
  for (std::size_t r = 0; r < last_.size(); ++r)
    makespan = std::max(makespan, last_[r] + pipeline_.tail_s[r]);
  return makespan;
}

double ReplicaRun::interval(int rank, const std::vector<std::int32_t>& microbatches, int position) {
  const LoadStep& backward = pipeline_.steps[backwards_[position]];
  if (backward.after < 0) return 0;
  run(rank, microbatches);
  const double arrival = ends_[backward.after] + time(backward.message, rank, microbatches[position]);
  const double before = ends_[position == 0 ? forwards_[0] : backwards_[position - 1]];
  return std::max(0.0, arrival - before);
}

double ReplicaRun::forward(int rank, std::int32_t microbatch) const {
  return time(pipeline_.steps[forwards_[0]].duration, rank, microbatch);
}

void fill_intervals(const AssignmentProblem& problem, std::vector<std::int32_t>& bin) {
  ReplicaRun replica(problem, bin);
  if (!replica.has_intervals()) return arrange_bins(problem.bins, bin);
  const std::vector<std::int32_t> before = bin;
  for (int rank = 0; rank < problem.bins.dp; ++rank)
    place(order_by_intervals(replica, rank, problem.bins.microbatches()), rank, problem.bins.dp, before, bin);
}

void insert_in_order(const AssignmentProblem& problem, std::vector<std::int32_t>& bin) {
  const int dp = problem.bins.dp;
  ReplicaRun replica(problem, bin);
  std::vector<double> encoder_s(problem.bins.bins, 0.0);
  for (std::size_t i = 0; i < bin.size(); ++i) encoder_s[bin[i]] += problem.bins.encoder_s[i];
  const std::vector<std::int32_t> before = bin;
  for (int rank = 0; rank < dp; ++rank) {
    Order sorted = numbered(problem.bins.microbatches());
    std::ranges::stable_sort(sorted, {}, [&](std::int32_t m) { return encoder_s[m * dp + rank]; });
    Order order;
    for (const std::int32_t microbatch : sorted) {
      Order trial = order;
      trial.push_back(microbatch);
      Order best = trial;
      double least = replica.makespan(rank, trial);
      for (std::size_t p = trial.size() - 1; p > 0; --p) {
        std::swap(trial[p], trial[p - 1]);
        const double seconds = replica.makespan(rank, trial);
        if (seconds >= least) continue;
        least = seconds;
        best = trial;
      }
      order = std::move(best);
    }
    place(order, rank, dp, before, bin);
  }
}

}  // namespace dflop
