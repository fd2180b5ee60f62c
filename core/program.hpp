// A Program lists what every tp group does, instruction by instruction. The simulator and the live backend
// run the same Programs.
#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

enum class Op : std::uint8_t {
  forward,
  backward,         ///< gradients of inputs and weights together
  backward_input,   ///< gradients of inputs only (zero-bubble orders)
  backward_weight,  ///< gradients of weights only; frees the activations
  send,             ///< asynchronous: the group continues at once
  receive,          ///< the group waits until the message has arrived
  reshard_send,     ///< send between encoder and LLM groups of different dp
  reshard_receive,
  all_reduce,  ///< sum over ranks, such as gradients over dp; starts when all participants are ready, and the
               ///< group waits for its end
  all_reduce_start,  ///< the group enters and continues at once
  all_reduce_wait,   ///< the group waits for the end of the all-reduce that it has started
  optimizer_step,
};

template <>
inline constexpr NameTable<Op, 12> kNames<Op> = {{{Op::forward, "forward"},
                                                  {Op::backward, "backward"},
                                                  {Op::backward_input, "backward_input"},
                                                  {Op::backward_weight, "backward_weight"},
                                                  {Op::send, "send"},
                                                  {Op::receive, "receive"},
                                                  {Op::reshard_send, "reshard_send"},
                                                  {Op::reshard_receive, "reshard_receive"},
                                                  {Op::all_reduce, "all_reduce"},
                                                  {Op::all_reduce_start, "all_reduce_start"},
                                                  {Op::all_reduce_wait, "all_reduce_wait"},
                                                  {Op::optimizer_step, "optimizer_step"}}};

constexpr bool is_compute(Op op) {
  return op == Op::forward || op == Op::backward || op == Op::backward_input || op == Op::backward_weight;
}
constexpr bool is_send(Op op) {
  return op == Op::send || op == Op::reshard_send;
}
constexpr bool is_receive(Op op) {
  return op == Op::receive || op == Op::reshard_receive;
}
constexpr bool is_collective(Op op) {
  return op == Op::all_reduce || op == Op::all_reduce_start || op == Op::all_reduce_wait;
}
/// Returns whether the group enters its collective with this instruction.
constexpr bool enters_collective(Op op) {
  return op == Op::all_reduce || op == Op::all_reduce_start;
}

/// Returns whether the group has its collective's sum after this instruction.
constexpr bool ends_collective(Op op) {
  return op == Op::all_reduce || op == Op::all_reduce_wait;
}

/// A Stage describes a pipeline stage: everything that its cost depends on except the work.
struct Stage {
  int encoder_layers = 0;
  int llm_layers = 0;
  bool connector = false;  ///< after the last encoder layer
  bool embedding = false;  ///< before the first LLM layer
  bool head = false;       ///< vocabulary head and loss, after the last LLM layer
  /// Patches or sounds become encoder rows here, before the first encoder layer. Set only for models with an
  /// architecture; other models do not price this step.
  bool front = false;
  int tp = 1;
  int dp = 1;
  /// A group of copies * tp ranks holds this many copies of the stage, each on tp ranks, and each copy
  /// computes a part of every microbatch. Above 1 only for the encoder of a colocated plan.
  int copies = 1;
  Recomputation recomputation = Recomputation::full;
  bool zero1 = true;
  bool sequence_parallel = true;
  OptimizerStates optimizer_states = OptimizerStates::fp32;
  double share = 1;  ///< fraction requested of each GPU's multiprocessors; below 1 in shared plans
  TrainedParts trained = {};

  /// Returns whether the stage has trained parameters.
  bool is_trained() const {
    return (encoder_layers > 0 && trained.encoder) || (connector && trained.connector) ||
           (llm_layers > 0 && trained.in_llm());
  }

  auto operator<=>(const Stage&) const = default;
};

/// Returns the second encoder and its connector as a stage of ModelSpec::of_second().
/// @pre the model has a second encoder, and the stage has the connectors
inline Stage stage_of_second(const Stage& stage, const ModelSpec& model) {
  Stage second = stage;
  second.encoder_layers = model.second->encoder.layers;
  second.llm_layers = 0;
  second.embedding = second.head = false;
  second.front = model.architecture.has_value();
  return second;
}

/// Returns whether gradients go back over the boundary after stage `boundary`: whether that stage or an
/// earlier one is trained.
inline bool gradients_return(std::span<const Stage> stages, std::size_t boundary) {
  return std::any_of(stages.begin(), stages.begin() + static_cast<std::ptrdiff_t>(boundary) + 1,
                     [](const Stage& stage) { return stage.is_trained(); });
}

/// A Work is what one group computes for one microbatch. If the group has several copies of the encoder, each
/// count of the encoder's work is the largest of any copy (largest_shares()).
struct Work {
  Workload encoder;
  Workload llm;

  /// Returns whether a stage of the model runs its second encoder on this work.
  bool has_second(const Stage& stage, const ModelSpec& model) const {
    return model.second && stage.connector && encoder.second.tokens > 0;
  }
  /// Returns the second encoder's work, for stage_of_second().
  Work of_second() const { return {encoder.of_second(), {}}; }

  auto operator<=>(const Work&) const = default;
};

/// A Message goes from one group to another.
struct Message {
  std::int32_t source = 0;       ///< group
  std::int32_t destination = 0;  ///< group
  std::int32_t microbatch = 0;
  Bytes bytes;       ///< of the whole message, before it is split over the ranks of the groups
  Bytes port_bytes;  ///< bytes that the busier end of the message moves in the same exchange, counting all
                     ///< copies (hub_copies()); = bytes outside a reshard
};

/// A CollectiveSum says what a collective sums.
enum class CollectiveSum : std::uint8_t {
  gradients,    ///< of one stage, over the groups that hold it
  joined_ends,  ///< gradients of an embedding and a head that share one matrix but are on different ranks
  norm,         ///< the squares of all gradients, for their norm, and the losses, over all groups
};

/// A CollectiveSum::norm has two fp32 numbers: the sum of the gradients' squares, and the sum of the losses.
inline constexpr Bytes kNormBytes{2 * kFp32Bytes};

/// A Collective is an operation over several groups.
struct Collective {
  std::vector<std::int32_t> groups;
  Bytes bytes;  ///< per rank
  /// Each group takes part with this many ranks for each sum, because it holds as many copies of the stage
  /// (Stage::copies).
  int copies = 1;
  /// An all_reduce_start enters the collective after this fraction of the next compute instruction, because a
  /// bucket of gradients is complete before its backward ends. 0: at once.
  double ready = 0;
  /// Program files store this kind of sum. Timelines do not, because a replay only needs to know that groups
  /// meet; they recognize a norm by its bytes.
  CollectiveSum sum = CollectiveSum::gradients;
  /// A group runs the collectives of one queue one after another, and different queues concurrently, like a
  /// GPU's streams. Only recordings have several queues: one for each process group, which has its own
  /// stream.
  std::int32_t queue = 0;
  /// These collectives, of any queue, must end before this one begins. Only recordings have any.
  std::vector<std::int32_t> after = {};
  /// This number distinguishes collectives that move their bytes differently, such as all-to-all and
  /// all-reduce.
  std::int32_t operation = 0;

  /// Returns the number of ranks that add up each value.
  int participants() const { return static_cast<int>(groups.size()) * copies; }
};

/// An Instruction has only 12 bytes, because programs of large clusters have tens of millions of
/// instructions.
struct Instruction {
  Op op = Op::forward;
  std::uint16_t stage = 0;
  std::int32_t microbatch = -1;  ///< -1 if none
  /// An index into works (compute), messages (send, receive) or collectives (all_reduce*); -1 for
  /// optimizer_step.
  std::int32_t index = -1;

  bool operator==(const Instruction&) const = default;
};

/// A Group is the ranks of one tp group. They run in lockstep, so the slowest sets the time.
struct Group {
  std::int32_t first_rank = 0;
  std::int32_t ranks = 1;  ///< = tp
  std::int32_t stage = 0;
  std::int32_t dp_rank = 0;
  std::int64_t begin = 0;  ///< its instructions: [begin, end) of Program::instructions
  std::int64_t end = 0;
};

/// A Program has the instruction lists of all groups, in flat arrays.
struct Program {
  int microbatches = 0;
  std::vector<Stage> stages;
  std::vector<Group> groups;
  std::vector<Instruction> instructions;
  std::vector<Work> works;
  std::vector<Message> messages;
  std::vector<Collective> collectives;
  /// The first rank of this group forwards all messages between encoder and LLM (Reshard::hub); -1: none.
  std::int32_t hub = -1;
  /// This is the number of GPUs of a shared plan. Ranks r and r + shared_gpus share GPU r. 0: each rank has
  /// its own GPU.
  std::int32_t shared_gpus = 0;

  /// Returns the GPU of a rank.
  int device_of(int rank) const { return dflop::device_of(rank, shared_gpus); }

  /// Returns the GPU of a group's first rank. Its other ranks are on the GPUs after it.
  int first_device(const Group& group) const { return device_of(group.first_rank); }

  /// Returns the instructions of a group, in order.
  std::span<const Instruction> instructions_of(const Group& group) const {
    return {instructions.data() + group.begin, instructions.data() + group.end};
  }

  /// Returns the stage of the group with this index.
  const Stage& stage_of(std::int32_t group) const { return stages[groups[group].stage]; }

  /// Returns the number of collective queues.
  std::int32_t queues() const {
    std::int32_t queues = 1;
    for (const Collective& collective : collectives) queues = std::max(queues, collective.queue + 1);
    return queues;
  }

  /// Returns the number of ranks.
  int ranks() const {
    int ranks = 0;
    for (const Group& group : groups) ranks = std::max(ranks, group.first_rank + group.ranks);
    return ranks;
  }

  /// Returns the number of GPUs.
  int gpus() const { return shared_gpus > 0 ? shared_gpus : ranks(); }
};

/// Returns whether a message goes between the dp ranks of one stage, for example to or from a hub.
inline bool is_gathered(const Message& message, const Program& program) {
  return program.groups[message.source].stage == program.groups[message.destination].stage;
}

/// Returns how many copies of a message pass through the hub's one rank. If the hub sends the message, this
/// is one copy for each rank of the receiving group; if the hub receives it, one copy. 0 if the message is
/// split over the ranks of its groups instead. This is so if neither end is a hub, and if the hub's group
/// exchanges the message as a stage of the encoder's pipeline.
inline int hub_copies(const Message& message, const Program& program) {
  if (program.hub < 0 || (message.source != program.hub && message.destination != program.hub)) return 0;
  const bool sends = message.source == program.hub;
  const Group& other = program.groups[sends ? message.destination : message.source];
  if (other.stage < program.groups[program.hub].stage) return 0;
  return sends ? other.ranks : 1;
}

/// Returns whether a message stays on its GPUs: each rank exchanges data only with a rank on its own GPU. It
/// does not if one group has more ranks than the other or a hub's rank serves several ranks, because most of
/// a rank's data is then on other GPUs.
inline bool stays_on_gpus(const Message& message, const Program& program) {
  if (program.shared_gpus == 0 || message.source == message.destination) return false;
  const Group& source = program.groups[message.source];
  const Group& destination = program.groups[message.destination];
  const int copies = hub_copies(message, program);
  return source.first_rank != destination.first_rank &&
         program.first_device(source) == program.first_device(destination) &&
         (copies == 1 || (copies == 0 && source.ranks == destination.ranks));
}

/// Returns the stages that a group runs, each once.
inline std::vector<std::int32_t> stages_of(const Program& program, const Group& group) {
  std::vector<std::int32_t> stages = {group.stage};
  for (const Instruction& instruction : program.instructions_of(group)) {
    const std::int32_t stage = instruction.stage;
    if (std::find(stages.begin(), stages.end(), stage) == stages.end()) stages.push_back(stage);
  }
  return stages;
}

}  // namespace dflop
