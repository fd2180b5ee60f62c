#include "solver/planners/search/bound.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"

namespace dflop {
namespace {

Workload divided(const Workload& total, std::int64_t parts) {
  return {total.sequences / parts, total.tokens / parts, total.attention_pairs / parts};
}

Work divided(const Work& total, std::int64_t parts) {
  return {divided(total.encoder, parts), divided(total.llm, parts)};
}

Workload times(const Workload& one, std::int64_t count) {
  return {one.sequences * count, one.tokens * count, one.attention_pairs * count};
}

Workload least(const Workload& a, const Workload& b) {
  return {std::min(a.sequences, b.sequences), std::min(a.tokens, b.tokens),
          std::min(a.attention_pairs, b.attention_pairs)};
}

Workload most(const Workload& a, const Workload& b) {
  return {std::max(a.sequences, b.sequences), std::max(a.tokens, b.tokens),
          std::max(a.attention_pairs, b.attention_pairs)};
}

Work total_work(const Batch& batch) {
  Work total;
  for (const Sample& sample : batch) {
    total.encoder += sample.encoder();
    total.llm += sample.llm();
  }
  return total;
}

/// Returns the iterations that an objective cannot leave out, heaviest first: for any set of so many, the
/// objective is at least the mean of their durations (p95: the least).
std::vector<const Batch*> counted_batches(const PlanRequest& request) {
  std::vector<std::pair<std::int64_t, const Batch*>> falling;
  for (const Batch& batch : request.batches) falling.emplace_back(-total_work(batch).llm.tokens, &batch);
  std::stable_sort(falling.begin(), falling.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  const std::size_t count = falling.size();
  const PlanObjective objective = request.search.objective;
  const std::size_t counted = objective == PlanObjective::mean   ? count
                              : objective == PlanObjective::cvar ? (count + 3) / 4
                                                                 : count + 1 - (95 * count + 99) / 100;
  std::vector<const Batch*> batches;
  for (std::size_t i = 0; i < counted; ++i) batches.push_back(falling[i].second);
  return batches;
}

/// Returns the part of the pipeline's filling and draining in which a rank idles.
double idle_part(const Plan& plan) {
  const double of_chunks = 1.0 / plan.chunks;
  return splits_backward(plan.order) ? 0.6 * of_chunks : of_chunks;
}

}  // namespace

SearchBounds::SearchBounds(const PlanRequest& request) : request_(request), batch_(floor_batch(request)) {
  Stage stage;
  stage.llm_layers = 1;
  known_ = request.cost.convex_floor(Op::forward, stage, {{}, {1, 1, 1}}).has_value();
}

SearchBounds::FloorBatch SearchBounds::floor_batch(const PlanRequest& request) {
  FloorBatch floor;
  const std::vector<const Batch*> batches = counted_batches(request);
  const bool least_of = request.search.objective == PlanObjective::p95;
  std::int64_t with_encoder = 0;
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const Work work = total_work(*batches[b]);
    with_encoder += work.encoder.empty() ? 0 : 1;
    if (b == 0 || !least_of) {
      floor.work.encoder += work.encoder;
      floor.work.llm += work.llm;
    } else {
      floor.work = {least(floor.work.encoder, work.encoder), least(floor.work.llm, work.llm)};
    }
    const auto count = [&](auto&& holds) {
      return std::count_if(batches[b]->begin(), batches[b]->end(), holds);
    };
    floor.no_encoder =
        std::max<std::int64_t>(floor.no_encoder, count([](const Sample& s) { return s.encoder().empty(); }));
    floor.no_llm =
        std::max<std::int64_t>(floor.no_llm, count([](const Sample& s) { return s.llm_tokens == 0; }));
    const auto smaller = [](const Sample& x, const Sample& y) { return x.llm_tokens < y.llm_tokens; };
    const Sample& largest = *std::max_element(batches[b]->begin(), batches[b]->end(), smaller);
    floor.largest_of_each.push_back({largest.encoder(), largest.llm()});
    for (const Sample& sample : *batches[b]) {
      const bool first = b == 0 && &sample == &batches[b]->front();
      floor.smallest = first ? sample.llm() : least(floor.smallest, sample.llm());
    }
  }
  if (!least_of) {
    floor.work = divided(floor.work, static_cast<std::int64_t>(batches.size()));
    floor.with_encoder = static_cast<double>(with_encoder) / static_cast<double>(batches.size());
  }
  const Batch* heaviest = &request.batches.front();
  for (const Batch& batch : request.batches) {
    const Work work = total_work(batch);
    if (work.llm.tokens >= floor.most_work.llm.tokens) {
      floor.most_work = work;
      heaviest = &batch;
    }
    for (const Sample& sample : batch) {
      if (sample.llm_tokens >= floor.largest.llm_tokens) floor.largest = sample;
    }
  }
  for (const Sample& sample : *heaviest) floor.falling.push_back({sample.encoder(), sample.llm()});
  std::stable_sort(floor.falling.begin(), floor.falling.end(),
                   [](const Work& a, const Work& b) { return a.llm.tokens > b.llm.tokens; });
  return floor;
}

double SearchBounds::floor_of(Op op, const Stage& stage, const Work& work) const {
  return request_.cost.convex_floor(op, stage, work).value_or(Seconds(0)).count();
}

/// Returns the time of a batch's largest sample forward and backward through all stages, however many.
double SearchBounds::largest_chain(Kind kind, int tp, Recomputation recomputation) const {
  const Stage stage = whole_stage(kind, tp, 1, recomputation);
  double sum = 0;
  double least = std::numeric_limits<double>::max();
  for (const Work& largest : batch_.largest_of_each) {
    const Work work{kind == Kind::both ? largest.encoder : Workload{}, largest.llm};
    const double backward =
        std::min(floor_of(Op::backward, stage, work), floor_of(Op::backward_input, stage, work));
    const double seconds = floor_of(Op::forward, stage, work) + backward;
    sum += seconds;
    least = std::min(least, seconds);
  }
  if (request_.search.objective == PlanObjective::p95) return least;
  return sum / static_cast<double>(batch_.largest_of_each.size());
}

/// Returns the mean microbatch of a stage.
Work SearchBounds::mean_work(const Stage& stage, const Plan& plan) const {
  const Work work = divided(batch_.most_work, std::int64_t{plan.microbatches} * stage.dp);
  return {stage.encoder_layers > 0 ? work.encoder : Workload{}, stage.llm_layers > 0 ? work.llm : Workload{}};
}

/// Returns what a rank of a stage holds of its `held` heaviest microbatches, which schedulers put side by
/// side: the largest samples are dealt to microbatches of otherwise mean size.
Work SearchBounds::held_work(const Stage& stage, int microbatches, int llm_dp, int held) const {
  const Work mean = divided(batch_.most_work, std::int64_t{microbatches} * stage.dp);
  const std::int64_t ranks = stage.llm_layers == 0 ? stage.dp : 1;  // that share a microbatch
  Work work;
  for (std::size_t h = 0; h < static_cast<std::size_t>(held); ++h) {
    const std::size_t next = h * llm_dp;
    const bool larger =
        next < batch_.falling.size() && batch_.falling[next].llm.tokens > mean.llm.tokens * ranks;
    if (!larger) {  // nor are those that follow
      const auto left = static_cast<std::int64_t>(held - h);
      work.encoder += times(mean.encoder, left);
      work.llm += times(mean.llm, left);
      break;
    }
    const Work largest = divided(batch_.falling[next], ranks);
    work.encoder += most(mean.encoder, largest.encoder);
    work.llm += most(mean.llm, largest.llm);
  }
  if (stage.encoder_layers == 0) work.encoder = {};
  if (stage.llm_layers == 0) work.llm = {};
  return work;
}

Bytes SearchBounds::mean_activation(const Stage& stage, const Plan& plan) const {
  return request_.cost.activation(stage, mean_work(stage, plan));
}

/// Returns the time of forward and backward of one microbatch at the least.
double SearchBounds::passes(const Stage& stage, const Work& work, bool split) const {
  const auto floor = [&](Op op) { return floor_of(op, stage, work); };
  if (split) return floor(Op::forward) + floor(Op::backward_input) + floor(Op::backward_weight);
  return floor(Op::forward) + floor(Op::backward);
}

/// Returns the time of all microbatches of an iteration on all dp ranks of a stage at the least. `bins` of
/// them have a sample; of a shared encoder's any number may be empty.
double SearchBounds::total_of(const Stage& stage, std::int64_t bins, bool shared_encoder, bool split) const {
  const Workload tiny{1, 1, 1};
  const bool has_encoder = stage.encoder_layers > 0;
  const bool has_llm = stage.llm_layers > 0;
  const Work work{has_encoder ? batch_.work.encoder : Workload{}, has_llm ? batch_.work.llm : Workload{}};
  const double together = has_llm ? 0 : batch_.with_encoder * passes(stage, work, split);
  if (shared_encoder) return together;
  const auto count = static_cast<double>(bins);
  double total = count * passes(stage, divided(work, bins), split);
  if (has_encoder && batch_.no_encoder > 0)
    total -= static_cast<double>(std::min(bins, batch_.no_encoder)) * passes(stage, {tiny, {}}, split);
  if (has_llm && batch_.no_llm > 0)
    total -= static_cast<double>(std::min(bins, batch_.no_llm)) * passes(stage, {{}, tiny}, split);
  return std::max(total, together);
}

Stage SearchBounds::whole_stage(Kind kind, int tp, int dp, Recomputation recomputation) const {
  Stage stage;
  stage.tp = tp;
  stage.dp = dp;
  stage.recomputation = recomputation;
  stage.zero1 = request_.options.zero1;
  stage.sequence_parallel = request_.options.sequence_parallel;
  if (kind != Kind::llm) {
    stage.encoder_layers = request_.model.encoder.layers;
    stage.connector = stage.encoder_layers > 0 && request_.model.connector.widths.size() > 1;
  }
  if (kind != Kind::encoder) {
    stage.llm_layers = request_.model.llm.layers;
    stage.embedding = true;
    stage.head = true;
  }
  return stage;
}

/// Returns total_of() all layers, whatever the order does with backwards.
double SearchBounds::whole_module(Kind kind, int tp, Recomputation recomputation, std::int64_t bins) {
  const bool shared = kind == Kind::encoder;
  const std::uint64_t key =
      ((static_cast<std::uint64_t>(shared ? 0 : bins) << 16 | static_cast<std::uint64_t>(tp)) << 2 |
       static_cast<std::uint64_t>(recomputation))
          << 2 |
      static_cast<std::uint64_t>(kind);
  const auto [entry, is_new] = totals_.try_emplace(key, 0.0);
  if (is_new) {
    const Stage stage = whole_stage(kind, tp, 1, recomputation);
    entry->second = std::min(total_of(stage, bins, shared, false), total_of(stage, bins, shared, true));
  }
  return entry->second;
}

/// Returns largest_chain(), worked out once.
double SearchBounds::largest_way(Kind kind, int tp, Recomputation recomputation) {
  const std::uint64_t key = (static_cast<std::uint64_t>(tp) << 2 | static_cast<std::uint64_t>(recomputation))
                                << 2 |
                            static_cast<std::uint64_t>(kind);
  const auto [entry, is_new] = ways_.try_emplace(key, 0.0);
  if (is_new) entry->second = largest_chain(kind, tp, recomputation);
  return entry->second;
}

/// Sets the memory to the mean rank's part of the model state and of a microbatch of mean size, or of the
/// largest sample, which some rank needs, and of as many as its first rank holds.
void SearchBounds::set_whole_memory(PlanFloor& floor, Kind kind, const ModulePlan& module,
                                    Recomputation recomputation, int microbatches, int llm_dp,
                                    int held) const {
  const Stage stage = whole_stage(kind, module.tp, module.dp, recomputation);
  Work work = divided(batch_.most_work, std::int64_t{microbatches} * module.dp);
  if (kind == Kind::llm) work.encoder = {};
  if (kind == Kind::encoder) work.llm = {};
  const std::int64_t state = request_.cost.model_state(stage).total().count;
  const std::int64_t mean = request_.cost.activation(stage, work).count;
  std::int64_t largest = mean;
  if (kind != Kind::encoder) {  // whose ranks share the largest sample
    const Work sample{kind == Kind::both ? batch_.largest.encoder() : Workload{}, batch_.largest.llm()};
    largest = std::max(largest, request_.cost.activation(stage, sample).count);
  }
  floor.memory = std::max(floor.memory, Bytes{(state + largest) / module.pp});
  const Work most = held_work(stage, microbatches, llm_dp, std::min(held, microbatches));
  const std::int64_t expected = request_.cost.activation(stage, most).count;
  floor.expected_memory = std::max(floor.expected_memory, Bytes{(state + expected) / module.pp});
}

PlanFloor SearchBounds::shape_floor(const SearchShape& shape, Recomputation recomputation, int microbatches) {
  const ModulePlan& encoder = shape.encoder;
  const ModulePlan& llm = shape.llm;
  const Kind kind = shape.layout == Layout::uniform ? Kind::both : Kind::llm;
  const bool apart = shape.layout == Layout::disaggregated;
  const double whole = whole_module(kind, llm.tp, recomputation, std::int64_t{microbatches} * llm.dp);
  const double way = largest_way(kind, llm.tp, recomputation);
  double busy = whole / llm.dp / llm.pp;
  double chain = whole / llm.dp / microbatches;
  PlanFloor floor;
  set_whole_memory(floor, kind, llm, recomputation, microbatches, llm.dp, llm.pp);
  if (kind != Kind::both) {
    const double alone = whole_module(Kind::encoder, encoder.tp, recomputation, 0);
    chain += alone / encoder.dp / microbatches;
    const double encoder_busy = alone / encoder.dp / (apart ? encoder.pp : 1);
    busy = apart ? std::max(busy, encoder_busy) : busy + encoder_busy;
    if (apart) {
      set_whole_memory(floor, Kind::encoder, encoder, recomputation, microbatches, llm.dp,
                       encoder.pp + llm.pp);
    }
  }
  const double others = std::max(0.0, chain - busy / microbatches);
  floor.estimate_s = busy + others + std::max(0.0, way - chain);
  floor.bound_s = std::max(0.0, std::max(busy, way) - kRounding * (6.0 * microbatches + 16));
  floor.expected_memory = std::max(floor.expected_memory, floor.memory);
  return floor;
}

/// Returns, per stage, its gradient reduction, which begins after its last backward; nothing where it is in
/// buckets, of which most are hidden.
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
  const Op backward = splits_backward(plan.order) ? Op::backward_input : Op::backward;
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
      const int held = traits(plan.order).surely_held(shape, static_cast<int>(r));
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

/// A PlanPrice prices one plan. Times are in seconds; those of stages are of the mean dp rank.
class SearchBounds::PlanPrice {
 public:
  PlanPrice(const SearchBounds& bounds, const Plan& plan)
      : bounds_(bounds),
        plan_(plan),
        stages_(plan_stages(plan, bounds.request_.model)),
        shape_(plan_shape(plan)),
        ranks_(stages_of_ranks(shape_)),
        split_(splits_backward(plan.order)) {
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
  // Stages that do the same work are priced once.
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

/// Returns the time before the first step and after the last one of a rank.
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

/// Returns the time of equal microbatches that fill and drain the pipeline, and what the largest sample takes
/// beyond that.
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
    if (traits(plan_.order).reads_limits && !shape_.spreads_encoder()) {
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

/// Returns what the fullest rank needs if microbatches are equal but for those of the largest samples.
Bytes SearchBounds::PlanPrice::expected_memory() const {
  const Op backward = split_ ? Op::backward_input : Op::backward;
  Bytes most;
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    Bytes state;
    Bytes activations;
    Bytes workspace;
    const auto stages = static_cast<int>(ranks_[r].size());
    const int held = (traits(plan_.order).most_held(shape_, static_cast<int>(r)) + stages - 1) / stages;
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
