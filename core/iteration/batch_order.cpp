#include "core/iteration/batch_order.hpp"

#include <algorithm>
#include <utility>

#include "core/iteration/iteration.hpp"
#include "core/program/lowering.hpp"

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

std::vector<int> limits(const Plan& plan, const Program& program, const ProgramCosts& costs, Bytes usable) {
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

}  // namespace dflop
