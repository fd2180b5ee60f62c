#include "core/cost_model.hpp"

#include <algorithm>

namespace dflop {
namespace {

/// Returns the stages that a group runs, each once.
std::vector<std::int32_t> stages_of(const Program& program, const Group& group) {
  std::vector<std::int32_t> stages = {group.stage};
  for (std::int64_t i = group.begin; i < group.end; ++i) {
    const std::int32_t stage = program.instructions[i].stage;
    if (std::find(stages.begin(), stages.end(), stage) == stages.end()) stages.push_back(stage);
  }
  return stages;
}

}  // namespace

std::optional<Seconds> CostModel::convex_floor(Op, const Stage&, const Work&) const {
  return std::nullopt;
}

Seconds CostModel::sample_excess(Op, const Stage&, const Sample&) const {
  return Seconds(0);
}

Bytes CostModel::split_activation(const Stage& stage, const Work& work) const {
  return activation(stage, work);
}

Bytes CostModel::activation_of(Op op, const Stage& stage, const Work& work) const {
  if (op == Op::backward_weight) return split_activation(stage, work);
  if (op == Op::backward_input) return split_activation(stage, work) - activation(stage, work);
  return activation(stage, work);
}

ProgramCosts CostModel::price_sums(const Program& program) const {
  ProgramCosts costs;
  const std::size_t count = program.instructions.size();
  costs.instruction.assign(count, Nanoseconds(0));
  costs.activation.assign(count, Bytes{});
  costs.workspace.assign(count, Bytes{});
  for (const Group& group : program.groups) {
    ModelState state;
    for (const std::int32_t stage : stages_of(program, group)) state += model_state(program.stages[stage]);
    costs.model_state.push_back(state);
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      const Stage& stage = program.stages[instruction.stage];
      if (instruction.op == Op::optimizer_step) {
        costs.instruction[i] = to_nanoseconds(optimizer_step(stage));
      } else if (is_compute(instruction.op)) {
        const Work& work = program.works[instruction.index];
        costs.instruction[i] = to_nanoseconds(compute(instruction.op, stage, work));
        costs.workspace[i] = workspace(instruction.op, stage, work);
        costs.activation[i] = activation_of(instruction.op, stage, work);
      }
    }
  }
  for (const Message& m : program.messages) costs.message.push_back(to_nanoseconds(message(m, program)));
  for (const Collective& c : program.collectives) {
    costs.collective.push_back(to_nanoseconds(all_reduce(c, program)));
  }
  return costs;
}

}  // namespace dflop
