// The floors of one whole plan: every stage, rank and step priced.
#include <algorithm>
#include <numeric>

#include "core/order/schedules.hpp"
#include "core/program/plan_stages.hpp"
#include "solver/planners/search/bound.hpp"

namespace dflop {
namespace {

/// How many microbatches a rank holds at once whatever their sizes: any so many that follow each other.
int held_at_once(const PipelineShape& shape, int rank) {
  switch (shape.kind) {
    case PipelineSchedule::gpipe:
      return shape.microbatches;
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::zb_h1:
    case PipelineSchedule::zb_h2:
    case PipelineSchedule::encoder_in_bubbles:
      return std::min(shape.microbatches, shape.ranks - rank);
    default:
      return 1;
  }
}

/// How many microbatches of a stage a rank holds at most, if memory lets it; of its chunks together.
int expected_held(const PipelineShape& shape, int rank) {
  const int m = shape.microbatches;
  const int from_end = shape.all_ranks() - rank;
  const int place = rank - shape.leading;
  switch (shape.kind) {
    case PipelineSchedule::gpipe:
      return m;
    case PipelineSchedule::zb_h1:
      return std::min(m, shape.ranks);
    case PipelineSchedule::zb_h2:
      return std::min(m, m < 2 * shape.ranks - 1 ? shape.ranks : 2 * shape.ranks - 1);
    case PipelineSchedule::interleaved:
      if (place < 0) return std::min(m, from_end + shape.ranks);
      return std::min(m * shape.chunks, 2 * (shape.ranks - place - 1) + (shape.chunks - 1) * shape.ranks + 1);
    case PipelineSchedule::zb_v:
      return place < 0 ? std::min(m, from_end + shape.ranks) : std::min(m, shape.ranks) * shape.chunks;
    case PipelineSchedule::eager_1f1b:
      return 1;  // as many as there is memory for
    default:
      return std::min(m, from_end);
  }
}

/// The part of the pipeline's filling and draining in which a rank idles.
double idle_part(const Plan& plan) {
  const double of_chunks = 1.0 / plan.chunks;
  return splits_backward(plan.schedule) ? 0.6 * of_chunks : of_chunks;
}

}  // namespace

/// Per stage, its gradient reduction, which begins after its last backward; nothing where it is in buckets,
/// of which most are hidden.
std::vector<double> SearchBounds::reductions(const Plan& plan, const std::vector<Stage>& stages) const {
  std::vector<double> seconds(stages.size(), 0.0);
  if (plan.gradient_bucket.count > 0) return seconds;
  Program program;
  program.stages = stages;
  const std::vector<std::int32_t> first_rank = first_ranks(plan);
  std::vector<std::vector<std::int32_t>> groups_of_stage(stages.size());
  for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(plan))) {
    const Stage& stage = stages[of_rank.back()];
    for (int d = 0; d < stage.dp; ++d) {
      const std::size_t group = program.groups.size();
      for (const int s : of_rank) groups_of_stage[s].push_back(static_cast<std::int32_t>(group));
      program.groups.push_back({first_rank[group], stage.tp, of_rank.back(), d, 0, 0});
    }
  }
  for (std::size_t s = 0; s < stages.size(); ++s) {
    if (stages[s].dp == 1) continue;
    const Collective reduction{groups_of_stage[s], Bytes{4 * stage_parameters(stages[s], request_.model)}, 0};
    seconds[s] = request_.cost.all_reduce(reduction, program).count();
  }
  return seconds;
}

Bytes SearchBounds::memory_of(const Plan& plan, const std::vector<Stage>& stages) const {
  const PipelineShape shape = plan_shape(plan);
  const std::vector<std::vector<int>> ranks = stages_of_ranks(shape);
  const Op backward = splits_backward(plan.schedule) ? Op::backward_input : Op::backward;
  const CostModel& cost = request_.cost;
  Bytes most;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    Bytes state;
    Bytes live;
    for (const int s : ranks[r]) {
      const Stage& stage = stages[s];
      state += cost.model_state(stage).total();
      if (plan.layout == Layout::colocated && stage.llm_layers == 0) continue;
      const bool has_encoder = stage.encoder_layers > 0;
      const bool has_llm = stage.llm_layers > 0;
      const Work all{has_encoder ? batch_.most_work.encoder : Workload{},
                     has_llm ? batch_.most_work.llm : Workload{}};
      const int held = held_at_once(shape, static_cast<int>(r));
      const int windows = (plan.microbatches + held - 1) / held;
      Bytes window{cost.activation(stage, all).count / (std::int64_t{windows} * stage.dp)};
      if (has_llm) window += cost.workspace(backward, stage, {{}, batch_.smallest});
      live = std::max(live, window);
      if (!has_llm && plan.layout == Layout::disaggregated) continue;  // cut into sequences
      const Work largest{has_encoder ? batch_.largest.encoder() : Workload{},
                         has_llm ? batch_.largest.llm() : Workload{}};
      live = std::max(live, cost.activation(stage, largest) + cost.workspace(backward, stage, largest));
    }
    most = std::max(most, state + live);
  }
  return most;
}

/// Prices one plan. Times in seconds; of stages, those of the mean dp rank.
class SearchBounds::PlanPrice {
 public:
  PlanPrice(const SearchBounds& bounds, const Plan& plan)
      : bounds_(bounds),
        plan_(plan),
        stages_(plan_stages(plan, bounds.request_.model)),
        shape_(plan_shape(plan)),
        ranks_(stages_of_ranks(shape_)),
        split_(splits_backward(plan.schedule)) {
    for (std::size_t s = 0; s < stages_.size(); ++s) price_stage(s);
    price_ends();
  }

  PlanFloor floor() const;

 private:
  bool shared_encoder(std::size_t s) const {
    return stages_[s].llm_layers == 0 && plan_.layout != Layout::uniform;
  }
  int first_llm() const {
    const auto holds = [](const Stage& stage) { return stage.llm_layers > 0; };
    return static_cast<int>(std::find_if(stages_.begin(), stages_.end(), holds) - stages_.begin());
  }
  void price_stage(std::size_t s);
  void price_ends();
  double outside(int rank) const;
  double bound() const;
  double estimate() const;
  Bytes expected_memory() const;

  const SearchBounds& bounds_;
  const Plan& plan_;
  std::vector<Stage> stages_;
  PipelineShape shape_;
  std::vector<std::vector<int>> ranks_;
  bool split_;
  std::vector<double> busy_;      // per stage: all microbatches, at the least
  std::vector<double> expected_;  // per stage: the same if all microbatches have encoder work
  std::vector<double> forward_;   // per stage: of the smallest sample
  std::vector<double> backward_;  // per stage: of the smallest sample, the input part where it is split
  std::vector<double> end_;       // per rank: reductions and optimizer steps
};

void SearchBounds::PlanPrice::price_stage(std::size_t s) {
  // Stages that do the same are priced once.
  const auto same = std::find(stages_.begin(), stages_.begin() + static_cast<std::ptrdiff_t>(s), stages_[s]);
  const auto known = static_cast<std::size_t>(same - stages_.begin());
  if (known < s) {
    for (auto* table : {&busy_, &expected_, &forward_, &backward_}) table->push_back((*table)[known]);
    return;
  }
  const Stage& stage = stages_[s];
  const std::int64_t bins = std::int64_t{plan_.microbatches} * stage.dp;
  busy_.push_back(bounds_.total_of(stage, bins, shared_encoder(s), split_) / stage.dp);
  expected_.push_back(shared_encoder(s) ? bounds_.total_of(stage, bins, false, split_) / stage.dp
                                        : busy_.back());
  const Work smallest{{}, bounds_.batch_.smallest};
  const bool has_llm = stage.llm_layers > 0;
  forward_.push_back(has_llm ? bounds_.floor_of(Op::forward, stage, smallest) : 0);
  backward_.push_back(has_llm ? bounds_.floor_of(split_ ? Op::backward_input : Op::backward, stage, smallest)
                              : 0);
}

void SearchBounds::PlanPrice::price_ends() {
  const std::vector<double> reduction = bounds_.reductions(plan_, stages_);
  for (const std::vector<int>& of_rank : ranks_) {
    double end = 0;
    for (const int s : of_rank) {
      end += reduction[s] + bounds_.request_.cost.optimizer_step(stages_[s]).count();
    }
    end_.push_back(end);
  }
}

/// Before the first step and after the last one of a rank.
double SearchBounds::PlanPrice::outside(int rank) const {
  double least = std::numeric_limits<double>::max();
  for (const int s : ranks_[rank]) {
    const double before = std::accumulate(forward_.begin(), forward_.begin() + s, 0.0);
    double after = end_[rank];
    double backwards = 0;
    // Where backwards are split a rank's last step is a weight part, for which nobody waits.
    for (int k = s - 1; k >= (shape_.spreads_encoder() ? 1 : 0) && !split_; --k) {
      backwards += backward_[k];
      after = std::max(after, backwards + end_[rank_of_stage(shape_, k)]);
    }
    least = std::min(least, before + after);
  }
  return least;
}

double SearchBounds::PlanPrice::bound() const {
  const double last_end = end_[rank_of_stage(shape_, first_llm())];
  const Kind kind = plan_.layout == Layout::uniform ? Kind::both : Kind::llm;
  double bound = bounds_.largest_chain(kind, plan_.llm.tp, plan_.recomputation) + last_end;
  double sum = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    double busy = 0;
    for (const int s : ranks_[r]) {
      if (!shape_.spreads_encoder() || s > 0) busy += busy_[s];
    }
    sum += busy;
    bound = std::max(bound, busy + outside(static_cast<int>(r)));
  }
  if (shape_.spreads_encoder()) {
    const double mean = busy_[0] + sum / static_cast<double>(ranks_.size());
    bound = std::max(bound, mean + *std::min_element(end_.begin(), end_.end()));
  }
  const auto stages = static_cast<double>(stages_.size());
  return std::max(0.0, bound - kRounding * (3.0 * plan_.microbatches * plan_.chunks + 8 * stages + 8));
}

/// Equal microbatches that fill and drain the pipeline, beside the way of the largest sample.
double SearchBounds::PlanPrice::estimate() const {
  const double chain = std::accumulate(expected_.begin(), expected_.end(), 0.0) / plan_.microbatches;
  const Kind kind = plan_.layout == Layout::uniform ? Kind::both : Kind::llm;
  const double largest = bounds_.largest_chain(kind, plan_.llm.tp, plan_.recomputation);
  const Bytes usable = bounds_.request_.cluster.gpu.usable_memory();
  double estimate = 0;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    double busy = 0;
    Bytes left = usable;
    Bytes one{1};
    for (const int s : ranks_[r]) {
      busy += expected_[s];
      left -= bounds_.request_.cost.model_state(stages_[s]).total();
      one = std::max(one, bounds_.mean_activation(stages_[s], plan_));
    }
    if (plan_.schedule == PipelineSchedule::eager_1f1b) {
      const auto held = static_cast<double>(std::max<std::int64_t>(1, left.count / one.count));
      const auto deep = static_cast<double>(std::min<std::size_t>(ranks_.size() - r, plan_.microbatches));
      busy *= std::max(1.0, deep / held);
    }
    const double others = std::max(0.0, chain - busy / plan_.microbatches);
    estimate =
        std::max(estimate, busy + idle_part(plan_) * others + std::max(0.0, largest - chain) + end_[r]);
  }
  return estimate;
}

/// What the fullest rank needs if microbatches are equal but for those of the largest samples.
Bytes SearchBounds::PlanPrice::expected_memory() const {
  const Op backward = split_ ? Op::backward_input : Op::backward;
  Bytes most;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Bytes state;
    Bytes activations;
    Bytes workspace;
    const auto stages = static_cast<int>(ranks_[r].size());
    const int held = (expected_held(shape_, static_cast<int>(r)) + stages - 1) / stages;
    for (const int s : ranks_[r]) {
      state += bounds_.request_.cost.model_state(stages_[s]).total();
      const auto work = [&](int microbatches) {
        return bounds_.held_work(stages_[s], plan_.microbatches, plan_.llm.dp, microbatches);
      };
      activations += bounds_.request_.cost.activation(stages_[s], work(held));
      workspace = std::max(workspace, bounds_.request_.cost.workspace(backward, stages_[s], work(1)));
    }
    most = std::max(most, state + activations + workspace);
  }
  return most;
}

PlanFloor SearchBounds::PlanPrice::floor() const {
  PlanFloor floor;
  floor.bound_s = bound();
  floor.estimate_s = std::max(estimate(), floor.bound_s);
  floor.memory = bounds_.memory_of(plan_, stages_);
  floor.expected_memory = std::max(floor.memory, expected_memory());
  return floor;
}

PlanFloor SearchBounds::plan_floor(const Plan& plan) const {
  return PlanPrice(*this, plan).floor();
}

}  // namespace dflop
