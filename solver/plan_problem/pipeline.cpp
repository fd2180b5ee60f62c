#include "solver/plan_problem/pipeline.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include "core/iteration/iteration.hpp"
#include "core/program/lowering.hpp"
#include "solver/bins/heuristics.hpp"
#include "solver/plan_problem/work.hpp"

namespace dflop {
namespace {

/// WorkCounts are the counts of a Work: sequences, tokens and attention pairs of the encoder, then of the
/// LLM.
constexpr std::size_t kWorkCounts = 9;
using WorkCounts = std::array<double, kWorkCounts>;

/// A WorkTime is fixed_s + slope . counts, in seconds.
struct WorkTime {
  double fixed_s = 0;
  WorkCounts slope{};
};

constexpr std::int64_t kStepPart = 16;  // a difference step is a count divided by this
constexpr int kTries = 12;
constexpr double kNextTry = 1.09;
constexpr double kStraight = 1e-12;  // relative to a duration: differences due to rounding
constexpr double kSlack = 1e-9;  // relative amount by which planes are lowered, for rounding of differences

using Counts = std::array<std::int64_t, kWorkCounts>;

Counts counts_of(const Work& work) {
  return {work.encoder.sequences,       work.encoder.tokens,
          work.encoder.attention_pairs, work.encoder.second.sequences,
          work.encoder.second.tokens,   work.encoder.second.attention_pairs,
          work.llm.sequences,           work.llm.tokens,
          work.llm.attention_pairs};
}

Work work_of(const Counts& counts) {
  return {{counts[0], counts[1], counts[2], 0, {counts[3], counts[4], counts[5]}},
          {counts[6], counts[7], counts[8]}};
}

/// Slopes are the differences to both sides along an axis, per count.
struct Slopes {
  double up = 0;
  double down = 0;
};

Slopes slopes(const std::function<Seconds(const Work&)>& duration, const Counts& at, std::size_t axis) {
  const std::int64_t step = at[axis] / kStepPart;
  Counts above = at;
  Counts below = at;
  above[axis] += step;
  below[axis] -= step;
  const double value = duration(work_of(at)).count();
  return {(duration(work_of(above)).count() - value) / static_cast<double>(step),
          (value - duration(work_of(below)).count()) / static_cast<double>(step)};
}

std::optional<WorkTime> straight_tangent(const std::function<Seconds(const Work&)>& duration,
                                         const Counts& at) {
  const double value = duration(work_of(at)).count();
  WorkTime plane{value * (1 - kSlack), {}};
  for (std::size_t k = 0; k < kWorkCounts; ++k) {
    if (at[k] == 0) continue;
    const auto count = static_cast<double>(at[k]);
    const auto [up, down] = slopes(duration, at, k);
    if (std::abs(up - down) * count > kStraight * kStepPart * value) return std::nullopt;
    plane.slope[k] = std::max(0.0, down) * (1 - kSlack);
    plane.fixed_s -= std::max(0.0, down) * count;
  }
  return plane;
}

/// Returns the counts times `scale`, large enough for differences.
Counts scaled_counts(const Work& work, double scale) {
  Counts at = counts_of(work);
  for (std::int64_t& count : at) {
    if (count == 0) continue;
    count = std::max(kStepPart, static_cast<std::int64_t>(std::llround(scale * static_cast<double>(count))));
  }
  return at;
}

/// Finds a tangent plane of a duration that is convex and nondecreasing in the nonzero counts of `work`. For
/// all works with the same nonzero counts, the plane is nowhere above the duration. The plane touches the
/// duration at or near `work`, at a point where the duration is straight along every axis over the steps of
/// the differences, and so differentiable. (At a kink, a plane made from differences along each axis may lie
/// above the duration.) If no such point is found, for example because the duration is curved everywhere, the
/// plane is zero.
WorkTime tangent(const std::function<Seconds(const Work&)>& duration, const Work& work) {
  double scale = 1;
  for (int round = 0; round < kTries; ++round, scale *= kNextTry) {
    if (const auto plane = straight_tangent(duration, scaled_counts(work, scale))) return *plane;
  }
  return {};
}

/// Returns the plane through `work` with mean differences: an approximation, for any function.
WorkTime mean_plane(const std::function<Seconds(const Work&)>& of_work, const Work& work) {
  const double untrained = work.llm.tokens > 0 ? static_cast<double>(work.llm.untrained_tokens) /
                                                     static_cast<double>(work.llm.tokens)
                                               : 0;
  const std::function<Seconds(const Work&)> duration = [&](Work near) {
    near.llm.untrained_tokens = std::llround(untrained * static_cast<double>(near.llm.tokens));
    return of_work(near);
  };
  const Counts at = scaled_counts(work, 1);
  WorkTime plane{duration(work_of(at)).count(), {}};
  for (std::size_t k = 0; k < kWorkCounts; ++k) {
    if (at[k] == 0) continue;
    const auto [up, down] = slopes(duration, at, k);
    plane.slope[k] = std::max(0.0, (up + down) / 2);
    plane.fixed_s -= plane.slope[k] * static_cast<double>(at[k]);
  }
  return plane;
}

/// A LinkTime is fixed_s + per_byte * bytes, in seconds.
struct LinkTime {
  double fixed_s = 0;
  double per_byte = 0;
};

constexpr std::int64_t kSomeBytes = 1 << 20;

/// Makes a program with the plan's groups, stages and collectives, for a batch without work.
Program empty_program(Plan plan, const ModelSpec& model) {
  const bool by_ranks = traits(plan.order).in_rounds || plan.layout == Layout::colocated;
  plan.microbatches = by_ranks ? plan.llm.pp : 1;
  return lower_without_work(plan, model);
}

/// Returns the time of messages from one group to another.
LinkTime link_time(const CostModel& cost, const Program& program, std::int32_t source,
                   std::int32_t destination) {
  const auto seconds = [&](std::int64_t bytes) {
    Message message{source, destination, 0, Bytes{bytes}, Bytes{bytes}};
    message.port_bytes.count *= std::max(1, hub_copies(message, program));
    return cost.message(message, program).count();
  };
  const double one = seconds(kSomeBytes);
  const double per_byte = (seconds(2 * kSomeBytes) - one) / kSomeBytes;
  return {one - per_byte * kSomeBytes, per_byte};
}

LinkTime least(const LinkTime& a, const LinkTime& b) {
  return {std::min(a.fixed_s, b.fixed_s), std::min(a.per_byte, b.per_byte)};
}

/// A RankTail is the time after the last backward of a rank, and its reductions that overlap with it.
struct RankTail {
  double seconds = 0;         ///< from the last backward to the end, if nothing else delays it
  OverlappedTail overlapped;  ///< zero seconds: there is none
};

/// Returns the tail of a group. A group runs its collectives one after the other.
RankTail tail_of(const Plan& plan, const CostModel& cost, const Program& program, const Group& group) {
  // If the order depends on durations, the last backward may be another stage's, with other buckets.
  const bool last_is_known = !reads_tables(plan.order);
  const auto seconds = [](Seconds duration) { return Seconds(to_nanoseconds(duration)).count(); };
  RankTail tail;
  int last_stage = -1;
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (is_compute(instruction.op)) last_stage = instruction.stage;
  }
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (instruction.op == Op::optimizer_step) {
      const double step = seconds(cost.optimizer_step(program.stages[instruction.stage]));
      tail.seconds += step;
      tail.overlapped.tail_s += step;
    }
    if (!is_collective(instruction.op)) continue;
    const Collective& reduction = program.collectives[instruction.index];
    const double duration = seconds(cost.all_reduce(reduction, program));
    const bool overlaps = last_is_known && instruction.stage == last_stage;
    if (instruction.op == Op::all_reduce) {
      tail.seconds += duration;
      tail.overlapped.tail_s += duration;
    } else if (instruction.op == Op::all_reduce_start && overlaps) {
      tail.overlapped.part = std::min(tail.overlapped.part, reduction.ready);
      tail.overlapped.seconds += duration;
    } else if (instruction.op == Op::all_reduce_wait && overlaps) {
      if (reduction.ready == 1) tail.seconds = std::max(tail.seconds, duration);
      tail.overlapped.tail_s = 0;  // so far; what follows comes after the reductions
    }
  }
  return tail;
}

struct PlanLinks {
  std::vector<LinkTime> forward;   ///< per stage boundary; zero inside a rank
  std::vector<LinkTime> backward;  ///< from the stage after the boundary
  std::vector<RankTail> tails;     ///< per pipeline rank: lower bounds
};

/// Finds the min times of links and tails over all dp ranks (and all pairs, in a reshard) on idle links. If
/// there is a hub, it takes the hub's messages to and from the LLM, because every path goes through them.
/// Message times are assumed affine in their bytes. Gradients in buckets overlap with the last backward. Of
/// them, it counts the last bucket, which is complete only at the end, and all buckets from the time when the
/// first is complete.
PlanLinks plan_links(const Plan& plan, const ModelSpec& model, const CostModel& cost) {
  const Program program = empty_program(plan, model);
  const PipelineShape shape = plan_shape(plan);
  PlanLinks links;
  std::vector<std::vector<std::int32_t>> groups;  // per pipeline rank: of its dp ranks
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    if (program.groups[g].dp_rank == 0) {
      groups.emplace_back();
      links.tails.push_back(tail_of(plan, cost, program, program.groups[g]));
    }
    groups.back().push_back(static_cast<std::int32_t>(g));
  }
  for (int s = 0; s + 1 < static_cast<int>(program.stages.size()); ++s) {
    constexpr double kEver = std::numeric_limits<double>::infinity();
    LinkTime forward{kEver, kEver};
    LinkTime backward = forward;
    bool between_ranks = false;
    for (int j = 0; j < program.microbatches; ++j) {
      const int from = rank_of_stage(shape, s, j);
      const int to = rank_of_stage(shape, s + 1, j);
      if (from == to) continue;
      between_ranks = true;
      const bool reshard = has_encoder_ranks(plan.layout) && s + 1 == plan.encoder.pp;
      for (const std::int32_t a : groups[from]) {
        for (const std::int32_t b : groups[to]) {
          if (!reshard && program.groups[a].dp_rank != program.groups[b].dp_rank) continue;
          if (reshard && program.hub >= 0 && a != program.hub) continue;
          forward = least(forward, link_time(cost, program, a, b));
          backward = least(backward, link_time(cost, program, b, a));
        }
      }
    }
    links.forward.push_back(between_ranks ? forward : LinkTime{});
    links.backward.push_back(between_ranks ? backward : LinkTime{});
  }
  return links;
}

constexpr std::size_t kEncoderTokens = 1;  // index into WorkCounts
constexpr std::size_t kFirstLlmCount = 6;
constexpr std::size_t kLlmTokens = 7;
constexpr std::size_t kOutputTokens = kWorkCounts;  // index after them
constexpr std::size_t kCounts = kWorkCounts + 1;    // features of the work; features of excesses follow
using Mix = std::vector<double>;                    // per feature

// Executors use whole nanoseconds, and may round any part down by half of one.
constexpr double kNanosecondRounding = 0.5e-9;

constexpr double kSameMix = 1e-9;

// A message that a step need not wait for has arrived at this time.
constexpr double kLongAgo = -std::numeric_limits<double>::infinity();

/// Loads are the loads of a pipeline; loads whose mixes differ only by a factor are merged.
class Loads {
 public:
  LoadTime time(double fixed_s, const Mix& mix, bool of_microbatch, double part) {
    const double size = *std::max_element(mix.begin(), mix.end());
    if (size <= 0) return {fixed_s, 0, 0};
    for (std::size_t l = 0; l < loads_.size(); ++l) {
      if (loads_[l].of_microbatch != of_microbatch) continue;
      if (const double scale = scale_to(loads_[l], mix); scale > 0)
        return {fixed_s, scale * part, static_cast<std::int32_t>(l)};
    }
    Load load{mix, of_microbatch};
    for (double& value : load.mix) value /= size;
    loads_.push_back(std::move(load));
    return {fixed_s, size * part, static_cast<std::int32_t>(loads_.size() - 1)};
  }

  /// Returns the loads with only the features that `used` names.
  std::vector<Load> take(const std::vector<std::size_t>& used) const {
    std::vector<Load> loads;
    for (const Load& load : loads_) {
      loads.push_back({{}, load.of_microbatch});
      for (const std::size_t k : used) loads.back().mix.push_back(load.mix[k]);
    }
    return loads;
  }

  bool reads(std::size_t feature) const {
    return std::any_of(loads_.begin(), loads_.end(), [&](const Load& l) { return l.mix[feature] > 0; });
  }

 private:
  /// Returns the min factor by which the load gives the mix; 0 if it is a different mix.
  static double scale_to(const Load& load, const Mix& mix) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (std::size_t k = 0; k < mix.size(); ++k) {
      if ((load.mix[k] > 0) != (mix[k] > 0)) return 0;
      if (load.mix[k] == 0) continue;
      least = std::min(least, mix[k] / load.mix[k]);
      most = std::max(most, mix[k] / load.mix[k]);
    }
    return most - least <= kSameMix * most ? least : 0;
  }

  std::vector<Load> loads_;  // mixes of all features
};

/// An Excess is the time that the samples add to a duration beyond their work, as a multiple of a feature.
struct Excess {
  std::size_t feature = 0;
  double factor = 0;  ///< 0: no excess
};

/// Returns the positive factor by which the feature gives the values; 0 if there is none. The feature must
/// not be all zero.
double factor_of(std::span<const double> feature, std::span<const double> values) {
  const auto smaller = [](double a, double b) { return std::abs(a) < std::abs(b); };
  const auto largest = std::max_element(feature.begin(), feature.end(), smaller);
  const double factor = values[largest - feature.begin()] / *largest;
  const double most = kSameMix * std::abs(factor * *largest);
  const auto same = [&](double f, double value) { return std::abs(value - factor * f) <= most; };
  return factor > 0 && std::equal(feature.begin(), feature.end(), values.begin(), same) ? factor : 0.0;
}

class Builder {
 public:
  Builder(const Plan& plan, const ModelSpec& model, const CostModel& cost, std::span<const Sample> samples)
      : plan_(plan),
        model_(model),
        cost_(cost),
        stages_(plan_stages(plan, model)),
        links_(plan_links(plan, model, cost)),
        apart_(has_encoder_ranks(plan.layout)),
        values_(kCounts) {
    Work total;
    for (const Sample& sample : samples) {
      const Work work{sample.encoder(), sample.llm()};
      total.encoder += work.encoder;
      total.llm += work.llm;
      const Counts counts = counts_of(work);
      for (std::size_t k = 0; k < kWorkCounts; ++k) values_[k].push_back(static_cast<double>(counts[k]));
      values_[kOutputTokens].push_back(
          work.encoder.empty() ? 0.0 : static_cast<double>(sample.encoder_output_tokens));
      all_encode_ = all_encode_ && values_[kOutputTokens].back() > 0;
      llm_always_ = llm_always_ && !work.llm.empty();
    }
    const std::int64_t encoder_dp = apart_ ? plan.encoder.dp : plan.llm.dp;
    mean_ = {mean_part(total.encoder, plan.microbatches * encoder_dp), mean_part(total.llm, plan.bins())};
    avoidable_ = !all_encode_ || (apart_ && plan.encoder.dp > 1);
    add_excesses(samples);
    has_floor_ = llm_always_ && !takes_less_ &&
                 cost.convex_floor(Op::forward, stages_.back(), {{}, mean_.llm}).has_value();
  }

  PlanPipeline make(const PipelineOrder& order) {
    Loads loads;
    Loads floor_loads;
    std::vector<StageLoadTimes> times;
    std::vector<StageLoadTimes> floor_times;
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      times.push_back(stage_times(s, loads, false));
      floor_times.push_back(stage_times(s, floor_loads, true));
    }
    PlanPipeline out;
    std::vector<std::size_t> used;
    for (std::size_t k = 0; k < values_.size(); ++k) {
      if (!loads.reads(k) && !floor_loads.reads(k)) continue;
      used.push_back(k);
      out.values.push_back(std::move(values_[k]));
    }
    const int dp = plan_.llm.dp;
    out.pipeline = with_tails(order, dp, loads.take(used), times, 0);
    // The time at which a bucket is complete is also rounded.
    out.floor = with_tails(order, dp, floor_loads.take(used), floor_times, kNanosecondRounding);
    for (LoadStep& step : out.floor.steps) {
      if (step.after < 0 || step.message.fixed_s != kLongAgo) continue;
      step.after = -1;
      step.message = {};
    }
    if (has_floor_) {
      out.bound = reads_tables(plan_.order) ? BoundKind::simple : BoundKind::linear_program;
    }
    return out;
  }

 private:
  LoadPipeline with_tails(const PipelineOrder& order, int dp, std::vector<Load> loads,
                          std::span<const StageLoadTimes> times, double less_s) const {
    std::vector<double> tail_s;
    for (const RankTail& tail : links_.tails) tail_s.push_back(tail.seconds);
    LoadPipeline pipeline = make_load_pipeline(order, dp, std::move(loads), times, std::move(tail_s));
    for (std::size_t r = 0; r < links_.tails.size(); ++r) {
      OverlappedTail tail = links_.tails[r].overlapped;
      if (tail.seconds <= 0) continue;
      tail.seconds -= less_s;
      add_overlapped_tail(pipeline, static_cast<int>(r), tail);
    }
    return pipeline;
  }

  bool encoder_apart(std::size_t stage) const {
    return apart_ && stage < static_cast<std::size_t>(plan_.encoder.pp);
  }

  /// Returns the first stage that equals this one.
  std::size_t first_like(std::size_t stage) const {
    const auto end = stages_.begin() + static_cast<std::ptrdiff_t>(stage);
    const auto first =
        static_cast<std::size_t>(std::find(stages_.begin(), end, stages_[stage]) - stages_.begin());
    return encoder_apart(first) == encoder_apart(stage) ? first : stage;
  }

  void add_excesses(std::span<const Sample> samples) {
    const std::vector<Op> ops = splits_backward(plan_.order)
                                    ? std::vector{Op::forward, Op::backward_input, Op::backward_weight}
                                    : std::vector{Op::forward, Op::backward};
    for (std::size_t s = 0; s < stages_.size(); ++s) {
      if (first_like(s) < s) continue;
      for (const Op op : ops) {
        std::vector<double> excess_s;
        for (const Sample& sample : samples) {
          excess_s.push_back(cost_.sample_excess(op, stages_[s], sample).count());
          takes_less_ = takes_less_ || excess_s.back() < 0;
        }
        excesses_[{op, s}] = excess_of(std::move(excess_s));
      }
    }
  }

  Excess excess_of(std::vector<double> excess_s) {
    if (std::all_of(excess_s.begin(), excess_s.end(), [](double e) { return e == 0; })) return {};
    for (std::size_t k = kCounts; k < values_.size(); ++k) {
      if (const double factor = factor_of(values_[k], excess_s); factor > 0) return {k, factor};
    }
    values_.push_back(std::move(excess_s));
    return {values_.size() - 1, 1};
  }

  /// Returns whether the message from a stage to the next depends on the encoder's work.
  bool of_encoder(std::size_t boundary) const {
    return stages_[boundary + 1].encoder_layers > 0 || stages_[boundary].llm_layers == 0;
  }

  WorkTime plane(Op op, std::size_t s, bool floor) {
    floor = floor && has_floor_;
    const auto seconds = [&](const Work& work) {
      return floor ? cost_.convex_floor(op, stages_[s], work).value() : cost_.compute(op, stages_[s], work);
    };
    Work work = mean_;
    if (encoder_apart(s)) work.llm = {};
    if (stages_[s].copies > 1) work = {mean_part(mean_.encoder, stages_[s].copies), {}};
    if (apart_ && !encoder_apart(s)) work.encoder = {};
    if (!floor) return mean_plane(seconds, work);
    WorkTime low = tangent(seconds, work);
    if (avoidable_ && !work.encoder.empty()) {
      const WorkTime without = tangent(seconds, {{}, work.llm});
      low.fixed_s = std::min(low.fixed_s, without.fixed_s);
      for (std::size_t k = kFirstLlmCount; k < kWorkCounts; ++k) {
        low.slope[k] = std::min(low.slope[k], without.slope[k]);
      }
    }
    low.fixed_s -= kNanosecondRounding;
    return low;
  }

  LoadTime compute_time(Op op, std::size_t s, Loads& loads, bool floor) {
    const std::size_t first = first_like(s);
    const auto [known, fresh] = planes_.try_emplace({op, floor, first});
    WorkTime& time = known->second;
    if (fresh) time = plane(op, first, floor);
    Mix mix(values_.size());
    std::copy(time.slope.begin(), time.slope.end(), mix.begin());
    if (const Excess& excess = excesses_[{op, first}]; !floor && excess.factor > 0) {
      mix[excess.feature] = excess.factor;
    }
    // The copies of an encoder share a microbatch; the slowest takes at least the mean.
    const double part = 1.0 / (encoder_apart(s) ? plan_.encoder.dp : stages_[s].copies);
    return loads.time(time.fixed_s, mix, encoder_apart(s), part);
  }

  LoadTime message_time(std::size_t boundary, const LinkTime& link, Loads& loads, bool floor) const {
    if (floor && avoidable_ && of_encoder(boundary)) return {kLongAgo, 0, 0};
    const bool inside_encoder = stages_[boundary + 1].encoder_layers > 0;
    const bool inside_llm = !inside_encoder && stages_[boundary].llm_layers > 0;
    const std::size_t tokens = inside_encoder ? kEncoderTokens : inside_llm ? kLlmTokens : kOutputTokens;
    const std::int64_t width = boundary_width(stages_, boundary, model_);
    Mix mix(values_.size());
    mix[tokens] = link.per_byte * static_cast<double>(width * kBf16Bytes);
    const bool of_microbatch = apart_ && inside_encoder;
    const double fixed_s = link.fixed_s - (floor ? kNanosecondRounding : 0.0);
    return loads.time(fixed_s, mix, of_microbatch, of_microbatch ? 1.0 / plan_.encoder.dp : 1.0);
  }

  StageLoadTimes stage_times(std::size_t s, Loads& loads, bool floor) {
    StageLoadTimes times;
    const bool split = splits_backward(plan_.order);
    times.forward = compute_time(Op::forward, s, loads, floor);
    times.backward = compute_time(split ? Op::backward_input : Op::backward, s, loads, floor);
    if (split) times.backward_weight = compute_time(Op::backward_weight, s, loads, floor);
    if (s + 1 < stages_.size()) {
      times.message_forward = message_time(s, links_.forward[s], loads, floor);
      times.message_backward = message_time(s, links_.backward[s], loads, floor);
      times.awaits_gradient = gradients_return(stages_, s);
    }
    times.shared = encoder_apart(s);
    return times;
  }

  const Plan& plan_;
  const ModelSpec& model_;
  const CostModel& cost_;
  std::vector<Stage> stages_;
  PlanLinks links_;
  bool apart_;               // the encoder has separate ranks
  bool all_encode_ = true;   // every sample has work for the encoder
  bool llm_always_ = true;   // every sample has work for the LLM
  bool avoidable_ = false;   // some microbatch may avoid waits for the encoder, and its work
  bool takes_less_ = false;  // the cost model has a sample that takes less than its work implies
  bool has_floor_ = false;
  Work mean_;  // of a microbatch on one dp rank
  std::vector<std::vector<double>> values_;
  std::map<std::tuple<Op, bool, std::size_t>, WorkTime> planes_;  // op, floor, first equal stage
  std::map<std::pair<Op, std::size_t>, Excess> excesses_;         // op, first equal stage
};

PipelineOrder order_of(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                       std::span<const Sample> samples, Bytes memory) {
  if (!reads_tables(plan.order)) return plan_order(plan);
  const SampleCosts costs = sample_costs(cost, plan, model, samples);
  const BinProblem problem{costs.encoder_s, costs.llm_s, plan.bins(), plan.llm.dp};
  Assignment assignment{plan.microbatches, plan.llm.dp, lpt(problem)};
  arrange_bins(problem, assignment.bin);
  return order_for_batch(plan, model, cost, samples, assignment, memory);
}

}  // namespace

PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, Bytes memory) {
  return plan_pipeline(plan, model, cost, samples, order_of(plan, model, cost, samples, memory));
}

PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, const PipelineOrder& order) {
  return Builder(plan, model, cost, samples).make(order);
}

}  // namespace dflop
