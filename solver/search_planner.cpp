#include "solver/search_planner.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "solver/parallel.hpp"
#include "solver/plan_trial.hpp"
#include "solver/schedulers.hpp"
#include "solver/search_bound.hpp"
#include "solver/search_score.hpp"
#include "solver/search_space.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kBudgetOfGpu = 400'000;  // about a second on two cores for 32 GPUs
constexpr std::int64_t kLeastBudget = 3'000'000;
constexpr std::int64_t kMostBudget = 60'000'000;
constexpr std::size_t kOpenedAtOnce = 512;  // nodes, between runs
constexpr std::size_t kRunAtOnce = 32;      // plans, enough to keep the threads busy
constexpr std::size_t kOfLeastBound = 8;    // of these, for the proof
constexpr std::size_t kTriedInFull = 2;     // of each round's plans
constexpr std::size_t kFamiliesAtOnce = 4;  // whose other variants are made, after a round
constexpr double kTooLarge = 2;             // on estimates of plans that are expected not to fit

/// Plans of one shape: a range of recomputations and one of microbatch counts.
struct Node {
  double bound_s = 0;
  std::int32_t number = 0;  // in the order of making
  std::int32_t shape = 0;
  std::int8_t first_recomputation = 0;
  std::int8_t last_recomputation = 0;
  std::int16_t first_count = 0;  // of microbatches, into the shape's list
  std::int16_t last_count = 0;

  bool operator>(const Node& other) const {
    return std::tie(bound_s, number) > std::tie(other.bound_s, other.number);
  }
};

/// A node of one recomputation and count: its plainest variant is made first, the others if that does well or
/// nothing that fits has a smaller bound.
struct Family {
  Node node;
  bool whole = false;  // all variants are made
};

/// A single plan.
struct Leaf {
  Plan plan;
  std::size_t family = 0;
  PlanFloor floor;
  bool run = false;
  bool fits = true;
  double first_s = 0;                   // of the first iteration
  std::optional<double> objective_s{};  // of all iterations, both under LPT
};

/// By how much plans of a kind were slower than estimated.
struct Experience {
  double sum = 1;
  double count = 1;

  double ratio() const { return sum / count; }
};

/// A time limit takes the place of a budget that was not asked for.
std::int64_t budget_of(const PlanRequest& request) {
  if (request.search.budget > 0) return request.search.budget;
  if (request.search.time_limit) return std::numeric_limits<std::int64_t>::max();
  return std::clamp(kBudgetOfGpu * request.cluster.gpus(), kLeastBudget, kMostBudget);
}

class PlanSearch {
 public:
  explicit PlanSearch(const PlanRequest& request)
      : request_(request),
        space_(request),
        bounds_(request),
        lpt_(make_scheduler("lpt")),
        scheduler_(make_scheduler(request.search.scheduler)),
        budget_(budget_of(request)) {}

  PlanResult run();

 private:
  using Clock = std::chrono::steady_clock;

  void add_shapes();
  void cut(const Node& node);
  void open_nodes();
  void open(const Node& node);
  void add_leaves(const std::vector<std::size_t>& families, bool plainest);
  void complete_families();
  double promise(const Leaf& leaf) const;
  std::vector<std::size_t> next_to_run() const;
  void run_first_iterations();
  void run_all_iterations();
  double known_bound() const;
  bool ended() const;
  double open_bound() const;
  PlanResult result();

  const PlanRequest& request_;
  SearchSpace space_;
  SearchBounds bounds_;
  std::unique_ptr<Scheduler> lpt_;
  std::unique_ptr<Scheduler> scheduler_;
  std::int64_t budget_;
  std::int64_t spent_ = 0;
  Clock::time_point start_ = Clock::now();
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open_;
  std::int32_t nodes_ = 0;
  std::vector<Family> families_;
  std::vector<Leaf> leaves_;
  std::map<std::pair<Layout, PipelineSchedule>, Experience> experience_;
  double incumbent_s_ = std::numeric_limits<double>::max();
  ClosestMiss closest_;
};

void PlanSearch::add_shapes() {
  for (std::size_t s = 0; s < space_.shapes().size(); ++s) {
    const std::vector<int> counts = space_.microbatches(space_.shapes()[s]);
    Node node;
    node.shape = static_cast<std::int32_t>(s);
    node.last_recomputation = static_cast<std::int8_t>(space_.recomputations().size() - 1);
    node.last_count = static_cast<std::int16_t>(counts.size() - 1);
    cut(node);
  }
}

/// Gives a range its bound and keeps it if it may hold something.
void PlanSearch::cut(const Node& node) {
  const SearchShape& shape = space_.shapes()[node.shape];
  const std::vector<int> counts = space_.microbatches(shape);
  const ShapeFloor floor = bounds_.shape_floor(shape, space_.recomputations()[node.first_recomputation],
                                               space_.recomputations()[node.last_recomputation],
                                               counts[node.first_count], counts[node.last_count]);
  if (floor.memory > request_.cluster.gpu.usable_memory()) {
    const auto plan = space_.plan(shape, space_.recomputations()[node.last_recomputation],
                                  counts[node.last_count], SearchVariant{});
    if (plan) closest_.add(*plan, floor.memory);
    return;
  }
  Node kept = node;
  kept.bound_s = std::max(node.bound_s, floor.bound_s);
  kept.number = nodes_++;
  if (kept.bound_s < incumbent_s_) open_.push(kept);
}

void PlanSearch::open(const Node& node) {
  Node part = node;
  if (node.first_recomputation < node.last_recomputation) {
    for (auto r = node.first_recomputation; r <= node.last_recomputation; ++r) {
      part.first_recomputation = part.last_recomputation = r;
      cut(part);
    }
  } else if (node.first_count < node.last_count) {
    part.last_count = static_cast<std::int16_t>((node.first_count + node.last_count) / 2);
    cut(part);
    part = node;
    part.first_count = static_cast<std::int16_t>((node.first_count + node.last_count) / 2 + 1);
    cut(part);
  } else {
    families_.push_back({node});
  }
}

void PlanSearch::open_nodes() {
  const std::size_t first = families_.size();
  for (std::size_t opened = 0; opened < kOpenedAtOnce && !open_.empty(); ++opened) {
    const Node node = open_.top();
    if (node.bound_s >= incumbent_s_) break;
    open_.pop();
    open(node);
  }
  std::vector<std::size_t> made(families_.size() - first);
  std::iota(made.begin(), made.end(), first);
  add_leaves(made, true);
}

/// Makes and bounds the plainest variants of families, or all others.
void PlanSearch::add_leaves(const std::vector<std::size_t>& families, bool plainest) {
  std::vector<std::vector<Leaf>> made(families.size());
  parallel_for(families.size(), [&](std::size_t f) {
    const Node& node = families_[families[f]].node;
    const SearchShape& shape = space_.shapes()[node.shape];
    const int m = space_.microbatches(shape)[node.first_count];
    const std::vector<SearchVariant> variants = space_.variants(shape, m);
    for (std::size_t v = plainest ? 0 : 1;
         v < (plainest ? std::min<std::size_t>(1, variants.size()) : variants.size()); ++v) {
      std::optional<Plan> plan =
          space_.plan(shape, space_.recomputations()[node.first_recomputation], m, variants[v]);
      if (!plan) continue;
      PlanFloor floor = bounds_.plan_floor(*plan);
      floor.bound_s = std::max(floor.bound_s, node.bound_s);
      made[f].push_back({*std::move(plan), families[f], floor});
    }
  });
  for (std::vector<Leaf>& of_family : made) {
    for (Leaf& leaf : of_family) {
      if (leaf.floor.memory > request_.cluster.gpu.usable_memory()) {
        closest_.add(leaf.plan, leaf.floor.memory);
      } else {
        leaves_.push_back(std::move(leaf));
      }
    }
  }
  for (const std::size_t f : families) families_[f].whole = !plainest;
}

/// Makes the other variants of the best families, and of those whose bound is below all that is known.
void PlanSearch::complete_families() {
  std::vector<std::pair<double, std::size_t>> best;
  std::vector<std::pair<double, std::size_t>> least;
  for (const Leaf& leaf : leaves_) {
    if (leaf.run && leaf.fits && !families_[leaf.family].whole) best.emplace_back(leaf.first_s, leaf.family);
  }
  const double known = known_bound();
  for (std::size_t f = 0; f < families_.size(); ++f) {
    if (!families_[f].whole && families_[f].node.bound_s < std::min(known, incumbent_s_))
      least.emplace_back(families_[f].node.bound_s, f);
  }
  std::set<std::size_t> chosen;
  for (auto* list : {&best, &least}) {
    const std::size_t count = std::min(kFamiliesAtOnce, list->size());
    std::partial_sort(list->begin(), list->begin() + static_cast<std::ptrdiff_t>(count), list->end());
    for (std::size_t i = 0; i < count; ++i) chosen.insert((*list)[i].second);
  }
  add_leaves({chosen.begin(), chosen.end()}, false);
}

/// What a plan may well take, by what was seen of its kind.
double PlanSearch::promise(const Leaf& leaf) const {
  const auto seen = experience_.find({leaf.plan.layout, leaf.plan.schedule});
  const double ratio = seen == experience_.end() ? 1.0 : seen->second.ratio();
  const bool fits = leaf.floor.expected_memory <= request_.cluster.gpu.usable_memory();
  return leaf.floor.estimate_s * ratio * (fits ? 1.0 : kTooLarge);
}

/// Those of the most promise and those with the smallest bounds.
std::vector<std::size_t> PlanSearch::next_to_run() const {
  std::vector<std::size_t> waiting;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (!leaves_[i].run && leaves_[i].floor.bound_s < incumbent_s_) waiting.push_back(i);
  }
  const auto take_first = [&](std::size_t count, auto&& key) {
    count = std::min(count, waiting.size());
    const auto end = waiting.begin() + static_cast<std::ptrdiff_t>(count);
    std::partial_sort(waiting.begin(), end, waiting.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(key(leaves_[a]), a) < std::tuple(key(leaves_[b]), b);
    });
    const std::vector<std::size_t> taken(waiting.begin(), end);
    waiting.erase(waiting.begin(), end);
    return taken;
  };
  std::vector<std::size_t> next =
      take_first(kRunAtOnce - kOfLeastBound, [&](const Leaf& leaf) { return promise(leaf); });
  const double known = known_bound();
  for (const std::size_t i : take_first(kOfLeastBound, [](const Leaf& leaf) { return leaf.floor.bound_s; })) {
    if (leaves_[i].floor.bound_s < known) next.push_back(i);
  }
  return next;
}

void PlanSearch::run_first_iterations() {
  const std::vector<std::size_t> next = next_to_run();
  parallel_for(next.size(), [&](std::size_t n) {
    Leaf& leaf = leaves_[next[n]];
    const PlanScore score = score_plan(request_, leaf.plan, *lpt_, 1);
    leaf.run = true;
    leaf.fits = score.fits;
    leaf.floor.memory = std::max(leaf.floor.memory, score.peak_memory);
    leaf.first_s = score.iterations.empty() ? 0 : score.iterations.front().count();
  });
  for (const std::size_t i : next) {
    const Leaf& leaf = leaves_[i];
    spent_ += instructions_of(leaf.plan);
    if (!leaf.fits) {
      closest_.add(leaf.plan, leaf.floor.memory);
      continue;
    }
    Experience& seen = experience_[{leaf.plan.layout, leaf.plan.schedule}];
    seen.sum += leaf.first_s / leaf.floor.estimate_s;
    seen.count += 1;
  }
}

void PlanSearch::run_all_iterations() {
  std::vector<std::size_t> best;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    const Leaf& leaf = leaves_[i];
    if (leaf.run && leaf.fits && !leaf.objective_s && leaf.floor.bound_s < incumbent_s_) best.push_back(i);
  }
  const auto end = best.begin() + static_cast<std::ptrdiff_t>(std::min(kTriedInFull, best.size()));
  std::partial_sort(best.begin(), end, best.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(leaves_[a].first_s, a) < std::tie(leaves_[b].first_s, b);
  });
  best.erase(end, best.end());
  parallel_for(best.size(), [&](std::size_t n) {
    Leaf& leaf = leaves_[best[n]];
    const PlanScore score = score_plan(request_, leaf.plan, *lpt_, request_.batches.size());
    leaf.fits = score.fits;
    leaf.floor.memory = std::max(leaf.floor.memory, score.peak_memory);
    if (score.fits) leaf.objective_s = objective_value(request_.search.objective, score.iterations).count();
  });
  for (const std::size_t i : best) {
    const Leaf& leaf = leaves_[i];
    spent_ += instructions_of(leaf.plan) * static_cast<std::int64_t>(request_.batches.size());
    if (leaf.objective_s) incumbent_s_ = std::min(incumbent_s_, *leaf.objective_s);
    if (!leaf.fits) closest_.add(leaf.plan, leaf.floor.memory);
  }
}

/// The smallest bound of a plan that has been run and fits: looking into larger ones proves nothing more.
double PlanSearch::known_bound() const {
  double bound = std::numeric_limits<double>::max();
  for (const Leaf& leaf : leaves_) {
    if (leaf.run && leaf.fits) bound = std::min(bound, leaf.floor.bound_s);
  }
  return bound;
}

/// The smallest bound of what is not known not to fit.
double PlanSearch::open_bound() const {
  double bound = incumbent_s_;
  if (!open_.empty()) bound = std::min(bound, open_.top().bound_s);
  for (const Family& family : families_) {
    if (!family.whole) bound = std::min(bound, family.node.bound_s);
  }
  for (const Leaf& leaf : leaves_) {
    if (leaf.fits) bound = std::min(bound, leaf.floor.bound_s);
  }
  return bound;
}

bool PlanSearch::ended() const {
  if (spent_ >= budget_) return true;
  return request_.search.time_limit && Clock::now() - start_ >= *request_.search.time_limit;
}

PlanResult PlanSearch::result() {
  PlanResult result;
  result.candidates = space_.size();
  std::vector<std::size_t> finalists;
  for (std::size_t i = 0; i < leaves_.size(); ++i) {
    if (leaves_[i].objective_s) finalists.push_back(i);
  }
  std::sort(finalists.begin(), finalists.end(), [&](std::size_t a, std::size_t b) {
    return std::tie(*leaves_[a].objective_s, a) < std::tie(*leaves_[b].objective_s, b);
  });
  finalists.resize(std::min<std::size_t>(finalists.size(), request_.search.listed));
  std::vector<std::optional<RankedPlan>> ranked(finalists.size());
  parallel_for(finalists.size(), [&](std::size_t n) {
    const Leaf& leaf = leaves_[finalists[n]];
    const PlanScore score = score_plan(request_, leaf.plan, *scheduler_, request_.batches.size());
    if (!score.fits) return;
    ranked[n] = score.shares;
    ranked[n]->plan = leaf.plan;
    ranked[n]->objective = objective_value(request_.search.objective, score.iterations);
    ranked[n]->bound = Seconds(leaf.floor.bound_s);
    ranked[n]->peak_memory = score.peak_memory;
  });
  for (std::optional<RankedPlan>& plan : ranked) {
    if (plan) result.best.push_back(*std::move(plan));
  }
  std::stable_sort(result.best.begin(), result.best.end(),
                   [](const RankedPlan& a, const RankedPlan& b) { return a.objective < b.objective; });
  if (result.best.empty()) {
    result.infeasible_reason = closest_.reason(request_.cluster);
    return result;
  }
  result.plan = result.best.front().plan;
  result.objective = result.best.front().objective;
  if (bounds_.known()) result.bound = std::min(result.objective, Seconds(open_bound()));
  return result;
}

PlanResult PlanSearch::run() {
  TrialProgress progress(request_, budget_);
  add_shapes();
  bool done = false;
  while (!done && !ended()) {
    const std::int64_t before = spent_;
    const std::size_t leaves = leaves_.size();
    open_nodes();
    complete_families();
    run_first_iterations();
    run_all_iterations();
    progress.add(spent_ - before);
    const bool opened = !open_.empty() && open_.top().bound_s < incumbent_s_;
    done = spent_ == before && leaves == leaves_.size() && !opened;
  }
  PlanResult found = result();
  found.exhausted = done;
  return found;
}

}  // namespace

PlanResult SearchPlanner::plan(const PlanRequest& request) const {
  check_batches(request);
  return PlanSearch(request).run();
}

}  // namespace dflop
