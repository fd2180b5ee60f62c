#include "core/program/lowering.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/program/collective_order.hpp"
#include "core/refuse.hpp"

namespace dflop {
namespace {

/// Rejects an instruction of a group; `instruction` is -1 if the group itself is wrong.
template <typename... Values>
[[noreturn]] void refuse(const Program& program, std::size_t group, std::int64_t instruction,
                         fmt::format_string<Values...> message, Values&&... values) {
  std::string place = fmt::format("program: group {}", group);
  if (instruction >= 0) {
    place += fmt::format(", instruction {} ({})", instruction - program.groups[group].begin,
                         to_string(program.instructions[instruction].op));
  }
  refuse_input(place, message, std::forward<Values>(values)...);
}

/// Returns the size of the table that an instruction's index points into; 0 for none.
std::size_t table_size(const Program& program, Op op) {
  if (is_compute(op)) return program.works.size();
  if (is_send(op) || is_receive(op)) return program.messages.size();
  return is_collective(op) ? program.collectives.size() : 0;
}

void check_ranges(const Program& program) {
  if (program.microbatches < 0)
    refuse_input("program", "expected at least 0 microbatches, found {}", program.microbatches);
  std::int64_t expected_begin = 0;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    if (group.begin != expected_begin || group.end < group.begin ||
        group.end > static_cast<std::int64_t>(program.instructions.size())) {
      refuse(program, g, -1,
             "its instructions must begin where the instructions of the previous group end, and end within "
             "the program");
    }
    expected_begin = group.end;
    if (group.stage < 0 || static_cast<std::size_t>(group.stage) >= program.stages.size()) {
      refuse(program, g, -1, "stage {} does not exist", group.stage);
    }
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.stage >= program.stages.size()) refuse(program, g, i, "its stage does not exist");
      if (instruction.op == Op::optimizer_step) continue;
      if (instruction.index < 0 ||
          static_cast<std::size_t>(instruction.index) >= table_size(program, instruction.op)) {
        refuse(program, g, i, "index {} is out of range", instruction.index);
      }
      if (is_compute(instruction.op) &&
          (instruction.microbatch < 0 || instruction.microbatch >= program.microbatches)) {
        refuse(program, g, i, "microbatch {} does not exist", instruction.microbatch);
      }
    }
  }
  if (expected_begin != static_cast<std::int64_t>(program.instructions.size())) {
    refuse_input("program", "instructions from {} on belong to no group", expected_begin);
  }
  if (program.hub >= static_cast<std::int64_t>(program.groups.size())) {
    refuse_input("program", "expected a group as the hub, but group {} does not exist", program.hub);
  }
  for (const Message& message : program.messages) {
    if (message.microbatch < 0 || message.microbatch >= program.microbatches) {
      refuse_input("program", "a message names microbatch {}, which does not exist", message.microbatch);
    }
    for (const std::int32_t end : {message.source, message.destination}) {
      if (end < 0 || static_cast<std::size_t>(end) >= program.groups.size()) {
        refuse_input("program", "a message names group {}, which does not exist", end);
      }
    }
  }
}

/// Checks that each message is sent once by its source and received once by its destination, in the same
/// order on each channel (from one stage of a group to one stage of another).
void check_messages(const Program& program) {
  std::vector<std::uint8_t> sent(program.messages.size());
  std::vector<std::int64_t> received(program.messages.size(), -1);
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_send(instruction.op) && !is_receive(instruction.op)) continue;
      const Message& message = program.messages[instruction.index];
      const bool sends = is_send(instruction.op);
      if (static_cast<std::size_t>(sends ? message.source : message.destination) != g) {
        refuse(program, g, i, "message {} belongs to another group", instruction.index);
      }
      const bool twice = sends ? std::exchange(sent[instruction.index], 1) != 0
                               : std::exchange(received[instruction.index], i) >= 0;
      if (twice) refuse(program, g, i, "message {} occurs twice", instruction.index);
    }
  }
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const Message& message = program.messages[m];
    if (sent[m] == 0) refuse(program, message.source, -1, "message {} is never sent", m);
    if (received[m] < 0) refuse(program, message.destination, -1, "message {} is never received", m);
  }
  for (const Group& group : program.groups) {
    // The place where the last message of a channel was received, by both stages and the destination.
    std::map<std::tuple<int, std::int32_t, int>, std::int64_t> last;
    for (std::int64_t i = group.begin; i < group.end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_send(instruction.op)) continue;
      const std::int32_t destination = program.messages[instruction.index].destination;
      const std::int64_t place = received[instruction.index];
      std::int64_t& before = last[{instruction.stage, destination, program.instructions[place].stage}];
      if (place < before) {
        refuse(program, destination, place, "received before a message sent earlier on this channel");
      }
      before = place;
    }
  }
}

/// Checks that if there is a hub, it sends or receives every resharded message.
void check_hub(const Program& program) {
  if (program.hub < 0) return;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (instruction.op != Op::reshard_send) continue;
      const Message& message = program.messages[instruction.index];
      if (message.source == program.hub || message.destination == program.hub) continue;
      refuse(program, g, i, "message {} bypasses the hub, group {}", instruction.index, program.hub);
    }
  }
}

/// Checks that each shared GPU has two ranks, one of each module, and that no group has ranks of both.
void check_shared_gpus(const Program& program) {
  const int gpus = program.shared_gpus;
  if (gpus < 0) refuse_input("program", "{} shared GPUs", gpus);
  if (gpus == 0) return;
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    const Group& group = program.groups[g];
    const int last = group.first_rank + group.ranks - 1;
    if (group.first_rank / gpus != last / gpus || last >= 2 * gpus) {
      refuse(program, g, -1, "expected ranks {} to {} in the same module, on {} shared GPUs",
             group.first_rank, last, gpus);
    }
  }
}

/// A StagePasses has the state of each microbatch of one stage in one group.
class StagePasses {
 public:
  explicit StagePasses(std::size_t microbatches) : state_(microbatches, untouched) {}

  /// Returns false if the instruction is out of order.
  bool advance(const Instruction& instruction) {
    State& now = state_[instruction.microbatch];
    const State expected = instruction.op == Op::forward           ? untouched
                           : instruction.op == Op::backward_weight ? input_done
                                                                   : forward_done;
    if (now != expected) return false;
    now = instruction.op == Op::forward          ? forward_done
          : instruction.op == Op::backward_input ? input_done
                                                 : complete;
    return true;
  }
  bool is_begun(std::size_t microbatch) const { return state_[microbatch] != untouched; }
  bool is_complete(std::size_t microbatch) const { return state_[microbatch] == complete; }

 private:
  enum State : std::uint8_t { untouched, forward_done, input_done, complete };
  std::vector<State> state_;
};

/// Checks that a group completes what it begins, forward and then backward (whole, or input before weight),
/// and that exactly one of the groups of a dp rank that run a stage does each microbatch.
void check_compute_order(const Program& program) {
  const std::size_t microbatches = program.microbatches;
  std::map<std::pair<std::size_t, std::int32_t>, std::vector<bool>> done;  // per stage and dp rank
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    std::map<std::size_t, StagePasses> passes;  // per stage
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (!is_compute(instruction.op)) continue;
      if (passes.try_emplace(instruction.stage, microbatches).first->second.advance(instruction)) continue;
      refuse(program, g, i, "microbatch {} out of order on this stage", instruction.microbatch);
    }
    for (const auto& [s, stage] : passes) {
      std::vector<bool>& of_chain = done[{s, program.groups[g].dp_rank}];
      of_chain.resize(microbatches, false);
      for (std::size_t j = 0; j < microbatches; ++j) {
        if (!stage.is_begun(j)) continue;
        if (!stage.is_complete(j)) refuse(program, g, -1, "microbatch {} is not completed on stage {}", j, s);
        if (of_chain[j]) refuse(program, g, -1, "microbatch {} runs twice on stage {}", j, s);
        of_chain[j] = true;
      }
    }
  }
  for (const auto& [chain, of_chain] : done) {
    const auto missing = std::find(of_chain.begin(), of_chain.end(), false);
    if (missing == of_chain.end()) continue;
    refuse_input("program", "microbatch {} is not completed on stage {} of dp rank {}",
                 missing - of_chain.begin(), chain.first, chain.second);
  }
}

/// Checks that if an all_reduce_start takes effect during compute, that compute follows, and that starts
/// before the same compute take effect in order.
void check_late_entries(const Program& program) {
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    double latest = 0;
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      const Op op = program.instructions[i].op;
      if (op == Op::all_reduce_start) {
        const double ready = program.collectives[program.instructions[i].index].ready;
        if (!(ready >= latest && ready <= 1))
          refuse(program, g, i, "expected values of 'ready' from 0 to 1, in increasing order");
        latest = ready;
      } else if (latest > 0 && !is_compute(op)) {
        refuse(program, g, i, "expected compute after the all_reduce_start before it");
      } else {
        latest = 0;
      }
    }
    if (latest > 0) refuse(program, g, -1, "expected compute after its last all_reduce_start");
  }
}

/// Checks that each participant, and no other group, enters its collective once, and that a group that does
/// not wait at once waits exactly once later.
void check_collectives(const Program& program) {
  std::vector<std::vector<std::int32_t>> entered(program.collectives.size());
  std::vector<std::uint8_t> awaited(program.collectives.size());
  for (std::size_t g = 0; g < program.groups.size(); ++g) {
    std::vector<std::int32_t> open;
    for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
      const Instruction& instruction = program.instructions[i];
      if (enters_collective(instruction.op))
        entered[instruction.index].push_back(static_cast<std::int32_t>(g));
      if (instruction.op == Op::all_reduce_start) open.push_back(instruction.index);
      if (instruction.op != Op::all_reduce_wait) continue;
      const auto started = std::find(open.begin(), open.end(), instruction.index);
      if (started == open.end()) refuse(program, g, i, "waits for a collective that it has not started");
      open.erase(started);
    }
    if (!open.empty()) refuse(program, g, -1, "never waits for collective {}", open.front());
  }
  for (std::size_t c = 0; c < entered.size(); ++c) {
    std::vector<std::int32_t> expected = program.collectives[c].groups;
    std::sort(expected.begin(), expected.end());
    if (entered[c] != expected) {  // entered is in group order
      refuse_input("program", "expected each participant to enter collective {} once", c);
    }
    const int copies = program.collectives[c].copies;
    for (const std::int32_t g : program.collectives[c].groups) {
      if (copies >= 1 && program.groups[g].ranks % copies == 0) continue;
      refuse(program, g, -1,
             "expected collective {} to have a number of copies that divides {} ranks, found {}", c,
             program.groups[g].ranks, copies);
    }
  }
}

/// A ProgressRun advances every group as far as it can go, ignoring time, until nothing moves.
class ProgressRun {
 public:
  explicit ProgressRun(const Program& program)
      : program_(program),
        order_(program),
        entered_(program.groups.size(), -1),
        receivers_(program.messages.size(), kNotSent),
        ended_(program.collectives.size()),
        queued_(program.groups.size()) {
    for (const Group& group : program.groups) next_.push_back(group.begin);
  }

  void run() {
    for (std::size_t g = program_.groups.size(); g-- > 0;) wake(static_cast<std::int32_t>(g));
    while (!ready_.empty()) {
      const std::int32_t g = ready_.back();
      ready_.pop_back();
      queued_[g] = 0;
      while (next_[g] < program_.groups[g].end && pass(g, program_.instructions[next_[g]])) ++next_[g];
    }
    for (std::size_t g = 0; g < program_.groups.size(); ++g) {
      if (next_[g] < program_.groups[g].end)
        refuse(program_, g, next_[g], "deadlock: this is never reached or never ends");
    }
  }

 private:
  void wake(std::int32_t g) {
    if (queued_[g] == 0) ready_.push_back(g);
    queued_[g] = 1;
  }

  /// Returns whether the group passes an instruction. If not, the event it waits for wakes it.
  bool pass(std::int32_t g, const Instruction& instruction) {
    if (is_send(instruction.op)) deliver(instruction.index);
    if (is_receive(instruction.op)) return receive(g, receivers_[instruction.index]);
    if (enters_collective(instruction.op)) enter(g, instruction.index);
    if (ends_collective(instruction.op)) return ended_[instruction.index] != 0;
    return true;
  }

  void deliver(std::int32_t message) {
    const std::int32_t waiting = std::exchange(receivers_[message], kSent);
    if (waiting >= 0) wake(waiting);
  }

  static bool receive(std::int32_t g, std::int32_t& receiver) {
    if (receiver == kSent) return true;
    receiver = g;
    return false;
  }

  void enter(std::int32_t g, std::int32_t collective) {
    if (entered_[g] == next_[g]) return;  // it returns to an all_reduce that it has already entered
    entered_[g] = next_[g];
    if (!order_.enter(g, collective, next_[g])) return;
    std::vector<std::int32_t> running = {collective};
    while (!running.empty()) {
      const std::int32_t ends = running.back();
      running.pop_back();
      ended_[ends] = 1;
      for (const std::int32_t peer : program_.collectives[ends].groups) wake(peer);
      for (const std::int32_t next : order_.end(ends)) running.push_back(next);
    }
  }

  static constexpr std::int32_t kNotSent = -1;
  static constexpr std::int32_t kSent = -2;

  const Program& program_;
  CollectiveOrder order_;
  std::vector<std::int64_t> next_;
  std::vector<std::int64_t> entered_;    ///< per group: the instruction that entered its latest collective
  std::vector<std::int32_t> receivers_;  ///< per message: kNotSent, kSent, or the group that waits for it
  std::vector<std::uint8_t> ended_;
  std::vector<std::int32_t> ready_;  ///< groups that may be able to continue
  std::vector<std::uint8_t> queued_;
};

}  // namespace

void verify(const Program& program) {
  check_ranges(program);
  check_messages(program);
  check_hub(program);
  check_shared_gpus(program);
  check_compute_order(program);
  check_late_entries(program);
  check_collectives(program);
  ProgressRun(program).run();
}

}  // namespace dflop
