#include "solver/plan_problem/pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "core/program/lowering.hpp"
#include "costmodel/sample_costs.hpp"
#include "costmodel/schedule_tables.hpp"
#include "solver/bins/lpt.hpp"
#include "solver/bins/order.hpp"
#include "solver/plan_problem/links.hpp"
#include "solver/plan_problem/tangent.hpp"

namespace dflop {
namespace {

constexpr std::size_t kEncoderTokens = 1;  // into WorkCounts
constexpr std::size_t kFirstLlmCount = 3;
constexpr std::size_t kLlmTokens = 4;
constexpr std::size_t kOutputTokens = kWorkCounts;  // behind them
constexpr std::size_t kCounts = kWorkCounts + 1;    // features; behind them, what samples add beyond
using Mix = std::vector<double>;                    // per feature

constexpr std::int64_t kActivationBytes = 2;  // bf16, as lower() has it

// Executors count whole nanoseconds, and may round any part down by half of one.
constexpr double kNanosecondRounding = 0.5e-9;

constexpr double kSameMix = 1e-9;

// A message that a step need not wait for has come before all others.
constexpr double kLongAgo = -std::numeric_limits<double>::infinity();

/// The loads of a pipeline; those with the same mix but for a factor are one.
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

  /// Those of the features that `used` names.
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
  /// The least factor by which the load gives the mix; 0 where it is another mix.
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

Workload mean_of(const Workload& total, std::int64_t count) {
  return {round_up(total.sequences, count) / count, round_up(total.tokens, count) / count,
          round_up(total.attention_pairs, count) / count};
}

/// What the samples add to a duration beyond their work, as a multiple of a feature.
struct Excess {
  std::size_t feature = 0;
  double factor = 0;  ///< 0: nothing
};

/// The factor above zero by which the feature gives the values; 0 where they are others. Not all of the
/// feature is zero.
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
        apart_(plan.layout == Layout::disaggregated),
        values_(kCounts) {
    Work total;
    for (const Sample& sample : samples) {
      const Work work{sample.encoder(), sample.llm()};
      const WorkCounts counts = work_counts(work);
      for (std::size_t k = 0; k < kWorkCounts; ++k) values_[k].push_back(counts[k]);
      values_[kOutputTokens].push_back(
          work.encoder.empty() ? 0.0 : static_cast<double>(sample.encoder_output_tokens));
      all_encode_ = all_encode_ && values_[kOutputTokens].back() > 0;
      llm_always_ = llm_always_ && !work.llm.empty();
      total.encoder += work.encoder;
      total.llm += work.llm;
    }
    const std::int64_t encoder_dp = apart_ ? plan.encoder.dp : plan.llm.dp;
    mean_ = {mean_of(total.encoder, plan.microbatches * encoder_dp), mean_of(total.llm, plan.bins())};
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
    out.pipeline = make_load_pipeline(order, dp, loads.take(used), times, links_.tail_s);
    out.floor = make_load_pipeline(order, dp, floor_loads.take(used), floor_times, links_.tail_s);
    for (LoadStep& step : out.floor.steps) {
      if (step.after < 0 || step.message.fixed_s != kLongAgo) continue;
      step.after = -1;
      step.message = {};
    }
    if (has_floor_) {
      out.bound = reads_tables(plan_.schedule) ? BoundKind::simple : BoundKind::linear_program;
    }
    return out;
  }

 private:
  bool encoder_apart(std::size_t stage) const {
    return apart_ && stage < static_cast<std::size_t>(plan_.encoder.pp);
  }

  /// The first stage that is like this one.
  std::size_t first_like(std::size_t stage) const {
    const auto end = stages_.begin() + static_cast<std::ptrdiff_t>(stage);
    const auto first =
        static_cast<std::size_t>(std::find(stages_.begin(), end, stages_[stage]) - stages_.begin());
    return encoder_apart(first) == encoder_apart(stage) ? first : stage;
  }

  void add_excesses(std::span<const Sample> samples) {
    const std::vector<Op> ops = splits_backward(plan_.schedule)
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

  /// Whether what crosses from a stage to the next depends on the encoder's work.
  bool of_encoder(std::size_t boundary) const {
    return stages_[boundary + 1].encoder_layers > 0 || stages_[boundary].llm_layers == 0;
  }

  Seconds duration(Op op, const Stage& stage, const Work& work) const {
    return has_floor_ ? cost_.convex_floor(op, stage, work).value() : cost_.compute(op, stage, work);
  }

  WorkTime plane(Op op, std::size_t s, bool floor) {
    const auto seconds = [&](const Work& work) { return duration(op, stages_[s], work); };
    Work work = mean_;
    if (apart_ && encoder_apart(s)) work.llm = {};
    if (apart_ && !encoder_apart(s)) work.encoder = {};
    if (!floor || !has_floor_) return mean_plane(seconds, work);
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
    const double part = encoder_apart(s) ? 1.0 / plan_.encoder.dp : 1.0;
    return loads.time(time.fixed_s, mix, encoder_apart(s), part);
  }

  LoadTime message_time(std::size_t boundary, const LinkTime& link, Loads& loads, bool floor) const {
    if (floor && avoidable_ && of_encoder(boundary)) return {kLongAgo, 0, 0};
    const bool inside_encoder = stages_[boundary + 1].encoder_layers > 0;
    const bool inside_llm = !inside_encoder && stages_[boundary].llm_layers > 0;
    const std::size_t tokens = inside_encoder ? kEncoderTokens : inside_llm ? kLlmTokens : kOutputTokens;
    const int hidden = inside_encoder ? model_.encoder.hidden : model_.llm.hidden;
    Mix mix(values_.size());
    mix[tokens] = link.per_byte * static_cast<double>(hidden * kActivationBytes);
    const bool of_microbatch = apart_ && inside_encoder;
    const double fixed_s = link.fixed_s - (floor ? kNanosecondRounding : 0.0);
    return loads.time(fixed_s, mix, of_microbatch, of_microbatch ? 1.0 / plan_.encoder.dp : 1.0);
  }

  StageLoadTimes stage_times(std::size_t s, Loads& loads, bool floor) {
    StageLoadTimes times;
    const bool split = splits_backward(plan_.schedule);
    times.forward = compute_time(Op::forward, s, loads, floor);
    times.backward = compute_time(split ? Op::backward_input : Op::backward, s, loads, floor);
    if (split) times.backward_weight = compute_time(Op::backward_weight, s, loads, floor);
    if (s + 1 < stages_.size()) {
      times.message_forward = message_time(s, links_.forward[s], loads, floor);
      times.message_backward = message_time(s, links_.backward[s], loads, floor);
    }
    times.shared = encoder_apart(s);
    return times;
  }

  const Plan& plan_;
  const ModelSpec& model_;
  const CostModel& cost_;
  std::vector<Stage> stages_;
  PlanLinks links_;
  bool apart_;               // an encoder on ranks of its own
  bool all_encode_ = true;   // every sample has work for the encoder
  bool llm_always_ = true;   // and for the LLM
  bool avoidable_ = false;   // waits for the encoder, and its work in some microbatch
  bool takes_less_ = false;  // the cost model knows of a sample that takes less than its work says
  bool has_floor_ = false;
  Work mean_;  // of a microbatch on one dp rank
  std::vector<std::vector<double>> values_;
  std::map<std::tuple<Op, bool, std::size_t>, WorkTime> planes_;  // op, floor, first stage that is like it
  std::map<std::pair<Op, std::size_t>, Excess> excesses_;         // op, first stage
};

PipelineOrder order_of(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                       std::span<const Sample> samples, std::optional<Bytes> memory) {
  PipelineOrder order = plan_order(plan);
  if (!reads_tables(plan.schedule)) return order;
  const SampleCosts costs = sample_costs(cost, plan, model, samples);
  const BinProblem problem{costs.encoder_s, costs.llm_s, plan.bins(), plan.llm.dp};
  Assignment assignment{plan.microbatches, plan.llm.dp, lpt(problem)};
  arrange_bins(problem, assignment.bin);
  const Program program = lower(plan, model, samples, assignment, order);
  const Bytes usable = memory.value_or(Bytes{std::int64_t{1} << 60});
  return plan_order(plan, schedule_tables(plan, program, cost.price(program), usable));
}

}  // namespace

PlanPipeline plan_pipeline(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                           std::span<const Sample> samples, std::optional<Bytes> memory) {
  return Builder(plan, model, cost, samples).make(order_of(plan, model, cost, samples, memory));
}

}  // namespace dflop
