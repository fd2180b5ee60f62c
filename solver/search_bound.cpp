#include "solver/search_bound.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/plan_stages.hpp"
#include "core/schedules.hpp"

namespace dflop {
namespace {

constexpr double kRounding = 0.5e-9;  // of a duration to whole nanoseconds

Workload divided(const Workload& total, std::int64_t parts) {
  return {total.sequences / parts, total.tokens / parts, total.attention_pairs / parts};
}

Work divided(const Work& total, std::int64_t parts) {
  return {divided(total.encoder, parts), divided(total.llm, parts)};
}

Workload least(const Workload& a, const Workload& b) {
  return {std::min(a.sequences, b.sequences), std::min(a.tokens, b.tokens),
          std::min(a.attention_pairs, b.attention_pairs)};
}

Work total_work(const Batch& batch) {
  Work total;
  for (const Sample& sample : batch) {
    total.encoder += sample.encoder();
    total.llm += sample.llm();
  }
  return total;
}

/// The iterations that an objective cannot leave out, heaviest first: for any set of so many, the objective
/// is at least the mean of their durations (p95: the least).
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
    for (const Sample& sample : *batches[b]) {
      const bool first = b == 0 && &sample == &batches[b]->front();
      floor.smallest = first ? sample.llm() : least(floor.smallest, sample.llm());
    }
  }
  if (!least_of) {
    floor.work = divided(floor.work, static_cast<std::int64_t>(batches.size()));
    floor.with_encoder = static_cast<double>(with_encoder) / static_cast<double>(batches.size());
  }
  for (const Batch& batch : request.batches) {
    const Work work = total_work(batch);
    if (work.llm.tokens >= floor.most_work.llm.tokens) floor.most_work = work;
    for (const Sample& sample : batch) {
      if (sample.llm_tokens >= floor.largest.llm_tokens) floor.largest = sample;
    }
  }
  return floor;
}

/// Forward and backward of one microbatch at the least.
double SearchBounds::passes(const Stage& stage, const Work& work, bool split) const {
  const auto floor = [&](Op op) {
    return request_.cost.convex_floor(op, stage, work).value_or(Seconds(0)).count();
  };
  if (split) return floor(Op::forward) + floor(Op::backward_input) + floor(Op::backward_weight);
  return floor(Op::forward) + floor(Op::backward);
}

/// All microbatches of an iteration on all dp ranks of a stage at the least. `bins` of them have a sample; of
/// a shared encoder's any number may be empty.
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

/// total_of() all layers, whatever the schedule does with backwards.
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

/// The mean rank's part of the model state and of a microbatch of mean size: some rank needs as much.
Bytes SearchBounds::whole_module_memory(Kind kind, const SearchShape& shape, Recomputation recomputation,
                                        std::int64_t bins) const {
  const ModulePlan& module = kind == Kind::encoder ? shape.encoder : shape.llm;
  const Stage stage = whole_stage(kind, module.tp, module.dp, recomputation);
  Work work = divided(batch_.most_work, bins);
  if (kind == Kind::llm) work.encoder = {};
  if (kind == Kind::encoder) work.llm = {};
  const Bytes all = request_.cost.model_state(stage).total() + request_.cost.activation(stage, work);
  return {all.count / module.pp};
}

ShapeFloor SearchBounds::shape_floor(const SearchShape& shape, Recomputation time_of, Recomputation memory_of,
                                     int fewest, int most) {
  const ModulePlan& encoder = shape.encoder;
  const ModulePlan& llm = shape.llm;
  const Kind kind = shape.layout == Layout::uniform ? Kind::both : Kind::llm;
  const std::int64_t fewest_bins = std::int64_t{fewest} * llm.dp;
  const std::int64_t most_bins = std::int64_t{most} * llm.dp;
  const double pipeline = whole_module(kind, llm.tp, time_of, fewest_bins);
  ShapeFloor floor;
  floor.bound_s = pipeline / llm.dp / std::min(most, llm.pp);
  floor.memory = whole_module_memory(kind, shape, memory_of, most_bins);
  if (shape.layout == Layout::disaggregated) {
    const double alone = whole_module(Kind::encoder, encoder.tp, time_of, fewest_bins);
    floor.bound_s = std::max(floor.bound_s, alone / encoder.dp / std::min(most, encoder.pp));
    const std::int64_t pieces = std::int64_t{most} * encoder.dp;
    floor.memory = std::max(floor.memory, whole_module_memory(Kind::encoder, shape, memory_of, pieces));
  } else if (shape.layout == Layout::colocated) {
    const double alone = whole_module(Kind::encoder, encoder.tp, time_of, fewest_bins);
    floor.bound_s = std::max(floor.bound_s, (pipeline + alone) / llm.dp / llm.pp);
  }
  floor.bound_s = std::max(0.0, floor.bound_s - kRounding * (6.0 * most + 16));
  return floor;
}

/// Per stage, its gradient reduction, which begins after its last backward; nothing where it is in buckets,
/// of which most are hidden.
std::vector<double> SearchBounds::reductions(const Plan& plan, const std::vector<Stage>& stages) const {
  std::vector<double> seconds(stages.size(), 0.0);
  if (plan.gradient_bucket.count > 0) return seconds;
  Program program;
  program.stages = stages;
  std::vector<std::vector<std::int32_t>> groups_of_stage(stages.size());
  int first_rank = 0;
  for (const std::vector<int>& of_rank : stages_of_ranks(plan_shape(plan))) {
    const Stage& stage = stages[of_rank.back()];
    for (int d = 0; d < stage.dp; ++d) {
      for (const int s : of_rank) {
        groups_of_stage[s].push_back(static_cast<std::int32_t>(program.groups.size()));
      }
      program.groups.push_back({first_rank, stage.tp, of_rank.back(), d, 0, 0});
      first_rank += stage.tp;
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

namespace {

/// What a plan's ranks take at the least, in seconds.
struct RankTimes {
  std::vector<double> busy;      // per rank: all microbatches
  std::vector<double> expected;  // the same if no microbatch is without encoder work
  std::vector<double> end;       // per rank: reductions and optimizer steps
  std::vector<double> forward;   // per stage: of the smallest sample
  std::vector<double> backward;  // per stage: of the smallest sample, the input part where it is split
};

/// Before the first step and after the last one of a rank.
double outside(const RankTimes& times, const PipelineShape& shape, const std::vector<int>& stages, int rank) {
  double least = std::numeric_limits<double>::max();
  for (const int s : stages) {
    const double before = std::accumulate(times.forward.begin(), times.forward.begin() + s, 0.0);
    double after = times.end[rank];
    double backwards = 0;
    for (int k = s - 1; k >= (shape.spreads_encoder() ? 1 : 0); --k) {
      backwards += times.backward[k];
      after = std::max(after, backwards + times.end[rank_of_stage(shape, k)]);
    }
    least = std::min(least, before + after);
  }
  return least;
}

}  // namespace

PlanFloor SearchBounds::plan_floor(const Plan& plan) const {
  const std::vector<Stage> stages = plan_stages(plan, request_.model);
  const PipelineShape shape = plan_shape(plan);
  const std::vector<std::vector<int>> ranks = stages_of_ranks(shape);
  const bool split = splits_backward(plan.schedule);
  const std::vector<double> reduction = reductions(plan, stages);
  const int m = plan.microbatches;
  RankTimes times;
  std::vector<double> stage_busy;  // per stage: a dp rank's mean
  double encoder_chain = 0;
  double llm_chain = 0;
  double slowest = 0;
  double excess = 0;
  std::vector<double> stage_expected;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    // Stages that do the same are priced once.
    const auto same = std::find(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(s), stages[s]);
    const auto known = static_cast<std::size_t>(same - stages.begin());
    const bool shared = stages[s].llm_layers == 0 && plan.layout != Layout::uniform;
    const std::int64_t bins = std::int64_t{m} * stages[s].dp;
    const Work smallest{{}, batch_.smallest};
    if (known < s) {
      stage_busy.push_back(stage_busy[known]);
      stage_expected.push_back(stage_expected[known]);
      times.forward.push_back(times.forward[known]);
      times.backward.push_back(times.backward[known]);
    } else {
      stage_busy.push_back(total_of(stages[s], bins, shared, split) / stages[s].dp);
      stage_expected.push_back(shared ? total_of(stages[s], bins, false, split) / stages[s].dp
                                      : stage_busy.back());
      const auto floor = [&](Op op) {
        if (stages[s].llm_layers == 0) return 0.0;
        return request_.cost.convex_floor(op, stages[s], smallest).value_or(Seconds(0)).count();
      };
      times.forward.push_back(floor(Op::forward));
      times.backward.push_back(floor(split ? Op::backward_input : Op::backward));
    }
    (shared ? encoder_chain : llm_chain) += stage_busy.back() / m;
    if (stage_busy.back() > slowest && stages[s].llm_layers > 0) {
      slowest = stage_busy.back();
      const Work largest{stages[s].encoder_layers > 0 ? batch_.largest.encoder() : Workload{},
                         batch_.largest.llm()};
      excess = std::max(0.0, passes(stages[s], largest, split) - slowest / m);
    }
  }
  double sum = 0;
  double least_end = std::numeric_limits<double>::max();
  for (const std::vector<int>& of_rank : ranks) {
    double busy = 0;
    double expected = 0;
    double end = 0;
    for (const int s : of_rank) {
      busy += stage_busy[s];
      expected += stage_expected[s];
      if (shape.spreads_encoder() && s == 0) {
        busy -= stage_busy[s];
      }
      end += reduction[s] + request_.cost.optimizer_step(stages[s]).count();
    }
    sum += busy;
    times.busy.push_back(busy);
    times.expected.push_back(expected);
    times.end.push_back(end);
    least_end = std::min(least_end, end);
  }
  PlanFloor floor;
  floor.memory = memory_of(plan, stages);
  floor.bound_s =
      std::max(encoder_chain, llm_chain + (plan.layout == Layout::uniform ? times.end.front() : 0.0));
  if (shape.spreads_encoder()) {
    floor.bound_s =
        std::max(floor.bound_s, stage_busy[0] + sum / static_cast<double>(ranks.size()) + least_end);
  }
  const double fill = static_cast<double>(ranks.size() - 1) / (m * plan.chunks);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const double around = outside(times, shape, ranks[r], static_cast<int>(r));
    floor.bound_s = std::max(floor.bound_s, times.busy[r] + around);
    floor.estimate_s = std::max(floor.estimate_s, times.expected[r] * (1 + fill) + excess + times.end[r]);
  }
  floor.bound_s -= kRounding * (3.0 * m * plan.chunks + 8.0 * static_cast<double>(stages.size()) + 8);
  floor.bound_s = std::max(floor.bound_s, 0.0);
  floor.estimate_s = std::max(floor.estimate_s, floor.bound_s);
  return floor;
}

}  // namespace dflop
