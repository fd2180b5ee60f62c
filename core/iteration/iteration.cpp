#include "core/iteration/iteration.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/program/encoder_share.hpp"
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
    Op computed = Op::forward;  // a send brings on what was computed before it
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

/// GroupMemory is what the microbatches of one group need at most.
struct GroupMemory {
  Bytes encoder_activation;  ///< of the stages before the LLM's, in a colocated plan
  Bytes activation;
  Bytes workspace;
};

GroupMemory group_memory(const Plan& plan, const Program& program, const ProgramCosts& costs,
                         const Group& group) {
  GroupMemory memory;
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    const Instruction& instruction = program.instructions[i];
    memory.workspace = std::max(memory.workspace, costs.workspace_of(i));
    const bool is_encoder = plan.layout == Layout::colocated && instruction.stage == 0;
    Bytes& largest = is_encoder ? memory.encoder_activation : memory.activation;
    largest = std::max(largest, costs.activation_of(i));
  }
  return memory;
}

/// Returns what the fullest rank of each module of a shared plan needs beside activations: of the encoder, of
/// the LLM.
std::array<Bytes, 2> fixed_memory(const Plan& plan, const Program& program, const ProgramCosts& costs) {
  std::array<Bytes, 2> fixed;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    Bytes& most = fixed[group.first_rank < program.shared_gpus ? 0 : 1];
    most = std::max(most, costs.model_state[g].total() + group_memory(plan, program, costs, group).workspace);
  }
  return fixed;
}

std::vector<int> limits(const Plan& plan, const Program& program, const ProgramCosts& costs, Bytes usable) {
  const bool shared = program.shared_gpus > 0;
  const std::array<Bytes, 2> fixed = shared ? fixed_memory(plan, program, costs) : std::array<Bytes, 2>{};
  const PipelineShape shape = plan_shape(plan);
  std::vector<int> limits(shape.all_ranks(), plan.microbatches);
  const auto times = [](Bytes bytes, int count) { return Bytes{bytes.count * count}; };
  int rank = -1;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    if (group.dp_rank == 0) ++rank;  // the groups of a pipeline rank follow each other
    const GroupMemory memory = group_memory(plan, program, costs, group);
    Bytes left = usable - costs.model_state[g].total() - memory.workspace;
    Bytes one = memory.activation;
    // Neither module knows how many microbatches the other holds: each has half of what both may.
    if (shared) left = Bytes{(left - fixed[group.first_rank < program.shared_gpus ? 1 : 0]).count / 2};
    if (shape.spreads_encoder()) {
      left -= times(memory.activation, traits(plan.order).surely_held(shape, rank));
      one = memory.encoder_activation;
    }
    const std::int64_t held = std::max<std::int64_t>(1, left.count / std::max<std::int64_t>(1, one.count));
    limits[rank] = static_cast<int>(std::min<std::int64_t>(limits[rank], held));
  }
  return limits;
}

}  // namespace

OrderTables order_tables(const Plan& plan, const Program& program, const ProgramCosts& costs,
                         Bytes usable_memory) {
  return {step_times(program, costs), limits(plan, program, costs, usable_memory)};
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

/// A SampleExcess is what the samples of an iteration add to the durations of its compute instructions,
/// beyond sums of work.
class SampleExcess {
 public:
  SampleExcess(const CostModel& cost, const Iteration& iteration)
      : cost_(cost),
        iteration_(iteration),
        bins_(samples_of_bins(iteration.plan, iteration.assignment)),
        of_ops_(kNames<Op>.size() * iteration.program.stages.size()) {}

  /// Returns the excess of one instruction of a group.
  Seconds of(const Group& group, const Instruction& instruction) {
    const OfOp& op = of_op(instruction.op, instruction.stage);
    if (op.samples.empty()) return Seconds(0);
    const Plan& plan = iteration_.plan;
    const std::size_t first_bin = static_cast<std::size_t>(instruction.microbatch) * plan.llm.dp;
    if (!op.shared) return sum(op, first_bin + group.dp_rank, 1);
    return sum(op, first_bin, plan.llm.dp) / plan.encoder.dp;
  }

 private:
  /// An OfOp has the excesses of one op on one stage.
  struct OfOp {
    bool known = false;
    bool shared = false;           ///< the dp ranks of an encoder apart share what all those of the LLM hold
    std::vector<Seconds> samples;  ///< of each sample; empty where all are zero
  };

  const OfOp& of_op(Op op, std::size_t stage) {
    OfOp& of_op = of_ops_[kNames<Op>.size() * stage + static_cast<std::size_t>(op)];
    if (of_op.known) return of_op;
    of_op.known = true;
    const Stage& shape = iteration_.program.stages[stage];
    of_op.shared = has_encoder_ranks(iteration_.plan.layout) && shape.encoder_layers > 0;
    for (const Sample& sample : iteration_.samples) {
      of_op.samples.push_back(cost_.sample_excess(op, shape, sample));
    }
    const auto none = [](Seconds excess) { return excess.count() == 0; };
    if (std::all_of(of_op.samples.begin(), of_op.samples.end(), none)) of_op.samples.clear();
    return of_op;
  }

  Seconds sum(const OfOp& op, std::size_t first_bin, int bins) const {
    Seconds sum(0);
    for (int b = 0; b < bins; ++b) {
      for (const std::int32_t s : bins_[first_bin + b]) sum += op.samples[s];
    }
    return sum;
  }

  const CostModel& cost_;
  const Iteration& iteration_;
  SamplesOfBins bins_;
  std::vector<OfOp> of_ops_;  ///< by stage and op
};

}  // namespace

ProgramCosts price(const CostModel& cost, const Iteration& iteration) {
  const Program& program = iteration.program;
  if (program.shared_gpus > 0 && !cost.knows_shares()) {
    refuse_input(
        "",
        "expected a plan without shares of GPUs, as these durations are of whole ones, found a shared one: "
        "they are of a profile without --shares, or of a recording");
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

Iteration make_iteration(const Problem& problem, const Plan& plan, std::span<const Sample> samples,
                         Assignment assignment, std::optional<PipelineOrder> order) {
  Iteration iteration;
  iteration.plan = plan;
  iteration.samples = samples;
  iteration.order = order ? *std::move(order)
                          : order_for_batch(plan, problem.model, problem.cost, samples, assignment,
                                            problem.cluster.gpu.usable_memory());
  iteration.program = lower(plan, problem.model, samples, assignment, iteration.order);
  iteration.assignment = std::move(assignment);
  verify(iteration.program);
  iteration.costs = price(problem.cost, iteration);
  return iteration;
}

}  // namespace dflop
