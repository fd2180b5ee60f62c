#include "core/cost_model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

/// Adds the buffers in which the hub holds the messages that it forwards: the outputs of a microbatch after
/// its forward, and as many bytes of gradients before its backward. They count toward the workspace of that
/// compute.
void add_hub_buffers(const Program& program, ProgramCosts& costs) {
  if (program.hub < 0) return;
  std::vector<Bytes> passed_on(program.microbatches);
  const std::int32_t stage = program.groups[program.hub].stage;
  for (const Message& m : program.messages) {
    const bool leaves = m.source == program.hub && program.groups[m.destination].stage > stage;
    if (leaves) passed_on[m.microbatch] += m.bytes;
  }
  const Group& hub = program.groups[program.hub];
  for (std::int64_t i = hub.begin; i < hub.end; ++i) {
    const Instruction& instruction = program.instructions[i];
    const bool exchanges = is_compute(instruction.op) && instruction.op != Op::backward_weight;
    if (exchanges) costs.workspace[i] += passed_on[instruction.microbatch];
  }
}

}  // namespace

void ProgramCosts::set_duration(std::size_t i, Nanoseconds duration) {
  const Nanoseconds before = std::exchange(instruction[i], duration);
  if (bandwidth.empty() || duration == before || duration == Nanoseconds(0)) return;
  bandwidth[i] = std::min(1.0, bandwidth[i] * (Seconds(before) / Seconds(duration)));
}

Seconds PassTimes::of(Op op) const {
  if (op == Op::forward) return forward;
  if (op == Op::backward) return backward_input + backward_weight;
  if (op == Op::backward_input) return backward_input;
  if (op == Op::backward_weight) return backward_weight;
  throw Error(ErrorKind::internal, fmt::format("expected a compute op, found {}", to_string(op)));
}

Bytes CostModel::activation_of(Op op, const Stage& stage, const Work& work) const {
  if (op == Op::backward_weight) return split_activation(stage, work);
  if (op == Op::backward_input) return split_activation(stage, work) - activation(stage, work);
  return activation(stage, work);
}

std::vector<Nanoseconds> CostModel::compute_times(const Program& program) const {
  std::vector<Nanoseconds> times(program.instructions.size(), Nanoseconds(0));
  for (std::size_t i = 0; i < times.size(); ++i) {
    const Instruction& instruction = program.instructions[i];
    if (!is_compute(instruction.op)) continue;
    times[i] = to_nanoseconds(
        compute(instruction.op, program.stages[instruction.stage], program.works[instruction.index]));
  }
  return times;
}

ProgramCosts CostModel::price_sums(const Program& program) const {
  ProgramCosts costs;
  const std::size_t count = program.instructions.size();
  costs.instruction = compute_times(program);
  costs.activation.assign(count, Bytes{});
  costs.workspace.assign(count, Bytes{});
  const bool shared = program.shared_gpus > 0;
  if (shared) costs.bandwidth.assign(count, 0.0);
  std::vector<ModelState> states;
  for (const Stage& stage : program.stages) states.push_back(model_state(stage));
  for (const Group& group : program.groups) {
    ModelState state;
    for (const std::int32_t stage : stages_of(program, group)) state += states[stage];
    costs.model_state.push_back(state);
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      const Stage& stage = program.stages[instruction.stage];
      if (instruction.op == Op::optimizer_step) {
        costs.instruction[i] = to_nanoseconds(optimizer_step(stage));
        if (shared) costs.bandwidth[i] = optimizer_bandwidth(stage);
      } else if (is_compute(instruction.op)) {
        const Work& work = program.works[instruction.index];
        costs.workspace[i] = workspace(instruction.op, stage, work);
        costs.activation[i] = activation_of(instruction.op, stage, work);
        if (shared) costs.bandwidth[i] = bandwidth(instruction.op, stage, work);
      }
    }
  }
  add_hub_buffers(program, costs);
  for (const Message& m : program.messages) costs.message.push_back(to_nanoseconds(message(m, program)));
  for (const Collective& c : program.collectives) {
    costs.collective.push_back(to_nanoseconds(all_reduce(c, program)));
  }
  return costs;
}

}  // namespace dflop
