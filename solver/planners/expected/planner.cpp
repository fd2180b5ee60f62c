#include "solver/planners/expected/planner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"
#include "core/support/clock.hpp"
#include "core/support/parallel.hpp"
#include "solver/plan_problem/memory.hpp"
#include "solver/plan_problem/trial.hpp"
#include "solver/planners/expected/module_durations.hpp"
#include "solver/schedulers/schedulers.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMaxItems = 256;
constexpr std::size_t kPricedAtOnce = 64;      // enough to keep the threads busy
constexpr double kWithoutRounding = 1 - 1e-9;  // factor on a bound: its rounding errors are smaller

/// A Pair is an encoder and an LLM that together use all GPUs.
struct Pair {
  std::int32_t encoder = 0;  // choice
  std::int32_t llm = 0;      // choice
  int fewest = 1;            // min microbatches that may still fit
  bool most_tried = false;   // whether the most microbatches have been tried for memory
};

/// A View says how closely a candidate has been examined.
enum class View : std::uint8_t {
  pair,     // coarse sums of both modules, with their best number of microbatches
  range,    // the same for the candidate's own numbers of microbatches
  bundles,  // one number of microbatches, items in bundles
  items,    // one number of microbatches, all items: the objective itself
};

/// A Candidate is a set of configurations that differ only in the number of microbatches, with a lower bound
/// in seconds on their objectives.
struct Candidate {
  double bound_s = 0;
  std::int32_t pair = 0;
  std::int32_t fewest = 1;  // microbatches
  std::int32_t most = 1;    // microbatches
  View view = View::pair;

  bool operator>(const Candidate& other) const {
    return std::tie(bound_s, pair, fewest) > std::tie(other.bound_s, other.pair, other.fewest);
  }
};

/// Splits the numbers of microbatches from 1 to `most` at the numbers of the share grid, and calls
/// visit(first, last) for each range until it returns false.
template <typename Visit>
void for_each_range(int most, const Visit& visit) {
  int before = 0;
  for (int index = 1; before < most; ++index) {
    const int last = static_cast<int>(std::min<std::int64_t>(most, share_grid::value(index)));
    if (!visit(before + 1, last)) return;
    before = last;
  }
}

/// An ExpectedSearch is a best-first branch and bound over pairs of module choices and numbers of
/// microbatches. It takes the candidate with the smallest bound and examines it more closely or splits it in
/// two. The first candidate whose bound is exact (View::items) has the smallest objective.
class ExpectedSearch {
 public:
  explicit ExpectedSearch(const PlanRequest& request)
      : request_(request),
        items_(planning_items(request.profile), request.cost),
        encoder_(request, items_, Module::encoder),
        llm_(request, items_, Module::llm),
        lpt_(make_scheduler("lpt")) {}

  PlanResult run() {
    add_pairs();
    TrialProgress progress(request_, static_cast<std::int64_t>(pairs_.size()));
    PlanResult result;
    result.candidates = configurations_;
    while (!front_.empty()) {
      const Candidate best = front_.top();
      if (best.view != View::items) {
        if (request_.search.time_limit && watch_.elapsed() >= *request_.search.time_limit) {
          result.infeasible_reason = "the time limit ended the search for a plan";
          return result;
        }
        progress.add(refine());
        continue;
      }
      front_.pop();
      if (!accept(best)) continue;
      result.plan = plan_of(pairs_[best.pair], best.most);
      result.plan->objective = Objective::published;
      result.objective = Seconds(best.bound_s);
      return result;
    }
    result.infeasible_reason = closest_.reason(request_.cluster);
    return result;
  }

 private:
  /// A Task is a candidate whose bound waits for durations.
  struct Task {
    Candidate candidate;
    const DurationTable::Row* encoder;
    const DurationTable::Row* llm;
  };

  void add_pairs() {
    const Bytes usable = request_.cluster.gpu.usable_memory();
    std::vector<std::vector<std::int32_t>> llm_of_ranks(request_.cluster.gpus());
    const std::vector<ModuleChoice>& llms = llm_.all().choices;
    for (std::size_t l = 0; l < llms.size(); ++l) {
      llm_of_ranks[llms[l].ranks].push_back(static_cast<std::int32_t>(l));
    }
    std::optional<Bytes> least_missed;
    std::vector<Candidate> candidates;
    const std::vector<ModuleChoice>& encoders = encoder_.all().choices;
    for (std::size_t e = 0; e < encoders.size(); ++e) {
      for (const std::int32_t l : llm_of_ranks[request_.cluster.gpus() - encoders[e].ranks]) {
        const Pair pair{static_cast<std::int32_t>(e), l};
        const int most = most_microbatches(pair);
        configurations_ += most;
        const Bytes needed = std::max(encoders[e].model_state, llms[l].model_state);
        if (needed <= usable) {
          candidates.push_back(
              {pair_bound(pair, most), static_cast<std::int32_t>(pairs_.size()), 1, most, View::pair});
          pairs_.push_back(pair);
        } else if (!least_missed || needed < *least_missed) {
          least_missed = needed;
          closest_.add(plan_of(pair, most), needed);
        }
      }
    }
    front_ = decltype(front_)(std::greater<>(), std::move(candidates));
  }

  /// Returns a bound on all numbers of microbatches of a pair.
  double pair_bound(const Pair& pair, int most) const {
    double best = std::numeric_limits<double>::infinity();
    for_each_range(most, [&](int fewest, int last) {
      best = std::min(best, coarse_bound(pair, fewest, last));
      return coarse_bound(pair, fewest, most) < best;  // otherwise more are no better
    });
    return best;
  }

  /// Takes the most promising candidates, up to the first whose bound is exact, and examines them more
  /// closely. Returns the number of pairs that were examined for the first time.
  std::int64_t refine() {
    std::int64_t news = 0;
    std::vector<Task> tasks;
    while (tasks.size() < kPricedAtOnce && !front_.empty() && front_.top().view != View::items) {
      const Candidate candidate = front_.top();
      front_.pop();
      if (candidate.most < pairs_[candidate.pair].fewest) continue;
      if (candidate.view == View::pair) {
        ++news;
        for_each_range(candidate.most, [&](int fewest, int most) {
          add_range(candidate, fewest, most);
          return true;
        });
      } else if (candidate.fewest < candidate.most) {
        const int middle = candidate.fewest + (candidate.most - candidate.fewest) / 2;
        add_range(candidate, candidate.fewest, middle);
        add_range(candidate, middle + 1, candidate.most);
      } else {
        tasks.push_back(task(candidate));
      }
    }
    for (ModuleDurations* module : {&encoder_, &llm_}) {
      module->bundles().fill();
      module->single().fill();
    }
    for (Task& priced : tasks) {
      priced.candidate.bound_s = bound(priced);
      front_.push(priced.candidate);
    }
    return news;
  }

  void add_range(const Candidate& candidate, int fewest, int most) {
    front_.push(
        {coarse_bound(pairs_[candidate.pair], fewest, most), candidate.pair, fewest, most, View::range});
  }

  Task task(Candidate candidate) {
    candidate.view = candidate.view == View::range ? View::bundles : View::items;
    const auto row = [&](ModuleDurations& module, const ModuleChoice& choice) {
      DurationTable& table = candidate.view == View::bundles ? module.bundles() : module.single();
      return &table.request(module.pipeline(choice).kind, std::int64_t{candidate.most} * choice.dp);
    };
    const Pair& pair = pairs_[candidate.pair];
    return {candidate, row(encoder_, encoder(pair)), row(llm_, llm(pair))};
  }

  /// Returns a coarse bound for a range of numbers of microbatches. It combines the smallest number, which
  /// gives the fewest steps, with the largest, which gives the shortest steps.
  double coarse_bound(const Pair& pair, int fewest, int most) const {
    const double sum = std::max(encoder_.coarse_sum(encoder(pair), most), llm_.coarse_sum(llm(pair), most));
    return mean_over_items(sum, steps(pair, fewest)) * kWithoutRounding;
  }

  /// Bounds a task. With all items the bound is the objective.
  double bound(const Task& task) {
    const bool exact = task.candidate.view == View::items;
    const std::vector<Bundle>& bundles = exact ? items_.single : items_.bundles;
    const DurationTable& encoder = exact ? encoder_.single() : encoder_.bundles();
    const DurationTable& llm = exact ? llm_.single() : llm_.bundles();
    double sum = 0;
    for (std::size_t b = 0; b < bundles.size(); ++b) {
      sum += bundles[b].items * std::max(encoder.at(*task.encoder, b), llm.at(*task.llm, b));
    }
    const double mean = mean_over_items(sum, steps(pairs_[task.candidate.pair], task.candidate.most));
    return exact ? mean : mean * kWithoutRounding;
  }

  double mean_over_items(double sum, int steps) const {
    return sum * (static_cast<double>(steps) / static_cast<double>(items_.single.size()));
  }

  /// Returns whether a decided candidate fits the memory. If not, records which others need not be tried.
  bool accept(const Candidate& candidate) {
    Pair& pair = pairs_[candidate.pair];
    if (candidate.most < pair.fewest) return false;
    if (fits(plan_of(pair, candidate.most))) return true;
    pair.fewest = candidate.most + 1;
    const int most = most_microbatches(pair);
    if (!pair.most_tried && candidate.most < most && !fits(plan_of(pair, most))) pair.fewest = most + 1;
    pair.most_tried = true;
    return false;
  }

  /// Returns the peak memory of a plan in iteration trial / 2, with random microbatches if even, else LPT's.
  Bytes memory_of_trial(const Plan& plan, std::size_t trial) const {
    const std::size_t iteration = trial / 2;
    const Batch& batch = request_.batches[iteration];
    const ScheduleRequest lpt_request{batch, plan, request_.model, request_.cost, request_.seed, iteration};
    const Assignment assignment = trial % 2 == 0
                                      ? random_assignment(batch.size(), plan, request_.seed, iteration)
                                      : lpt_->schedule(lpt_request).assignment;
    if (memory_needs_no_run(plan)) {
      return peak_memory(plan, request_.model, request_.cost, batch, assignment);
    }
    return peak_memory(run_iteration(request_, plan, iteration, assignment));
  }

  /// Tries a plan on all iterations, with random and with LPT microbatches. The trial that ruled out the
  /// previous plan comes first, because plans mostly fail in the same trial. Then all other trials run at
  /// once.
  bool fits(const Plan& plan) {
    const Bytes usable = request_.cluster.gpu.usable_memory();
    std::vector<Bytes> needed(2 * request_.batches.size());
    needed[latest_miss_] = memory_of_trial(plan, latest_miss_);
    if (needed[latest_miss_] <= usable) {
      parallel_for(needed.size(), [&](std::size_t t) {
        if (t != latest_miss_) needed[t] = memory_of_trial(plan, t);
      });
    }
    const auto miss = std::find_if(needed.begin(), needed.end(), [&](Bytes bytes) { return usable < bytes; });
    if (miss == needed.end()) return true;
    latest_miss_ = static_cast<std::size_t>(miss - needed.begin());
    closest_.add(plan, *miss);
    return false;
  }

  Plan plan_of(const Pair& pair, int microbatches) const {
    const ModulePipeline& encoder_pipeline = encoder_.pipeline(encoder(pair));
    const ModulePipeline& llm_pipeline = llm_.pipeline(llm(pair));
    Plan plan = blank_plan(request_, "dflop-expected");
    plan.layout = Layout::disaggregated;
    plan.encoder = even_module(request_.model.encoder.layers, encoder_pipeline.tp, encoder_pipeline.pp,
                               encoder(pair).dp);
    plan.llm = even_module(request_.model.llm.layers, llm_pipeline.tp, llm_pipeline.pp, llm(pair).dp);
    plan.microbatches = microbatches;
    return plan;
  }

  const ModuleChoice& encoder(const Pair& pair) const { return encoder_.all().choices[pair.encoder]; }
  const ModuleChoice& llm(const Pair& pair) const { return llm_.all().choices[pair.llm]; }
  int most_microbatches(const Pair& pair) const { return request_.gbs / llm(pair).dp; }
  /// Returns the pipeline steps for this many microbatches.
  int steps(const Pair& pair, int microbatches) const {
    return microbatches + encoder_.pipeline(encoder(pair)).pp + llm_.pipeline(llm(pair)).pp - 1;
  }

  const PlanRequest& request_;
  PlanningItems items_;
  ModuleDurations encoder_;
  ModuleDurations llm_;
  std::unique_ptr<Scheduler> lpt_;
  Stopwatch watch_;
  std::vector<Pair> pairs_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> front_;
  ClosestMiss closest_;
  std::size_t latest_miss_ = 0;  // trial that did not fit
  std::int64_t configurations_ = 0;
};

}  // namespace

std::vector<Sample> planning_items(std::span<const Sample> profile) {
  std::vector<Sample> items;
  const std::size_t count = std::min(profile.size(), kMaxItems);
  for (std::size_t i = 0; i < count; ++i) items.push_back(profile[i * profile.size() / count]);
  double encoder_tokens = 1;
  double llm_tokens = 1;
  for (const Sample& item : items) {
    encoder_tokens += static_cast<double>(item.encoder().all_tokens());
    llm_tokens += static_cast<double>(item.llm_tokens);
  }
  const auto size = [&](const Sample& item) {
    return static_cast<double>(item.encoder().all_tokens()) / encoder_tokens +
           static_cast<double>(item.llm_tokens) / llm_tokens;
  };
  std::ranges::stable_sort(items, std::greater(), size);
  return items;
}

PlanResult ExpectedPlanner::plan(const PlanRequest& request) const {
  check_disaggregated_request(request, name());
  PlanResult result;
  result.infeasible_reason = reason_against_apart(request);
  return result.infeasible_reason.empty() ? ExpectedSearch(request).run() : result;
}

}  // namespace dflop
