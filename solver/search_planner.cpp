#include "solver/search_planner.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <tuple>

#include "solver/parallel.hpp"
#include "solver/plan_trial.hpp"
#include "solver/schedulers.hpp"
#include "solver/search_bound.hpp"
#include "solver/search_score.hpp"
#include "solver/search_space.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kBudget = 20'000'000;
constexpr std::size_t kOpenedAtOnce = 512;  // nodes, between runs
constexpr std::size_t kRunAtOnce = 32;      // plans, enough to keep the threads busy
constexpr std::size_t kOfLeastBound = 8;    // of these, for the proof
constexpr std::size_t kTriedInFull = 2;     // of each round's plans

/// Plans of one shape: a range of recomputations and one of microbatch counts, or one plan.
struct Node {
  double bound_s = 0;
  std::int32_t number = 0;  // in the order of making
  std::int32_t shape = 0;
  std::int8_t first_recomputation = 0;
  std::int8_t last_recomputation = 0;
  std::int16_t first_count = 0;  // of microbatches, into the shape's list
  std::int16_t last_count = 0;
  std::int16_t variant = -1;  // of the shape's list

  bool operator>(const Node& other) const {
    return std::tie(bound_s, number) > std::tie(other.bound_s, other.number);
  }
};

/// A single plan.
struct Leaf {
  Plan plan;
  PlanFloor floor;
  bool run = false;
  bool fits = true;
  double first_s = 0;                   // of the first iteration
  std::optional<double> objective_s{};  // of all iterations, both under LPT
};

/// A time limit takes the place of a budget that was not asked for.
std::int64_t budget_of(const SearchOptions& options) {
  if (options.budget > 0) return options.budget;
  return options.time_limit ? std::numeric_limits<std::int64_t>::max() : kBudget;
}

class PlanSearch {
 public:
  explicit PlanSearch(const PlanRequest& request)
      : request_(request),
        space_(request),
        bounds_(request),
        lpt_(make_scheduler("lpt")),
        scheduler_(make_scheduler(request.search.scheduler)),
        budget_(budget_of(request.search)) {}

  PlanResult run();

 private:
  using Clock = std::chrono::steady_clock;

  void add_shapes();
  void push(Node node);
  void open_nodes();
  void open(const Node& node);
  void cut(const Node& node);
  void add_leaves(const std::vector<Node>& nodes);
  std::vector<std::size_t> next_to_run() const;
  void run_first_iterations();
  void run_all_iterations();
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
  std::vector<Node> single_;  // opened in this round
  std::int32_t nodes_ = 0;
  std::vector<Leaf> leaves_;
  double incumbent_s_ = std::numeric_limits<double>::max();
  ClosestMiss closest_;
};

void PlanSearch::push(Node node) {
  node.number = nodes_++;
  if (node.bound_s < incumbent_s_) open_.push(node);
}

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
  push(kept);
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
    single_.push_back(node);
  }
}

void PlanSearch::open_nodes() {
  single_.clear();
  for (std::size_t opened = 0; opened < kOpenedAtOnce && !open_.empty(); ++opened) {
    const Node node = open_.top();
    if (node.bound_s >= incumbent_s_) break;
    open_.pop();
    open(node);
  }
  add_leaves(single_);
}

/// Makes and bounds all variants of the nodes.
void PlanSearch::add_leaves(const std::vector<Node>& nodes) {
  std::vector<std::vector<Leaf>> made(nodes.size());
  parallel_for(nodes.size(), [&](std::size_t n) {
    const SearchShape& shape = space_.shapes()[nodes[n].shape];
    const int m = space_.microbatches(shape)[nodes[n].first_count];
    const Recomputation recomputation = space_.recomputations()[nodes[n].first_recomputation];
    for (const SearchVariant& variant : space_.variants(shape, m)) {
      std::optional<Plan> plan = space_.plan(shape, recomputation, m, variant);
      if (!plan) continue;
      const PlanFloor floor = bounds_.plan_floor(*plan);
      made[n].push_back({*std::move(plan), floor});
      made[n].back().floor.bound_s = std::max(floor.bound_s, nodes[n].bound_s);
    }
  });
  for (std::vector<Leaf>& of_node : made) {
    for (Leaf& leaf : of_node) {
      if (leaf.floor.memory > request_.cluster.gpu.usable_memory()) {
        closest_.add(leaf.plan, leaf.floor.memory);
      } else {
        leaves_.push_back(std::move(leaf));
      }
    }
  }
}

/// Those with the smallest estimates and those with the smallest bounds.
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
      take_first(kRunAtOnce - kOfLeastBound, [](const Leaf& leaf) { return leaf.floor.estimate_s; });
  const double known_to_fit = open_bound();
  const auto of_bound = take_first(kOfLeastBound, [](const Leaf& leaf) { return leaf.floor.bound_s; });
  for (const std::size_t i : of_bound) {
    if (leaves_[i].floor.bound_s <= known_to_fit) next.push_back(i);
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
    spent_ += instructions_of(leaves_[i].plan);
    if (!leaves_[i].fits) closest_.add(leaves_[i].plan, leaves_[i].floor.memory);
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

/// The smallest bound of what is not known not to fit.
double PlanSearch::open_bound() const {
  double bound = incumbent_s_;
  if (!open_.empty()) bound = std::min(bound, open_.top().bound_s);
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
