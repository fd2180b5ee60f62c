#include "core/iteration/iteration.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/program/encoder_share.hpp"
#include "core/program/held_limits.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Means has mean durations per stage and microbatch.
class Means {
 public:
  explicit Means(std::size_t cells) : sum_(cells, Nanoseconds(0)), count_(cells, 0) {}

  void add(std::size_t cell, Nanoseconds duration) {
    sum_[cell] += duration;
    ++count_[cell];
  }
  std::vector<Nanoseconds> take() {
    for (std::size_t c = 0; c < sum_.size(); ++c) sum_[c] /= std::max<std::int64_t>(count_[c], 1);
    return std::move(sum_);
  }

 private:
  std::vector<Nanoseconds> sum_;
  std::vector<std::int64_t> count_;
};

StepTimes step_times(const Program& program, const ProgramCosts& costs) {
  const std::size_t cells = program.stages.size() * program.microbatches;
  Means forward(cells);
  Means backward(cells);
  Means weight(cells);
  Means message(cells);
  for (const Group& group : program.groups) {
    Op computed = Op::forward;  // a send carries the result of the last compute before it
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_compute(instruction.op) && !is_send(instruction.op)) continue;
      const std::size_t stage = instruction.stage;
      const std::size_t cell = stage * program.microbatches + instruction.microbatch;
      if (is_send(instruction.op)) {
        if (is_gathered(program.messages[instruction.index], program)) continue;  // it crosses no boundary
        const std::size_t below = cell - program.microbatches;
        message.add(computed == Op::forward ? cell : below, costs.message[instruction.index]);
        continue;
      }
      computed = instruction.op;
      Means& means = computed == Op::forward ? forward : computed == Op::backward_weight ? weight : backward;
      means.add(cell, costs.instruction[i]);
    }
  }
  return {forward.take(), backward.take(), weight.take(), message.take()};
}

/// Returns how many encoder microbatches each rank can hold in addition to its LLM stage's.
std::vector<int> encoder_limits(const Plan& plan, const Program& program, const ProgramCosts& costs,
                                Bytes usable) {
  const PipelineShape shape = plan_shape(plan);
  std::vector<int> limits(shape.all_ranks(), plan.microbatches);
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const int rank = program.groups[g].stage - 1;  // stages start after the encoder's
    Bytes encoder;
    Bytes llm;
    Bytes workspace;
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      Bytes& largest = program.instructions[i].stage == 0 ? encoder : llm;
      largest = std::max(largest, costs.activation_of(i));
      workspace = std::max(workspace, costs.workspace_of(i));
    }
    const int of_llm = traits(plan.order).surely_held(shape, rank);
    const Bytes left = usable - costs.model_state[g].total() - workspace - Bytes{llm.count * of_llm};
    const std::int64_t held =
        std::max<std::int64_t>(1, left.count / std::max<std::int64_t>(1, encoder.count));
    limits[rank] = static_cast<int>(std::min<std::int64_t>(limits[rank], held));
  }
  return limits;
}

}  // namespace

OrderTables order_tables(const Plan& plan, const Program& program, const ProgramCosts& costs,
                         Bytes usable_memory) {
  OrderTables tables{step_times(program, costs), {}};
  if (traits(plan.order).spreads_encoder) {
    tables.most_held = encoder_limits(plan, program, costs, usable_memory);
  } else if (traits(plan.order).reads_limits) {
    tables.most_held = held_limits(program, costs, plan.microbatches, usable_memory);
  }
  return tables;
}

PipelineOrder order_for_batch(const Plan& plan, const ModelSpec& model, const CostModel& cost,
                              std::span<const Sample> batch, const Assignment& assignment,
                              Bytes usable_memory) {
  PipelineOrder order = plan_order(plan);
  if (!reads_tables(plan.order)) return order;
  Iteration sums;  // without samples
  sums.program = lower(plan, model, batch, assignment, order);
  return plan_order(plan, order_tables(plan, sums.program, price(cost, sums), usable_memory));
}

namespace {

/// A SampleExcess computes how much the samples of an iteration add to the durations of its compute
/// instructions, beyond the sums of work.
class SampleExcess {
 public:
  SampleExcess(const CostModel& cost, const Iteration& iteration)
      : cost_(cost),
        iteration_(iteration),
        bins_(samples_of_bins(iteration.plan, iteration.assignment)),
        excess_of_ops_(kNames<Op>.size() * iteration.program.stages.size()) {}

  /// Returns the excess of one instruction of a group.
  Seconds of(const Group& group, const Instruction& instruction) {
    const OpExcess& op = excess_of_op(instruction.op, instruction.stage);
    if (op.samples.empty()) return Seconds(0);
    const Plan& plan = iteration_.plan;
    const std::size_t first_bin = static_cast<std::size_t>(instruction.microbatch) * plan.llm.dp;
    const int copies = iteration_.program.stages[instruction.stage].copies;
    if (!op.shared) return sum(op, first_bin + group.dp_rank, 1) / copies;
    return sum(op, first_bin, plan.llm.dp) / plan.encoder.dp;
  }

 private:
  /// An OpExcess holds the excess of each sample for one op on one stage.
  struct OpExcess {
    bool known = false;
    bool shared = false;           ///< an encoder's separate dp ranks share the samples of all LLM dp ranks
    std::vector<Seconds> samples;  ///< per sample; empty if all are zero
  };

  const OpExcess& excess_of_op(Op op, std::size_t stage) {
    OpExcess& excess_of_op = excess_of_ops_[kNames<Op>.size() * stage + static_cast<std::size_t>(op)];
    if (excess_of_op.known) return excess_of_op;
    excess_of_op.known = true;
    const Stage& shape = iteration_.program.stages[stage];
    excess_of_op.shared = has_encoder_ranks(iteration_.plan.layout) && shape.encoder_layers > 0;
    for (const Sample& sample : iteration_.samples) {
      excess_of_op.samples.push_back(cost_.sample_excess(op, shape, sample));
    }
    const auto none = [](Seconds excess) { return excess.count() == 0; };
    if (std::all_of(excess_of_op.samples.begin(), excess_of_op.samples.end(), none))
      excess_of_op.samples.clear();
    return excess_of_op;
  }

  Seconds sum(const OpExcess& op, std::size_t first_bin, int bins) const {
    Seconds sum(0);
    for (int b = 0; b < bins; ++b) {
      for (const std::int32_t s : bins_[first_bin + b]) sum += op.samples[s];
    }
    return sum;
  }

  const CostModel& cost_;
  const Iteration& iteration_;
  SamplesOfBins bins_;
  std::vector<OpExcess> excess_of_ops_;  ///< by stage and op
};

}  // namespace

ProgramCosts price(const CostModel& cost, const Iteration& iteration) {
  const Program& program = iteration.program;
  if (program.shared_gpus > 0 && !cost.knows_shares()) {
    refuse_input(
        "",
        "expected a plan without shares of GPUs, because these durations (of a profile without --shares, "
        "or of a recording) are for whole GPUs, found a shared plan");
  }
  ProgramCosts costs = cost.price_sums(program);
  if (iteration.samples.empty()) return costs;
  SampleExcess excess(cost, iteration);
  for (const Group& group : program.groups) {
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      if (!is_compute(program.instructions[i].op)) continue;
      const Seconds more = excess.of(group, program.instructions[i]);
      if (more.count() == 0) continue;
      costs.set_duration(i, to_nanoseconds(std::max(Seconds(costs.instruction[i]) + more, Seconds(0))));
    }
  }
  return costs;
}

namespace {

/// Returns an iteration without its costs.
Iteration lowered_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                            Assignment assignment, std::optional<PipelineOrder> order) {
  Iteration iteration;
  iteration.plan = plan;
  iteration.samples = samples;
  iteration.order = order ? *std::move(order)
                          : order_for_batch(plan, problem.model, problem.cost, samples, assignment,
                                            problem.cluster.gpu.usable_memory());
  iteration.program = lower(plan, problem.model, samples, assignment, iteration.order);
  iteration.assignment = std::move(assignment);
  return iteration;
}

}  // namespace

Iteration make_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                         Assignment assignment, std::optional<PipelineOrder> order) {
  Iteration iteration = lowered_iteration(problem, plan, samples, std::move(assignment), std::move(order));
  verify(iteration.program);
  iteration.costs = price(problem.cost, iteration);
  return iteration;
}

Iteration make_trial_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                               Assignment assignment) {
  Iteration iteration = lowered_iteration(problem, plan, samples, std::move(assignment), {});
  iteration.costs = price(problem.cost, iteration);
  return iteration;
}

}  // namespace dflop
