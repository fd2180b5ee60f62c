#include "solver/dflop_planner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>

#include "core/error.hpp"
#include "core/schedules.hpp"
#include "solver/duration_table.hpp"
#include "solver/module_choices.hpp"
#include "solver/parallel.hpp"
#include "solver/plan_trial.hpp"
#include "solver/published_objective.hpp"
#include "solver/random_scheduler.hpp"
#include "solver/schedulers.hpp"

namespace dflop {
namespace {

constexpr std::size_t kMostItems = 256;
constexpr std::size_t kFirstItems = 8;       // that every candidate is looked at with
constexpr std::size_t kItemsGrowth = 4;      // and then so many times more
constexpr std::size_t kRefinedAtOnce = 512;  // enough to keep the threads busy

/// Encoder and LLM that use all GPUs together.
struct Pair {
  ModuleChoice encoder;
  ModuleChoice llm;
  int fewest = 1;           // microbatches that may still fit
  bool most_tried = false;  // whether the most microbatches have been tried for memory
};

/// Configurations that differ in the number of microbatches only, and a number of seconds below which none of
/// their objectives is.
struct Candidate {
  double bound_s = 0;
  std::int32_t pair = 0;
  std::int32_t fewest = 1;  // microbatches
  std::int32_t most = 1;    // microbatches
  std::size_t items = 0;    // looked at

  bool operator>(const Candidate& other) const {
    return std::tie(bound_s, pair, fewest) > std::tie(other.bound_s, other.pair, other.fewest);
  }
};

DurationTable durations_of(const PlanRequest& request, const ModuleChoices& choices, Module module,
                           std::span<const Sample> items) {
  const bool is_encoder = module == Module::encoder;
  std::vector<Workload> workloads;
  for (const Sample& item : items) workloads.push_back(is_encoder ? item.encoder() : item.llm());
  return DurationTable(
      workloads, [&request, &choices, is_encoder](int pipeline, std::int64_t shares, const Workload& item) {
        const Workload share = share_of_batch(item, request.gbs, shares);
        const Work work = is_encoder ? Work{share, {}} : Work{{}, share};
        return slowest_stage(request.cost, choices.pipelines[pipeline].stages, work).count();
      });
}

/// Best-first branch and bound over pairs, numbers of microbatches and items. The candidate with the smallest
/// bound is looked at with more items or cut in two; the first that is one configuration with all items has
/// the smallest objective.
class DflopSearch {
 public:
  explicit DflopSearch(const PlanRequest& request)
      : request_(request),
        items_(planning_items(request.profile)),
        encoder_(module_choices(request, Module::encoder)),
        llm_(module_choices(request, Module::llm)),
        encoder_seconds_(durations_of(request, encoder_, Module::encoder, items_)),
        llm_seconds_(durations_of(request, llm_, Module::llm, items_)),
        lpt_(make_scheduler("lpt")) {}

  PlanResult run();

 private:
  void add_pairs();
  /// Takes the most promising candidates, up to the first that is decided, and looks at them more closely.
  /// Returns how many of them nothing was known of.
  std::int64_t refine();
  double bound(const Candidate& candidate, const DurationTable::Row& encoder,
               const DurationTable::Row& llm) const;
  bool accept(const Candidate& candidate);
  /// Tries a plan on all iterations, with random and with LPT microbatches.
  bool fits(const Plan& plan);
  Plan plan_of(const Pair& pair, int microbatches) const;
  bool decided(const Candidate& candidate) const {
    return candidate.fewest == candidate.most && candidate.items == items_.size();
  }

  const PlanRequest& request_;
  std::vector<Sample> items_;
  ModuleChoices encoder_;
  ModuleChoices llm_;
  DurationTable encoder_seconds_;
  DurationTable llm_seconds_;
  std::unique_ptr<Scheduler> lpt_;
  std::vector<Pair> pairs_;
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> front_;
  ClosestMiss closest_;
  std::int64_t configurations_ = 0;
};

void DflopSearch::add_pairs() {
  const Bytes usable = request_.cluster.gpu.usable_memory();
  std::vector<std::vector<ModuleChoice>> llm_of_ranks(request_.cluster.gpus());
  for (const ModuleChoice& llm : llm_.choices) llm_of_ranks[llm.ranks].push_back(llm);
  for (const ModuleChoice& encoder : encoder_.choices) {
    for (const ModuleChoice& llm : llm_of_ranks[request_.cluster.gpus() - encoder.ranks]) {
      const Pair pair{encoder, llm};
      const int most = request_.gbs / llm.dp;
      configurations_ += most;
      const Bytes needed = std::max(encoder.model_state, llm.model_state);
      if (needed <= usable) {
        front_.push({0.0, static_cast<std::int32_t>(pairs_.size()), 1, most, 0});
        pairs_.push_back(pair);
      } else {
        closest_.add(plan_of(pair, most), needed);
      }
    }
  }
}

Plan DflopSearch::plan_of(const Pair& pair, int microbatches) const {
  const ModulePipeline& encoder = encoder_.pipelines[pair.encoder.pipeline];
  const ModulePipeline& llm = llm_.pipelines[pair.llm.pipeline];
  Plan plan = blank_plan(request_, "dflop");
  plan.layout = Layout::disaggregated;
  plan.encoder = even_module(request_.model.encoder.layers, encoder.tp, encoder.pp, pair.encoder.dp);
  plan.llm = even_module(request_.model.llm.layers, llm.tp, llm.pp, pair.llm.dp);
  plan.microbatches = microbatches;
  return plan;
}

std::int64_t DflopSearch::refine() {
  struct Task {
    Candidate candidate;
    const DurationTable::Row* encoder;
    const DurationTable::Row* llm;
  };
  std::int64_t news = 0;
  std::vector<Task> tasks;
  const auto look_at = [&](const Candidate& candidate) {
    const ModuleChoice& encoder = pairs_[candidate.pair].encoder;
    const ModuleChoice& llm = pairs_[candidate.pair].llm;
    const std::int64_t most = candidate.most;
    tasks.push_back({candidate,
                     &encoder_seconds_.request(encoder.pipeline, most * encoder.dp, candidate.items),
                     &llm_seconds_.request(llm.pipeline, most * llm.dp, candidate.items)});
  };
  while (tasks.size() < kRefinedAtOnce && !front_.empty() && !decided(front_.top())) {
    Candidate candidate = front_.top();
    front_.pop();
    if (candidate.most < pairs_[candidate.pair].fewest) continue;
    if (candidate.items == 0) ++news;
    if (candidate.items < items_.size()) {
      candidate.items = std::min(items_.size(), std::max(kFirstItems, kItemsGrowth * candidate.items));
      look_at(candidate);
      continue;
    }
    Candidate fewer = candidate;
    Candidate more = candidate;
    fewer.most = static_cast<std::int32_t>(std::sqrt(static_cast<double>(candidate.fewest) * candidate.most));
    more.fewest = fewer.most + 1;
    look_at(fewer);
    look_at(more);
  }
  encoder_seconds_.fill();
  llm_seconds_.fill();
  parallel_for(tasks.size(), [&](std::size_t t) {
    tasks[t].candidate.bound_s = bound(tasks[t].candidate, *tasks[t].encoder, *tasks[t].llm);
  });
  for (const Task& task : tasks) front_.push(task.candidate);
  return news;
}

/// The fewest microbatches make the fewest steps, the most make the shortest ones.
double DflopSearch::bound(const Candidate& candidate, const DurationTable::Row& encoder,
                          const DurationTable::Row& llm) const {
  double sum = 0;
  for (std::size_t i = 0; i < candidate.items; ++i) {
    sum += std::max(encoder_seconds_.at(encoder, i), llm_seconds_.at(llm, i));
  }
  const int steps =
      candidate.fewest + encoder_.pipelines[encoder.pipeline].pp + llm_.pipelines[llm.pipeline].pp - 1;
  return sum * (static_cast<double>(steps) / static_cast<double>(items_.size()));
}

bool DflopSearch::fits(const Plan& plan) {
  for (std::size_t iteration = 0; iteration < request_.batches.size(); ++iteration) {
    const Batch& batch = request_.batches[iteration];
    const Assignment random = random_assignment(batch.size(), plan, request_.seed, iteration);
    const ScheduleRequest lpt_request{batch,     plan, request_.model, request_.cost, request_.seed,
                                      iteration, {}};
    for (const Assignment& assignment : {random, lpt_->schedule(lpt_request).assignment}) {
      const Bytes needed = peak_memory(run_iteration(request_, plan, iteration, assignment));
      if (needed <= request_.cluster.gpu.usable_memory()) continue;
      closest_.add(plan, needed);
      return false;
    }
  }
  return true;
}

/// Whether a decided candidate fits the memory; if not, learns which others need not be tried.
bool DflopSearch::accept(const Candidate& candidate) {
  Pair& pair = pairs_[candidate.pair];
  if (candidate.most < pair.fewest) return false;
  if (fits(plan_of(pair, candidate.most))) return true;
  pair.fewest = candidate.most + 1;
  const int most = request_.gbs / pair.llm.dp;
  if (!pair.most_tried && candidate.most < most && !fits(plan_of(pair, most))) pair.fewest = most + 1;
  pair.most_tried = true;
  return false;
}

PlanResult DflopSearch::run() {
  add_pairs();
  TrialProgress progress(request_, static_cast<std::int64_t>(pairs_.size()));
  PlanResult result;
  result.candidates = configurations_;
  while (!front_.empty()) {
    const Candidate best = front_.top();
    if (!decided(best)) {
      progress.add(refine());
      continue;
    }
    front_.pop();
    if (!accept(best)) continue;
    result.plan = plan_of(pairs_[best.pair], best.most);
    result.objective = Seconds(best.bound_s);
    return result;
  }
  result.infeasible_reason = closest_.reason(request_.cluster);
  return result;
}

}  // namespace

std::vector<Sample> planning_items(std::span<const Sample> profile) {
  std::vector<Sample> items;
  const std::size_t count = std::min(profile.size(), kMostItems);
  for (std::size_t i = 0; i < count; ++i) items.push_back(profile[i * profile.size() / count]);
  double encoder_tokens = 1;
  double llm_tokens = 1;
  for (const Sample& item : items) {
    encoder_tokens += static_cast<double>(item.encoder().tokens);
    llm_tokens += static_cast<double>(item.llm_tokens);
  }
  const auto size = [&](const Sample& item) {
    return static_cast<double>(item.encoder().tokens) / encoder_tokens +
           static_cast<double>(item.llm_tokens) / llm_tokens;
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Sample& a, const Sample& b) { return size(a) > size(b); });
  return items;
}

PlanResult DflopPlanner::plan(const PlanRequest& request) const {
  check_batches(request);
  if (has_chunks(request.options.schedule)) {
    throw Error(ErrorKind::usage, "the dflop planner makes one stage a pipeline rank, found the schedule " +
                                      std::string(to_string(request.options.schedule)) +
                                      ", which is of several");
  }
  if (request.profile.empty()) throw Error(ErrorKind::input, "planning needs at least one profiled sample");
  if (request.cluster.gpus() > 1) return DflopSearch(request).run();
  PlanResult result;
  result.infeasible_reason = "encoder and LLM on GPUs of their own need at least 2 GPUs, cluster '" +
                             request.cluster.name + "' has 1";
  return result;
}

}  // namespace dflop
