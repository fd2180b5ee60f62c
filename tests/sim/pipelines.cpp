#include "tests/sim/pipelines.hpp"
#include "core/order/pipeline_order.hpp"

#include <cstddef>
#include <utility>
#include <vector>

#include "core/program/lowering.hpp"

namespace dflop::testing {
namespace {

class PipelineBuilder {
 public:
  explicit PipelineBuilder(const Pipeline& pipeline) : pipeline_(pipeline) {}

  PricedProgram build() {
    Program& program = result_.program;
    program.microbatches = pipeline_.microbatches;
    program.stages.assign(pipeline_.stages, Stage{});
    program.works.assign(1, Work{});
    add_messages();
    const auto steps = pipeline_steps({pipeline_.order, pipeline_.stages, 1, pipeline_.microbatches});
    for (int stage = 0; stage < pipeline_.stages; ++stage) add_group(stage, steps[stage]);
    return std::move(result_);
  }

 private:
  /// Boundary b lies between stages b and b + 1: all activations of a boundary, then all its gradients.
  std::int32_t message_index(int boundary, int microbatch, bool gradient) const {
    return (2 * boundary + (gradient ? 1 : 0)) * pipeline_.microbatches + microbatch;
  }

  void add_messages() {
    for (int boundary = 0; boundary + 1 < pipeline_.stages; ++boundary) {
      for (const bool gradient : {false, true}) {
        for (int j = 0; j < pipeline_.microbatches; ++j) {
          const std::int32_t source = gradient ? boundary + 1 : boundary;
          const std::int32_t destination = gradient ? boundary : boundary + 1;
          result_.program.messages.push_back({source, destination, j, Bytes{1'000'000}, Bytes{1'000'000}});
          result_.costs.message.push_back(pipeline_.message);
        }
      }
    }
  }

  void add_group(int stage, const std::vector<OrderStep>& steps) {
    Group group;
    group.first_rank = stage;
    group.stage = stage;
    group.begin = static_cast<std::int64_t>(result_.program.instructions.size());
    for (const OrderStep& step : steps) {
      const bool backward = step.op == Op::backward;
      const int from = backward ? stage : stage - 1;  // the boundary of the input
      const int to = backward ? stage - 1 : stage;
      const auto is_boundary = [this](int b) { return b >= 0 && b + 1 < pipeline_.stages; };
      if (is_boundary(from)) add(Op::receive, stage, step, message_index(from, step.microbatch, backward));
      add(step.op, stage, step, 0);
      if (is_boundary(to)) add(Op::send, stage, step, message_index(to, step.microbatch, backward));
    }
    group.end = static_cast<std::int64_t>(result_.program.instructions.size());
    result_.program.groups.push_back(group);
    result_.costs.model_state.push_back({pipeline_.model_state, {}, {}});
  }

  void add(Op op, int stage, const OrderStep& step, std::int32_t index) {
    result_.program.instructions.push_back({op, static_cast<std::uint16_t>(stage), step.microbatch, index});
    const bool compute = is_compute(op);
    const Nanoseconds duration = op == Op::forward ? pipeline_.forward : pipeline_.backward;
    result_.costs.instruction.push_back(compute ? duration : Nanoseconds(0));
    result_.costs.activation.push_back(compute ? pipeline_.activation : Bytes{});
    result_.costs.workspace.push_back(compute ? pipeline_.workspace : Bytes{});
  }

  const Pipeline& pipeline_;
  PricedProgram result_;
};

}  // namespace

PricedProgram make_program(const std::vector<std::vector<Instruction>>& lists, std::vector<Message> messages,
                           std::vector<Collective> collectives) {
  PricedProgram priced;
  Program& program = priced.program;
  program.microbatches = 1;
  program.works.assign(1, Work{});
  for (std::size_t g = 0; g < lists.size(); ++g) {
    Group group;
    group.first_rank = group.stage = static_cast<std::int32_t>(g);
    group.begin = static_cast<std::int64_t>(program.instructions.size());
    for (Instruction instruction : lists[g]) {
      instruction.stage = static_cast<std::uint16_t>(g);
      program.instructions.push_back(instruction);
    }
    group.end = static_cast<std::int64_t>(program.instructions.size());
    program.groups.push_back(group);
    program.stages.emplace_back();
  }
  priced.costs.instruction.assign(program.instructions.size(), Nanoseconds(0));
  priced.costs.activation.assign(program.instructions.size(), Bytes{});
  priced.costs.workspace.assign(program.instructions.size(), Bytes{});
  priced.costs.message.assign(messages.size(), Nanoseconds(0));
  priced.costs.collective.assign(collectives.size(), Nanoseconds(0));
  priced.costs.model_state.assign(lists.size(), ModelState{});
  program.messages = std::move(messages);
  program.collectives = std::move(collectives);
  return priced;
}

PricedProgram make_pipeline(const Pipeline& pipeline) {
  return PipelineBuilder(pipeline).build();
}

}  // namespace dflop::testing
