#include "core/program/reorder.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/program.hpp"
#include "core/program/held_limits.hpp"
#include "core/program/lowering.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

/// A Block is a compute instruction with its messages; all are indices into Program::instructions.
struct Block {
  std::vector<std::int64_t> receives;
  std::int64_t compute = -1;
  std::vector<std::int64_t> sends;
};

/// A BlockKey is op, stage and microbatch.
using BlockKey = std::tuple<Op, std::int32_t, std::int32_t>;

struct GroupBlocks {
  std::vector<BlockKey> order;  ///< as in the list
  std::map<BlockKey, Block> blocks;
  std::vector<std::int64_t> starts;  ///< each all_reduce_start followed by compute
  std::vector<std::int64_t> tail;    ///< instructions that are in no block

  const Block* find(Op op, std::int32_t stage, std::int32_t microbatch) const;
};

using Place = std::pair<std::int32_t, std::int32_t>;  // stage, microbatch

[[noreturn]] void refuse(const Program& program, std::int32_t group, std::int64_t i) {
  const Instruction& instruction = program.instructions[i];
  refuse_input(
      fmt::format("program: group {}, instruction {} ({})", group, i - program.groups[group].begin,
                  to_string(instruction.op)),
      "expected the compute to which this message belongs, of stage {} and microbatch {}, found none",
      instruction.stage, instruction.microbatch);
}

const Block* GroupBlocks::find(Op op, std::int32_t stage, std::int32_t microbatch) const {
  const auto found = blocks.find({op, stage, microbatch});
  return found == blocks.end() ? nullptr : &found->second;
}

/// Divides a group's list into blocks. A receive belongs to the next compute of its stage and microbatch, a
/// send to the last.
/// @pre verify(program) accepts it
/// @throws Error (input) naming the instruction if there is none, or its message names another microbatch.
GroupBlocks take_apart(const Program& program, std::int32_t group) {
  GroupBlocks result;
  std::map<Place, std::vector<std::int64_t>> awaited;  // receives whose compute is yet to follow
  std::map<Place, Block*> latest;
  std::vector<std::int64_t> starts;
  for (std::int64_t i = program.groups[group].begin; i < program.groups[group].end; ++i) {
    const Instruction& instruction = program.instructions[i];
    const Place place(instruction.stage, instruction.microbatch);
    const bool message = is_send(instruction.op) || is_receive(instruction.op);
    if (message && program.messages[instruction.index].microbatch != instruction.microbatch) {
      refuse(program, group, i);
    }
    if (message && is_gathered(program.messages[instruction.index], program)) {
      refuse_input(fmt::format("program: group {}", group),
                   "expected messages without a hub, because messages through a hub cannot be reordered");
    }
    if (is_compute(instruction.op)) {
      const BlockKey key(instruction.op, instruction.stage, instruction.microbatch);
      Block& block = result.blocks[key];
      result.order.push_back(key);
      block.compute = i;
      block.receives = std::exchange(awaited[place], {});
      latest[place] = &block;
      result.starts.insert(result.starts.end(), starts.begin(), starts.end());
      starts.clear();
    } else if (is_receive(instruction.op)) {
      awaited[place].push_back(i);
    } else if (is_send(instruction.op)) {
      if (latest.count(place) == 0) refuse(program, group, i);
      latest[place]->sends.push_back(i);
    } else {
      (instruction.op == Op::all_reduce_start ? starts : result.tail).push_back(i);
    }
  }
  for (const auto& [place, receives] : awaited) {
    if (!receives.empty()) refuse(program, group, receives.front());
  }
  result.tail.insert(result.tail.begin(), starts.begin(), starts.end());
  return result;
}

std::string describe(const OrderStep& step) {
  return fmt::format("{} of stage {}, microbatch {}", to_string(step.op), step.stage, step.microbatch);
}

/// Returns the number of pipeline ranks, which must be numbered from 0 and each have a group.
std::size_t count_ranks(const Program& program) {
  std::set<std::int32_t> ranks;
  for (const Group& group : program.groups) ranks.insert(group.stage);
  const std::int32_t last = ranks.empty() ? -1 : *ranks.rbegin();
  if (last + 1 != static_cast<std::int32_t>(ranks.size())) {
    refuse_input("program", "expected groups on every pipeline rank from 0 to {}, found {} ranks with groups",
                 last, ranks.size());
  }
  return ranks.size();
}

/// Returns the time of the weight part of a whole backward.
Nanoseconds weight_part(Nanoseconds backward, double weight_share) {
  return Nanoseconds(std::llround(static_cast<double>(backward.count()) * weight_share));
}

class Reorderer {
 public:
  Reorderer(const Program& program, const ProgramCosts& costs, const StepOrder& order,
            const Reordering& reordering)
      : old_(program),
        costs_(costs),
        order_(order),
        reordering_(reordering),
        microbatches_(reordering.microbatches > 0 ? reordering.microbatches : program.microbatches) {}

  PricedProgram run() {
    const std::size_t ranks = count_ranks(old_);
    if (old_.microbatches == 0) refuse_input("program", "expected microbatches, found none");
    if (order_.size() != ranks) refuse_input("order", "expected {} ranks, found {}", ranks, order_.size());
    new_.program = old_;
    new_.program.microbatches = microbatches_;
    new_.program.instructions.clear();
    new_.costs.model_state = costs_.model_state;
    new_.costs.collective = costs_.collective;
    copy_messages();
    for (std::size_t g = 0; g < old_.groups.size(); ++g) {
      blocks_ = take_apart(old_, static_cast<std::int32_t>(g));
      rank_ = old_.groups[g].stage;
      check_steps();
      Group& group = new_.program.groups[g];
      group.begin = static_cast<std::int64_t>(new_.program.instructions.size());
      add_list();
      group.end = static_cast<std::int64_t>(new_.program.instructions.size());
    }
    verify(new_.program);
    return std::move(new_);
  }

 private:
  /// Copies the messages of the old program, then the messages of its first repetition, and so on.
  void copy_messages() {
    const int old_count = old_.microbatches;
    new_.program.messages.clear();
    for (int first = 0; first < microbatches_; first += old_count) {
      std::vector<std::int32_t>& places = message_place_.emplace_back(old_.messages.size(), -1);
      for (std::size_t m = 0; m < old_.messages.size(); ++m) {
        Message message = old_.messages[m];
        message.microbatch += first;
        if (message.microbatch >= microbatches_) continue;
        places[m] = static_cast<std::int32_t>(new_.program.messages.size());
        new_.program.messages.push_back(message);
        new_.costs.message.push_back(costs_.message[m]);
      }
    }
  }

  const Block* find(Op op, const OrderStep& step) const {
    return blocks_.find(op, step.stage, step.microbatch % old_.microbatches);
  }

  /// Checks that each step of each of the group's stages occurs once. verify() checks that a microbatch has
  /// either a whole backward or both parts of one, in order.
  void check_steps() const {
    std::set<BlockKey> seen;
    for (const OrderStep& step : order_[rank_]) {
      const bool known = step.microbatch >= 0 && step.microbatch < microbatches_ && has_work(step);
      if (!known) refuse_input(place(), "expected a step of this rank, found {}", describe(step));
      if (!seen.emplace(step.op, step.stage, step.microbatch).second) {
        refuse_input(place(), "expected each step once, found {} twice", describe(step));
      }
    }
    for (const auto& [op, stage, microbatch] : blocks_.order) {
      if (op != Op::forward) continue;
      for (int j = microbatch; j < microbatches_; j += old_.microbatches) {
        if (seen.count({op, stage, j}) > 0) continue;
        refuse_input(place(), "expected {}, found none", describe({op, stage, j}));
      }
    }
  }

  bool has_work(const OrderStep& step) const {
    if (find(step.op, step) != nullptr) return true;
    if (step.op == Op::backward) {
      return find(Op::backward_input, step) != nullptr && find(Op::backward_weight, step) != nullptr;
    }
    const bool part = step.op == Op::backward_input || step.op == Op::backward_weight;
    if (!part || find(Op::backward, step) == nullptr) return false;
    if (reordering_.knows_shares()) return true;
    refuse_input(
        place(),
        "expected split backwards, found whole ones; give the fraction of one that is the weight part");
  }

  std::string place() const { return fmt::format("order: rank {}", rank_); }

  void add_list() {
    const std::vector<OrderStep>& steps = order_[rank_];
    std::vector<std::size_t> last_backward(old_.stages.size(), steps.size());
    for (std::size_t k = 0; k < steps.size(); ++k) {
      const bool weights = steps[k].op == Op::backward || steps[k].op == Op::backward_weight;
      if (weights) last_backward[steps[k].stage] = k;
    }
    std::vector<std::vector<std::int64_t>> starts(steps.size() + 1);  // per step; the rest at the end
    for (const std::int64_t start : blocks_.starts) {
      starts[last_backward[old_.instructions[start].stage]].push_back(start);
    }
    for (std::size_t k = 0; k < steps.size(); ++k) {
      starts_ = std::move(starts[k]);
      add_step(steps[k]);
    }
    for (const std::int64_t i : starts.back()) copy(i);
    for (const std::int64_t i : blocks_.tail) copy(i);
  }

  void add_step(const OrderStep& step) {
    if (const Block* block = find(step.op, step)) {
      add_messages(block->receives, step);
      const std::int64_t i = block->compute;
      add_compute(step, i, costs_.instruction[i], costs_.activation_of(i), costs_.workspace_of(i));
      add_messages(block->sends, step);
    } else if (step.op == Op::backward) {
      join(*find(Op::backward_input, step), *find(Op::backward_weight, step), step);
    } else {
      split(*find(Op::backward, step), step);
    }
  }

  /// Joins the two parts of a backward. It frees what the forward has kept; nothing that the input part kept
  /// for the weight part is left over. Its workspace is the larger of the parts' workspaces, which is too
  /// much if recomputation brings several layers back, because a whole backward has only one at a time.
  void join(const Block& input, const Block& weight, const OrderStep& step) {
    add_messages(input.receives, step);
    add_messages(weight.receives, step);
    add_compute(step, input.compute, costs_.instruction[input.compute] + costs_.instruction[weight.compute],
                costs_.activation_of(weight.compute) - costs_.activation_of(input.compute),
                std::max(costs_.workspace_of(input.compute), costs_.workspace_of(weight.compute)));
    add_messages(input.sends, step);
    add_messages(weight.sends, step);
  }

  /// Splits a whole backward into two parts. Reordering::split_memory has the memory that the input part
  /// keeps.
  void split(const Block& whole, const OrderStep& step) {
    const std::int64_t i = whole.compute;
    const Nanoseconds weight = weight_part(costs_.instruction[i], *reordering_.share_of(step.stage));
    const Bytes workspace = costs_.workspace_of(i);
    const SplitMemory memory = reordering_.split_memory.empty() ? SplitMemory{{}, workspace, workspace}
                                                                : reordering_.split_memory[i];
    if (step.op == Op::backward_weight) {
      return add_compute(step, i, weight, costs_.activation_of(i) + memory.kept, memory.weight_workspace);
    }
    add_messages(whole.receives, step);
    add_compute(step, i, costs_.instruction[i] - weight, memory.kept, memory.input_workspace);
    add_messages(whole.sends, step);
  }

  void add_messages(const std::vector<std::int64_t>& messages, const OrderStep& step) {
    for (const std::int64_t i : messages) {
      Instruction instruction = old_.instructions[i];
      instruction.microbatch = step.microbatch;
      instruction.index = message_place_[step.microbatch / old_.microbatches][instruction.index];
      add(instruction, Nanoseconds(0), Bytes{}, Bytes{});
    }
  }

  /// Adds compute after the starts that take effect during it: nothing may come between them and the compute.
  void add_compute(const OrderStep& step, std::int64_t of, Nanoseconds duration, Bytes activation,
                   Bytes workspace) {
    for (const std::int64_t i : starts_) copy(i);
    Instruction instruction = old_.instructions[of];
    instruction.op = step.op;
    instruction.microbatch = step.microbatch;
    add(instruction, duration, activation, workspace);
  }

  void copy(std::int64_t i) {
    add(old_.instructions[i], costs_.instruction[i], costs_.activation_of(i), costs_.workspace_of(i));
  }

  void add(const Instruction& instruction, Nanoseconds duration, Bytes activation, Bytes workspace) {
    new_.program.instructions.push_back(instruction);
    new_.costs.instruction.push_back(duration);
    if (!costs_.activation.empty()) new_.costs.activation.push_back(activation);
    if (!costs_.workspace.empty()) new_.costs.workspace.push_back(workspace);
  }

  const Program& old_;
  const ProgramCosts& costs_;
  const StepOrder& order_;
  const Reordering& reordering_;
  const int microbatches_;
  std::size_t rank_ = 0;  ///< rank of the group that is being made, index into blocks_
  GroupBlocks blocks_;
  std::vector<std::int64_t> starts_;                      ///< of the step that is being added
  std::vector<std::vector<std::int32_t>> message_place_;  ///< per repetition and old message
  PricedProgram new_;
};

/// Sets ranks and chunks from the last rank; ranks before it with fewer stages are leading ones.
void set_ranks(PipelineShape& shape, const StepOrder& order, int stages) {
  const int ranks = static_cast<int>(order.size());
  std::set<std::int32_t> of_last;
  if (ranks > 0) {
    for (const OrderStep& step : order.back()) of_last.insert(step.stage);
  }
  shape.chunks = std::max(1, static_cast<int>(of_last.size()));
  if (shape.chunks > 1) shape.leading = std::max(0, (ranks * shape.chunks - stages) / (shape.chunks - 1));
  shape.ranks = ranks - shape.leading;
}

/// Returns the times of all steps of an order that splits backwards.
StepTimes step_times(const Program& program, const ProgramCosts& costs, int microbatches,
                     const Reordering& reordering) {
  const std::size_t cells = program.stages.size() * microbatches;
  StepTimes times;
  for (auto* table : {&times.forward, &times.backward, &times.backward_weight, &times.message}) {
    table->assign(cells, Nanoseconds(0));
  }
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const GroupBlocks blocks = take_apart(program, static_cast<std::int32_t>(g));
    for (const auto& [key, block] : blocks.blocks) {
      const auto& [op, stage, microbatch] = key;
      const Nanoseconds duration = costs.instruction[block.compute];
      const Nanoseconds weight = op == Op::backward_weight ? duration
                                 : op == Op::backward
                                     ? weight_part(duration, reordering.share_of(stage).value_or(0))
                                     : Nanoseconds(0);
      for (int j = microbatch; j < microbatches; j += program.microbatches) {
        const std::size_t cell = static_cast<std::size_t>(stage) * microbatches + j;
        const auto raise = [&](std::vector<Nanoseconds>& table, Nanoseconds time) {
          table[cell] = std::max(table[cell], time);
        };
        raise(op == Op::forward ? times.forward : times.backward, duration - weight);
        raise(times.backward_weight, weight);
        if (op != Op::forward) continue;
        for (const std::int64_t send : block.sends) {
          raise(times.message, costs.message[program.instructions[send].index]);
        }
      }
    }
  }
  return times;
}

}  // namespace

PricedProgram reorder(const Program& program, const ProgramCosts& costs, const StepOrder& order,
                      const Reordering& reordering) {
  return Reorderer(program, costs, order, reordering).run();
}

StepOrder step_order(const Program& program) {
  StepOrder order(count_ranks(program));
  std::vector<bool> known(order.size());
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const std::int32_t rank = program.groups[g].stage;
    std::vector<OrderStep> steps;
    for (const Instruction& i : program.instructions_of(program.groups[g])) {
      if (is_compute(i.op)) steps.push_back({i.op, i.stage, i.microbatch});
    }
    if (known[rank] && steps != order[rank]) {
      refuse_input(fmt::format("program: group {}", g),
                   "expected the same order in all groups of pipeline rank {}, found different orders", rank);
    }
    known[rank] = true;
    order[rank] = std::move(steps);
  }
  return order;
}

StepOrder order_of_kind(const Program& program, const ProgramCosts& costs, OrderKind kind,
                        const Reordering& reordering) {
  const StepOrder present = step_order(program);
  PipelineShape shape;
  shape.kind = kind;
  set_ranks(shape, present, static_cast<int>(program.stages.size()));
  shape.microbatches = reordering.microbatches > 0 ? reordering.microbatches : program.microbatches;
  if (shape.spreads_encoder()) {
    refuse_input("program", "{} cannot order this work, because it moves the encoder to all ranks",
                 to_string(kind));
  }
  validate(shape, "program");
  bool whole = false;
  for (std::size_t rank = 0; rank < present.size(); ++rank) {
    for (const OrderStep& step : present[rank]) {
      whole = whole || step.op == Op::backward;
      const int expected = rank_of_stage(shape, step.stage);
      if (expected == static_cast<int>(rank)) continue;
      refuse_input("program", "expected stage {} on pipeline rank {} for {}, found it on {}", step.stage,
                   expected, to_string(kind), rank);
    }
  }
  if (splits_backward(kind) && whole && !reordering.knows_shares()) {
    refuse_input(
        "program",
        "expected split backward steps for {}, found whole ones; give the fraction of one that is the "
        "weight part",
        to_string(kind));
  }
  OrderTables tables{step_times(program, costs, shape.microbatches, reordering), {}};
  if (traits(kind).reads_limits && reordering.usable_memory) {
    tables.most_held = held_limits(program, costs, shape.microbatches, *reordering.usable_memory);
  }
  return pipeline_steps(shape, tables);
}

std::optional<OrderKind> order_kind_of(const Program& program, const ProgramCosts& costs,
                                       std::optional<Bytes> usable_memory) {
  const StepOrder present = step_order(program);
  Reordering same;
  same.usable_memory = usable_memory;
  for (const OrderKind kind : plainest_first(all_order_kinds())) {
    try {
      if (order_of_kind(program, costs, kind, same) == present) return kind;
    } catch (const Error&) {
      continue;  // such a pipeline cannot have this order
    }
  }
  return std::nullopt;
}

}  // namespace dflop
