#include "solver/planners/search/bound.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "core/order/pipeline_order.hpp"
#include "core/program/lowering.hpp"
#include "solver/plan_problem/work.hpp"

namespace dflop {
namespace {

Work divided(const Work& total, std::int64_t parts) {
  const auto part = [&](std::int64_t count) { return count / parts; };
  return {each_count(part, total.encoder), each_count(part, total.llm)};
}

Work difference(const Work& a, const Work& b) {
  const auto less = [](std::int64_t x, std::int64_t y) { return x - y; };
  return {each_count(less, a.encoder, b.encoder), each_count(less, a.llm, b.llm)};
}

Workload times(const Workload& one, std::int64_t count) {
  return each_count([&](std::int64_t n) { return n * count; }, one);
}

/// Returns the heaviest iterations, as many as an objective cannot leave out, heaviest first. For any set of
/// as many iterations, the objective is at least the mean of their durations (p95: the min).
std::vector<const Batch*> counted_batches(const PlanRequest& request) {
  std::vector<std::pair<std::int64_t, const Batch*>> falling;
  for (const Batch& batch : request.batches) falling.emplace_back(-total_work(batch).llm.tokens, &batch);
  std::ranges::stable_sort(falling, {}, [](const auto& weight) { return weight.first; });
  const std::size_t count = falling.size();
  const PlanObjective objective = request.search.objective;
  const std::size_t counted = objective == PlanObjective::mean   ? count
                              : objective == PlanObjective::cvar ? (count + 3) / 4
                                                                 : count + 1 - (95 * count + 99) / 100;
  std::vector<const Batch*> batches;
  for (std::size_t i = 0; i < counted; ++i) batches.push_back(falling[i].second);
  return batches;
}

/// Returns the fraction of the pipeline's fill and drain in which a rank idles.
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

void SearchBounds::HardBatch::add(const Batch& batch) {
  const Work all = total_work(batch);
  work = {most(work.encoder, all.encoder), most(work.llm, all.llm)};
  std::vector<Work> works;
  for (const Sample& sample : batch) works.push_back({sample.encoder(), sample.llm()});
  std::ranges::stable_sort(works, std::greater(), [](const Work& one) { return one.llm.tokens; });
  if (falling.size() < works.size()) falling.resize(works.size());
  for (std::size_t i = 0; i < works.size(); ++i) {
    if (works[i].llm.tokens > falling[i].llm.tokens) falling[i] = works[i];
  }
  std::ranges::stable_sort(works, std::greater(), [](const Work& one) { return one.encoder.all_tokens(); });
  if (encoder_sums.size() <= works.size()) encoder_sums.resize(works.size() + 1, encoder_sums.back());
  Work sum;
  for (std::size_t i = 0; i < works.size(); ++i) {
    sum.encoder += works[i].encoder;
    sum.llm += works[i].llm;
    if (sum.encoder.all_tokens() > encoder_sums[i + 1].encoder.all_tokens()) encoder_sums[i + 1] = sum;
  }
}

SearchBounds::FloorBatch SearchBounds::floor_batch(const PlanRequest& request) {
  FloorBatch floor;
  const std::vector<const Batch*> batches = counted_batches(request);
  const bool least_of = request.search.objective == PlanObjective::p95;
  std::int64_t with_encoder = 0;
  floor.smallest = batches.front()->front().llm();
  for (std::size_t b = 0; b < batches.size(); ++b) {
    const Work work = total_work(*batches[b]);
    with_encoder += work.encoder.empty() ? 0 : 1;
    floor.least_work =
        b == 0 ? work
               : Work{least(floor.least_work.encoder, work.encoder), least(floor.least_work.llm, work.llm)};
    if (b == 0 || !least_of) {
      floor.work.encoder += work.encoder;
      floor.work.llm += work.llm;
    }
    const auto no_encoder = [](const Sample& sample) { return sample.encoder().empty(); };
    floor.no_encoder =
        std::max<std::int64_t>(floor.no_encoder, std::ranges::count_if(*batches[b], no_encoder));
    floor.no_llm =
        std::max<std::int64_t>(floor.no_llm, std::ranges::count(*batches[b], 0, &Sample::llm_tokens));
    const Sample& largest = *std::ranges::max_element(*batches[b], {}, &Sample::llm_tokens);
    floor.largest_of_each.push_back({largest.encoder(), largest.llm()});
    for (const Sample& sample : *batches[b]) floor.smallest = least(floor.smallest, sample.llm());
  }
  if (least_of) {
    floor.work = floor.least_work;
  } else {
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
    floor.hardest.add(batch);
  }
  floor.heaviest.add(*heaviest);
  for (const Batch& batch : hardest(request.further)) floor.hardest.add(batch);
  return floor;
}

/// Returns a lower bound on the time that an iteration's largest sample takes forward and backward through
/// all stages, whatever their number.
double SearchBounds::largest_chain(Kind kind, int tp, Recomputation recomputation, double share) const {
  Stage stage = whole_stage(kind, tp, 1, recomputation);
  stage.share = share;
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

/// Returns the work of the `held` heaviest microbatches that a rank of a stage holds at once: schedulers
/// place them next to each other, because similar bins go together. Each of the largest samples is in a
/// separate bin; all other bins have mean size. The dp ranks of an encoder with separate ranks share the
/// samples of all bins of a microbatch.
Work SearchBounds::held_work(const HardBatch& batch, const Stage& stage, int microbatches, int llm_dp,
                             int held) const {
  const bool shares = stage.llm_layers == 0;
  const std::size_t count = batch.falling.size();
  const Work mean = divided(batch.work, std::int64_t{microbatches} * stage.dp);
  Work work;
  for (std::size_t h = 0; h < static_cast<std::size_t>(held); ++h) {
    const std::size_t first = std::min(count, h * llm_dp);
    const std::size_t last = std::min(count, first + (shares ? llm_dp : 1));
    Work largest;
    if (shares) {
      largest = divided(difference(batch.encoder_sums[last], batch.encoder_sums[first]), stage.dp);
    } else if (first < last) {
      largest = batch.falling[first];
    }
    const bool larger = shares ? largest.encoder.all_tokens() > mean.encoder.all_tokens()
                               : largest.llm.tokens > mean.llm.tokens;
    if (!larger) {  // the following ones are not larger either
      const auto left = static_cast<std::int64_t>(held - h);
      work.encoder += times(mean.encoder, left);
      work.llm += times(mean.llm, left);
      break;
    }
    work.encoder += most(mean.encoder, largest.encoder);
    work.llm += most(mean.llm, largest.llm);
  }
  return work_of_stage(stage, work);
}

/// Returns a lower bound on the memory, without model state, that some rank of a stage needs at some time if
/// it holds `held` microbatches at once. It is the memory of a mean window of `held` microbatches, or of the
/// largest sample if that needs more.
Bytes SearchBounds::surely_live(const Plan& plan, const Stage& stage, int held) const {
  const CostModel& cost = request_.cost;
  const Op backward = splits_backward(plan.order) ? Op::backward_input : Op::backward;
  const bool has_llm = stage.llm_layers > 0;
  const int windows = (plan.microbatches + held - 1) / held;
  const Bytes all = cost.activation(stage, work_of_stage(stage, batch_.most_work));
  Bytes live{all.count / (std::int64_t{windows} * stage.dp)};
  if (has_llm) live += cost.workspace(backward, stage, {{}, batch_.smallest});
  if (!has_llm && has_encoder_ranks(plan.layout)) return live;  // its samples are divided into sequences
  const Work largest = work_of_stage(stage, {batch_.largest.encoder(), batch_.largest.llm()});
  return std::max(live, cost.activation(stage, largest) + cost.workspace(backward, stage, largest));
}

/// Returns a lower bound on the time of forward and backward of one microbatch.
double SearchBounds::passes(const Stage& stage, const Work& work, bool split) const {
  const auto floor = [&](Op op) { return floor_of(op, stage, work); };
  if (split) return floor(Op::forward) + floor(Op::backward_input) + floor(Op::backward_weight);
  return floor(Op::forward) + floor(Op::backward);
}

/// Returns a lower bound on the time of all microbatches of an iteration on all dp ranks of a stage. `bins`
/// of them have a sample. Of the microbatches of a shared encoder, any number may be empty.
double SearchBounds::total_of(const Stage& stage, std::int64_t bins, bool shared_encoder, bool split) const {
  const Workload tiny{1, 1, 1};
  const bool has_encoder = stage.encoder_layers > 0;
  const bool has_llm = stage.llm_layers > 0;
  const Work work = work_of_stage(stage, batch_.work);
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

/// Returns a plan's stage with another recomputation if the search may choose it for the stage: it chooses
/// the encoder's apart from the LLM's if the encoder has stages of its own. `none` takes the least time,
/// `full` the least memory.
Stage SearchBounds::with_choice(Stage stage, Layout layout, Recomputation choice) const {
  if (stage.llm_layers == 0 && layout != Layout::uniform && chooses_encoder_recomputation(request_))
    stage.recomputation = choice;
  return stage;
}

Stage SearchBounds::whole_stage(Kind kind, int tp, int dp, Recomputation recomputation) const {
  Stage stage;
  stage.tp = tp;
  stage.dp = dp;
  PlanOptions options = request_.options;
  options.recomputation = recomputation;
  stage.recomputation = recomputation_of(options, kind == Kind::encoder);
  stage.zero1 = request_.options.zero1;
  stage.sequence_parallel = request_.options.sequence_parallel;
  stage.optimizer_states = request_.options.optimizer_states;
  stage.trained = request_.options.trained;
  if (kind != Kind::llm) {
    stage.encoder_layers = request_.model.encoder.layers;
    stage.connector = stage.encoder_layers > 0 && request_.model.connector.widths.size() > 1;
    stage.front = stage.encoder_layers > 0 && request_.model.architecture.has_value();
  }
  if (kind != Kind::encoder) {
    stage.llm_layers = request_.model.llm.layers;
    stage.embedding = true;
    stage.head = true;
  }
  return stage;
}

/// Returns total_of() all layers, whether or not the order splits backwards.
double SearchBounds::whole_module(Kind kind, int tp, Recomputation recomputation, double share,
                                  std::int64_t bins) {
  const bool shared = kind == Kind::encoder;
  const auto [entry, is_new] = totals_.try_emplace({kind, tp, recomputation, share, shared ? 0 : bins}, 0.0);
  if (is_new) {
    Stage stage =
        with_choice(whole_stage(kind, tp, 1, recomputation), Layout::disaggregated, Recomputation::none);
    stage.share = share;
    entry->second = std::min(total_of(stage, bins, shared, false), total_of(stage, bins, shared, true));
  }
  return entry->second;
}

/// Returns largest_chain(), cached.
double SearchBounds::cached_largest_chain(Kind kind, int tp, Recomputation recomputation, double share) {
  const auto [entry, is_new] = ways_.try_emplace({kind, tp, recomputation, share, 0}, 0.0);
  if (is_new) entry->second = largest_chain(kind, tp, recomputation, share);
  return entry->second;
}

/// Raises floor.memory to what some rank surely needs: a mean rank's part of the model state, and of a mean
/// microbatch or the largest sample, whichever is larger. Raises floor.expected_memory to a mean rank's part
/// of the model state and of the `held` microbatches that the first rank holds.
void SearchBounds::set_whole_memory(PlanFloor& floor, Kind kind, const ModulePlan& module,
                                    Recomputation recomputation, int microbatches, int llm_dp,
                                    int held) const {
  const Stage stage = with_choice(whole_stage(kind, module.tp, module.dp, recomputation),
                                  Layout::disaggregated, Recomputation::full);
  Work work = divided(batch_.most_work, std::int64_t{microbatches} * module.dp);
  if (kind == Kind::llm) work.encoder = {};
  if (kind == Kind::encoder) work.llm = {};
  const std::int64_t state = request_.cost.model_state(stage).total().count;
  const std::int64_t mean = request_.cost.activation(stage, work).count;
  std::int64_t largest = mean;
  if (kind != Kind::encoder) {  // the encoder's ranks share the largest sample
    const Work sample{kind == Kind::both ? batch_.largest.encoder() : Workload{}, batch_.largest.llm()};
    largest = std::max(largest, request_.cost.activation(stage, sample).count);
  }
  floor.memory = std::max(floor.memory, Bytes{(state + largest) / module.pp});
  const Work most = held_work(batch_.heaviest, stage, microbatches, llm_dp, std::min(held, microbatches));
  const std::int64_t expected = request_.cost.activation(stage, most).count;
  floor.expected_memory = std::max(floor.expected_memory, Bytes{(state + expected) / module.pp});
}

PlanFloor SearchBounds::shape_floor(const SearchShape& shape, Recomputation recomputation, int microbatches) {
  const ModulePlan& encoder = shape.encoder;
  const ModulePlan& llm = shape.llm;
  const Kind kind = kind_of(shape.layout);
  const bool apart = has_encoder_ranks(shape.layout);
  const bool shared = shape.layout == Layout::shared;
  const double llm_share = shared ? 1 - shape.encoder_share : 1;
  const double whole =
      whole_module(kind, llm.tp, recomputation, llm_share, std::int64_t{microbatches} * llm.dp);
  const double way = cached_largest_chain(kind, llm.tp, recomputation, llm_share);
  double busy = whole / llm.dp / llm.pp;
  double chain = whole / llm.dp / microbatches;
  PlanFloor floor;
  set_whole_memory(floor, kind, llm, recomputation, microbatches, llm.dp, llm.pp);
  if (kind != Kind::both) {
    const double alone =
        whole_module(Kind::encoder, encoder.tp, recomputation, shared ? shape.encoder_share : 1, 0);
    chain += alone / encoder.dp / microbatches;
    const double encoder_busy = alone / encoder.dp / (apart ? encoder.pp : 1);
    busy = apart ? std::max(busy, encoder_busy) : busy + encoder_busy;
    if (apart) {
      PlanFloor of_encoder;
      set_whole_memory(of_encoder, Kind::encoder, encoder, recomputation, microbatches, llm.dp,
                       encoder.pp + llm.pp);
      floor.memory = std::max(floor.memory, of_encoder.memory);
      // A shared GPU has a rank of each module.
      floor.expected_memory = shared ? floor.expected_memory + of_encoder.expected_memory
                                     : std::max(floor.expected_memory, of_encoder.expected_memory);
    }
  }
  const double others = std::max(0.0, chain - busy / microbatches);
  floor.estimate_s = busy + others + std::max(0.0, way - chain);
  floor.bound_s = std::max(0.0, std::max(busy, way) - kRounding * (6.0 * microbatches + 16));
  floor.expected_memory = std::max(floor.expected_memory, floor.memory);
  return floor;
}

/// A PlanPrice prices one plan. Times are in seconds; times of stages are for the mean dp rank.
class SearchBounds::PlanPrice {
 public:
  PlanPrice(const SearchBounds& bounds, const Plan& plan)
      : bounds_(bounds),
        cost_(bounds.request_.cost),
        plan_(plan),
        stages_(plan_stages(plan, bounds.request_.model)),
        shape_(plan_shape(plan)),
        ranks_(stages_of_ranks(shape_)),
        split_(splits_backward(plan.order)),
        backward_op_(split_ ? Op::backward_input : Op::backward),
        largest_(bounds.largest_chain(kind_of(plan.layout), plan.llm.tp, plan.recomputation,
                                      stages_.back().share)) {
    for (std::size_t s = 0; s < stages_.size(); ++s) price_stage(s);
    price_ends();
  }

  PlanFloor floor() const {
    PlanFloor floor;
    floor.bound_s = bound();
    floor.estimate_s = std::max(estimate(), floor.bound_s);
    floor.memory = memory();
    floor.expected_memory = std::max(floor.memory, expected_memory(bounds_.batch_.heaviest));
    floor.hard_memory = std::max(floor.expected_memory, expected_memory(bounds_.batch_.hardest));
    return floor;
  }

 private:
  bool shared_encoder(std::size_t s) const {
    return stages_[s].llm_layers == 0 && plan_.layout != Layout::uniform;
  }

  void price_stage(std::size_t s) {
    // Stages with equal work are priced once.
    const auto same =
        std::find(stages_.begin(), stages_.begin() + static_cast<std::ptrdiff_t>(s), stages_[s]);
    const auto known = static_cast<std::size_t>(same - stages_.begin());
    if (known < s) {
      for (auto* table : {&busy_, &expected_, &forward_, &backward_}) table->push_back((*table)[known]);
      return;
    }
    const Stage& stage = stages_[s];
    const std::int64_t bins = std::int64_t{plan_.microbatches} * stage.dp;
    busy_.push_back(bounds_.total_of(bounds_.with_choice(stage, plan_.layout, Recomputation::none), bins,
                                     shared_encoder(s), split_) /
                    stage.dp);
    expected_.push_back(shared_encoder(s) ? bounds_.total_of(stage, bins, false, split_) / stage.dp
                                          : busy_.back());
    const Work smallest{{}, bounds_.batch_.smallest};
    const bool has_llm = stage.llm_layers > 0;
    forward_.push_back(has_llm ? bounds_.floor_of(Op::forward, stage, smallest) : 0);
    backward_.push_back(has_llm ? bounds_.floor_of(backward_op_, stage, smallest) : 0);
  }

  void price_ends() {
    const std::vector<double> reduction = reductions();
    for (const std::vector<int>& of_rank : ranks_) {
      double end = 0;
      for (const int s : of_rank) end += reduction[s] + cost_.optimizer_step(stages_[s]).count();
      end_.push_back(end);
    }
  }

  /// Returns, per stage, the time of its gradient reduction, which begins after its last backward. Zero with
  /// buckets, because most of them overlap.
  std::vector<double> reductions() const {
    std::vector<double> seconds(stages_.size(), 0.0);
    if (plan_.gradient_bucket.count > 0) return seconds;
    Program program;
    program.stages = stages_;
    if (plan_.layout == Layout::shared) program.shared_gpus = plan_.gpus();
    const std::vector<std::int32_t> first_rank = first_ranks(plan_);
    std::vector<std::vector<std::int32_t>> groups_of_stage(stages_.size());
    for (const std::vector<int>& of_rank : ranks_) {
      const Stage& stage = stages_[of_rank.back()];
      for (int d = 0; d < stage.dp; ++d) {
        const std::size_t group = program.groups.size();
        for (const int s : of_rank) groups_of_stage[s].push_back(static_cast<std::int32_t>(group));
        program.groups.push_back({first_rank[group], stage.tp, of_rank.back(), d, 0, 0});
      }
    }
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (stages_[s].dp == 1 || !stages_[s].is_trained()) continue;
      const Bytes gradients{gradient_bytes(plan_.optimizer_states) *
                            trained_parameters(stages_[s], bounds_.request_.model)};
      seconds[s] = cost_.all_reduce({groups_of_stage[s], gradients, stages_[s].copies}, program).count();
    }
    return seconds;
  }

  /// Returns the min time before the first step and after the last step of a rank.
  double outside(int rank) const {
    double least = std::numeric_limits<double>::max();
    for (const int s : ranks_[rank]) {
      const double before = std::accumulate(forward_.begin(), forward_.begin() + s, 0.0);
      double after = end_[rank];
      double backwards = 0;
      // If backwards are split, a rank's last step is a weight part, which no other rank waits for.
      for (int k = s - 1; k >= (shape_.spreads_encoder() ? 1 : 0) && !split_; --k) {
        if (!gradients_return(stages_, static_cast<std::size_t>(k))) break;
        backwards += backward_[k];
        after = std::max(after, backwards + end_[rank_of_stage(shape_, k)]);
      }
      least = std::min(least, before + after);
    }
    return least;
  }

  /// Returns the max number of consecutive microbatches that each rank can hold, for orders in which this is
  /// as many as fit into memory (core/program/held_limits.hpp). If a rank holds `held`, the m microbatches
  /// form ceil(m / held) windows. Each window fits, and so does the largest sample.
  std::vector<int> limits() const {
    std::vector<int> limits;
    const SearchBounds::FloorBatch& batch = bounds_.batch_;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      const Stage stage = bounds_.with_choice(stages_[ranks_[r].front()], plan_.layout, Recomputation::full);
      const auto size = [&](const Work& work) { return cost_.activation(stage, work_of_stage(stage, work)); };
      const Bytes mean = size(divided(batch.least_work, std::int64_t{plan_.microbatches} * stage.dp));
      Bytes largest = size(batch.largest_of_each.front());
      for (const Work& sample : batch.largest_of_each) largest = std::min(largest, size(sample));
      const Bytes left = bounds_.request_.cluster.gpu.usable_memory() - cost_.model_state(stage).total();
      const auto fits = [&](std::int64_t held) {
        const std::int64_t parts = (plan_.microbatches + held - 1) / held;
        return plan_.microbatches * mean.count <= parts * left.count;
      };
      int held = !shared_encoder(r) && largest > left ? 1 : plan_.microbatches;
      while (held > 1 && !fits(held)) --held;
      limits.push_back(held);
    }
    return limits;
  }

  /// Returns a bound for eager-1f1b by Little's law: the time that the ranks take if each of them always
  /// holds as many microbatches as it may, and holds each from its forward until its backward returns.
  double held_bound() const {
    double bound = 0;
    int held = plan_.microbatches;
    const std::vector<int> limit = limits();
    for (int r = shape_.leading; r < shape_.all_ranks(); ++r) {
      held = std::min({held, limit[r], 2 * (shape_.all_ranks() - r) - 1});
      if (!gradients_return(stages_, static_cast<std::size_t>(r))) continue;  // nothing comes back
      const double way = std::accumulate(busy_.begin() + r, busy_.end(), 0.0);
      bound = std::max(bound, way / held + outside(r));
    }
    return bound;
  }

  double bound() const {
    const auto holds = [](const Stage& stage) { return stage.llm_layers > 0; };
    const auto first_llm = std::ranges::find_if(stages_, holds) - stages_.begin();
    double bound = largest_ + end_[rank_of_stage(shape_, static_cast<int>(first_llm))];
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
      const auto ranks = static_cast<double>(ranks_.size());
      const double ends = std::accumulate(end_.begin(), end_.end(), 0.0);
      bound = std::max(bound, busy_[0] + (sum + ends) / ranks);
    } else if (traits(plan_.order).reads_limits) {
      bound = std::max(bound, held_bound());
    }
    const auto stages = static_cast<double>(stages_.size());
    return std::max(0.0, bound - kRounding * (3.0 * plan_.microbatches * plan_.chunks + 8 * stages + 8));
  }

  /// Returns the time of equal microbatches that fill and drain the pipeline, plus the additional time of the
  /// largest sample.
  double estimate() const {
    const double chain = std::accumulate(expected_.begin(), expected_.end(), 0.0) / plan_.microbatches;
    const Bytes usable = bounds_.request_.cluster.gpu.usable_memory();
    double estimate = 0;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      double busy = 0;
      Bytes left = usable;
      Bytes one{1};
      for (const int s : ranks_[r]) {
        busy += expected_[s];
        left -= cost_.model_state(stages_[s]).total();
        const Work mean = divided(bounds_.batch_.most_work, std::int64_t{plan_.microbatches} * stages_[s].dp);
        one = std::max(one, cost_.activation(stages_[s], work_of_stage(stages_[s], mean)));
      }
      if (traits(plan_.order).reads_limits && !shape_.spreads_encoder()) {
        const auto held = static_cast<double>(std::max<std::int64_t>(1, left.count / one.count));
        const auto deep = static_cast<double>(std::min<std::size_t>(ranks_.size() - r, plan_.microbatches));
        busy *= std::max(1.0, deep / held);
      }
      const double others = std::max(0.0, chain - busy / plan_.microbatches);
      estimate =
          std::max(estimate, busy + idle_part(plan_) * others + std::max(0.0, largest_ - chain) + end_[r]);
    }
    return estimate;
  }

  bool is_encoder(std::size_t rank) const { return stages_[ranks_[rank].back()].llm_layers == 0; }

  /// MemoryOfModules has the memory of the encoder's ranks and of all others.
  struct MemoryOfModules {
    std::array<Bytes, 2> fullest;
    std::array<Bytes, 2> emptiest = {Bytes{kMax}, Bytes{kMax}};  ///< without activations

    void add(bool encoder, Bytes state, Bytes all) {
      const std::size_t module = encoder ? 0 : 1;
      fullest[module] = std::max(fullest[module], all);
      emptiest[module] = std::min(emptiest[module], state);
    }
    Bytes most() const { return std::max(fullest[0], fullest[1]); }

    static constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max() / 2;
  };

  /// Returns a lower bound on the memory of the fullest GPU. A shared GPU has two ranks: one of them may be
  /// the fullest of its module, and the other has at least the model state of some stage.
  Bytes memory() const {
    MemoryOfModules modules;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Bytes state;
      Bytes live;
      for (const int s : ranks_[r]) {
        const Stage stage = bounds_.with_choice(stages_[s], plan_.layout, Recomputation::full);
        state += cost_.model_state(stage).total();
        const bool has_llm = stage.llm_layers > 0;
        if (plan_.layout == Layout::colocated && !has_llm) continue;
        const int held = traits(plan_.order).surely_held(shape_, static_cast<int>(r));
        live = std::max(live, bounds_.surely_live(plan_, stage, held));
      }
      modules.add(is_encoder(r), state, state + live);
    }
    if (plan_.layout != Layout::shared) return modules.most();
    return std::max(modules.fullest[0] + modules.emptiest[1], modules.fullest[1] + modules.emptiest[0]);
  }

  /// Returns the memory of the fullest GPU if all microbatches without the largest samples are equal.
  Bytes expected_memory(const HardBatch& batch) const {
    MemoryOfModules modules;
    for (std::size_t r = 0; r < ranks_.size(); ++r) {
      Bytes state;
      Bytes activations;
      Bytes workspace;
      const auto stages = static_cast<int>(ranks_[r].size());
      const int held = (traits(plan_.order).most_held(shape_, static_cast<int>(r)) + stages - 1) / stages;
      for (const int s : ranks_[r]) {
        state += cost_.model_state(stages_[s]).total();
        const auto work = [&](int microbatches) {
          return bounds_.held_work(batch, stages_[s], plan_.microbatches, plan_.llm.dp, microbatches);
        };
        activations += cost_.activation(stages_[s], work(held));
        workspace = std::max(workspace, cost_.workspace(backward_op_, stages_[s], work(1)));
      }
      modules.add(is_encoder(r), state, state + activations + workspace);
    }
    return plan_.layout == Layout::shared ? modules.fullest[0] + modules.fullest[1] : modules.most();
  }

  const SearchBounds& bounds_;
  const CostModel& cost_;
  const Plan& plan_;
  std::vector<Stage> stages_;
  PipelineShape shape_;
  std::vector<std::vector<int>> ranks_;
  bool split_;
  Op backward_op_;
  double largest_;  // seconds that a batch's largest sample takes forward and backward through all stages
  std::vector<double> busy_;      // per stage: lower bound over all microbatches
  std::vector<double> expected_;  // per stage: the same if all microbatches have encoder work
  std::vector<double> forward_;   // per stage: of the smallest sample
  std::vector<double> backward_;  // per stage: of the smallest sample; only the input part if it is split
  std::vector<double> end_;       // per rank: reductions and optimizer steps
};

PlanFloor SearchBounds::plan_floor(const Plan& plan) const {
  return PlanPrice(*this, plan).floor();
}

}  // namespace dflop
