#include "sim/engine.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "sim/event_queue.hpp"

namespace dflop {
namespace {

constexpr Nanoseconds kNotPosted{-1};
constexpr std::int32_t kNothing = -1;

/// What changes about a group while it runs; its sums are kept in its GroupUsage.
struct GroupState {
  std::int64_t next = 0;            ///< the instruction that it runs or waits in
  std::int64_t end = 0;             ///< one past its last instruction
  std::int64_t receive_span = 0;    ///< its latest receive
  Nanoseconds links_busy_until{0};  ///< by messages and collectives so far
  Bytes memory;                     ///< workspace left out
  Bytes recorded_memory{-1};        ///< of its latest memory point; none yet
  std::int32_t awaited = kNothing;  ///< message that it waits for and that is not posted
};

class Engine {
 public:
  Engine(const Program& program, const ProgramCosts& costs, Detail detail);
  Timeline run();

 private:
  void set_up_group(std::int32_t group);
  void advance(std::int32_t group);
  void finish(std::int32_t group);
  void start_compute(std::int32_t group, const Instruction& instruction);
  void post(std::int32_t group, const Instruction& instruction);
  bool receive(std::int32_t group, const Instruction& instruction);
  void enter_collective(const Instruction& instruction);
  void resume_at(std::int32_t group, Nanoseconds time);
  void occupy_links(std::int32_t group, Nanoseconds until);
  void record_span(std::int32_t group, Stream stream, const Instruction& instruction, Nanoseconds duration,
                   Bytes bytes);
  void record_memory(std::int32_t group, Bytes bytes);
  void check_all_ended() const;
  void check_memory_returned() const;

  const Program& program_;
  const ProgramCosts& costs_;
  const bool spans_;
  Nanoseconds now_{0};
  EventQueue queue_;  ///< a group has at most one event: the end of what it does or waits for
  std::vector<GroupState> groups_;
  std::vector<Nanoseconds> arrival_;  ///< per message
  std::vector<std::size_t> entered_;  ///< per collective: participants that are there
  Timeline timeline_;
};

Engine::Engine(const Program& program, const ProgramCosts& costs, Detail detail)
    : program_(program),
      costs_(costs),
      spans_(detail == Detail::spans),
      queue_(program.groups.size()),
      groups_(program.groups.size()),
      arrival_(program.messages.size(), kNotPosted),
      entered_(program.collectives.size(), 0) {
  timeline_.source = "simulated";
  timeline_.stages = stage_names(program);
  timeline_.groups.resize(program.groups.size());
  if (spans_) {
    timeline_.spans.reserve(program.instructions.size());
    // A compute instruction changes the memory twice, and most programs have a send and a receive beside it.
    timeline_.memory.reserve(program.groups.size() + program.instructions.size());
  }
}

Timeline Engine::run() {
  const auto groups = static_cast<std::int32_t>(groups_.size());
  for (std::int32_t group = 0; group < groups; ++group) set_up_group(group);
  for (std::int32_t group = 0; group < groups; ++group) advance(group);
  while (!queue_.empty()) {
    const Event event = queue_.pop();
    now_ = event.time;
    finish(event.group);
    advance(event.group);
  }
  check_all_ended();
  check_memory_returned();
  timeline_.makespan = now_;
  for (GroupUsage& usage : timeline_.groups) usage.bubble = timeline_.makespan - usage.busy - usage.wait;
  return std::move(timeline_);
}

void Engine::set_up_group(std::int32_t group) {
  const Group& list = program_.groups[group];
  GroupState& state = groups_[group];
  state.next = list.begin;
  state.end = list.end;
  state.memory = costs_.model_state[group];
  GroupUsage& usage = timeline_.groups[group];
  usage.first_rank = list.first_rank;
  usage.ranks = list.ranks;
  usage.stage = list.stage;
  usage.dp_rank = list.dp_rank;
  usage.model_state = state.memory;
  usage.peak_memory = state.memory;
  record_memory(group, state.memory);
}

/// Runs a group until something takes time.
void Engine::advance(std::int32_t group) {
  GroupState& state = groups_[group];
  while (state.next < state.end) {
    const Instruction& instruction = program_.instructions[state.next];
    if (is_send(instruction.op)) {
      post(group, instruction);
    } else if (is_receive(instruction.op)) {
      if (!receive(group, instruction)) return;
    } else if (instruction.op == Op::all_reduce) {
      return enter_collective(instruction);
    } else {
      return start_compute(group, instruction);
    }
    ++state.next;
  }
}

/// Ends the instruction that took time.
void Engine::finish(std::int32_t group) {
  GroupState& state = groups_[group];
  const Op op = program_.instructions[state.next].op;
  if (op == Op::backward || op == Op::backward_weight) state.memory -= costs_.activation[state.next];
  record_memory(group, state.memory);
  ++state.next;
}

void Engine::start_compute(std::int32_t group, const Instruction& instruction) {
  GroupState& state = groups_[group];
  GroupUsage& usage = timeline_.groups[group];
  const Nanoseconds duration = costs_.instruction[state.next];
  if (instruction.op == Op::forward) state.memory += costs_.activation[state.next];
  const Bytes in_use = state.memory + costs_.workspace[state.next];
  usage.peak_memory = std::max(usage.peak_memory, in_use);
  usage.busy += duration;
  record_memory(group, in_use);
  record_span(group, Stream::compute, instruction, duration, Bytes{});
  queue_.push(now_ + duration, group);
}

void Engine::post(std::int32_t group, const Instruction& instruction) {
  const Message& message = program_.messages[instruction.index];
  const Nanoseconds duration = costs_.message[instruction.index];
  arrival_[instruction.index] = now_ + duration;
  occupy_links(group, now_ + duration);
  occupy_links(message.destination, now_ + duration);
  record_span(group, Stream::send, instruction, duration, message.bytes);
  if (groups_[message.destination].awaited == instruction.index) {
    groups_[message.destination].awaited = kNothing;
    resume_at(message.destination, now_ + duration);
  }
}

/// Whether the message is there. If not, the group sleeps until it is.
bool Engine::receive(std::int32_t group, const Instruction& instruction) {
  const Nanoseconds arrival = arrival_[instruction.index];
  groups_[group].receive_span = static_cast<std::int64_t>(timeline_.spans.size());
  record_span(group, Stream::receive, instruction, Nanoseconds(0),
              program_.messages[instruction.index].bytes);
  if (arrival == kNotPosted) {
    groups_[group].awaited = instruction.index;
    return false;
  }
  if (arrival <= now_) return true;
  resume_at(group, arrival);
  return false;
}

void Engine::enter_collective(const Instruction& instruction) {
  const Collective& collective = program_.collectives[instruction.index];
  if (++entered_[instruction.index] < collective.groups.size()) return;
  const Nanoseconds duration = costs_.collective[instruction.index];
  for (const std::int32_t participant : collective.groups) {
    occupy_links(participant, now_ + duration);
    record_span(participant, Stream::collective, program_.instructions[groups_[participant].next], duration,
                collective.bytes);
    resume_at(participant, now_ + duration);
  }
}

/// What the group waits for is in flight from now until `time`. Called once per wait, at the later of the
/// moment it began to wait and the moment the transfer began, so that the time from now on is `wait` and that
/// before is bubble.
void Engine::resume_at(std::int32_t group, Nanoseconds time) {
  timeline_.groups[group].wait += time - now_;
  if (spans_ && is_receive(program_.instructions[groups_[group].next].op)) {
    Span& span = timeline_.spans[groups_[group].receive_span];
    span.duration = time - span.start;
  }
  queue_.push(time, group);
}

/// Adds [now, until] to the union of the group's transfers. Transfers begin in the order of virtual time, so
/// that what the union already covers of the interval is what lies before links_busy_until.
void Engine::occupy_links(std::int32_t group, Nanoseconds until) {
  GroupState& state = groups_[group];
  if (until <= state.links_busy_until) return;
  timeline_.groups[group].transfer += until - std::max(now_, state.links_busy_until);
  state.links_busy_until = until;
}

void Engine::record_span(std::int32_t group, Stream stream, const Instruction& instruction,
                         Nanoseconds duration, Bytes bytes) {
  if (!spans_) return;
  Span& span = timeline_.spans.emplace_back();
  span.rank = program_.groups[group].first_rank;
  span.stream = stream;
  span.op = instruction.op;
  span.stage = instruction.stage;
  span.microbatch = instruction.microbatch;
  span.start = now_;
  span.duration = duration;
  span.bytes = bytes;
  if (stream == Stream::send || stream == Stream::receive) span.message = instruction.index;
}

void Engine::record_memory(std::int32_t group, Bytes bytes) {
  if (!spans_) return;
  GroupState& state = groups_[group];
  if (bytes == state.recorded_memory) return;
  timeline_.memory.push_back({program_.groups[group].first_rank, now_, bytes});
  state.recorded_memory = bytes;
}

/// "group 3 (stage 3, dp rank 0) waits for message 42 (microbatch 5) of group 2".
std::string describe_wait(const Program& program, std::int32_t group, const Instruction& instruction) {
  const Group& waiting = program.groups[group];
  std::string text = "group " + std::to_string(group) + " (stage " + std::to_string(waiting.stage) +
                     ", dp rank " + std::to_string(waiting.dp_rank) + ") waits for ";
  if (instruction.op == Op::all_reduce) {
    return text + "the other participants of collective " + std::to_string(instruction.index);
  }
  const Message& message = program.messages[instruction.index];
  return text + "message " + std::to_string(instruction.index) + " (microbatch " +
         std::to_string(message.microbatch) + ") of group " + std::to_string(message.source);
}

void Engine::check_all_ended() const {
  constexpr int kNamed = 8;  // a line to read, not a listing of a cluster
  std::string waits;
  int stuck = 0;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].next == groups_[g].end || ++stuck > kNamed) continue;
    waits +=
        "; " + describe_wait(program_, static_cast<std::int32_t>(g), program_.instructions[groups_[g].next]);
  }
  if (stuck == 0) return;
  if (stuck > kNamed) waits += "; and " + std::to_string(stuck - kNamed) + " more";
  throw Error(ErrorKind::internal, "the program deadlocks: " + std::to_string(stuck) + " of " +
                                       std::to_string(groups_.size()) + " groups do not end" + waits);
}

void Engine::check_memory_returned() const {
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].memory == costs_.model_state[g]) continue;
    throw Error(ErrorKind::internal, "expected the memory of group " + std::to_string(g) + " to return to " +
                                         std::to_string(costs_.model_state[g].count) + " bytes, found " +
                                         std::to_string(groups_[g].memory.count));
  }
}

template <typename T>
void require_size(const std::vector<T>& table, std::size_t expected, std::string_view what) {
  if (table.size() == expected) return;
  throw Error(ErrorKind::internal, "expected " + std::to_string(expected) + " costs of " + std::string(what) +
                                       ", found " + std::to_string(table.size()));
}

void require_durations(const std::vector<Nanoseconds>& table, std::size_t expected, std::string_view what) {
  require_size(table, expected, what);
  const auto negative =
      std::find_if(table.begin(), table.end(), [](Nanoseconds d) { return d < Nanoseconds(0); });
  if (negative == table.end()) return;
  throw Error(ErrorKind::internal, "expected durations of " + std::string(what) + " of at least 0, found " +
                                       std::to_string(negative->count()) + " ns at " +
                                       std::to_string(negative - table.begin()));
}

void require_fit(const Program& program, const ProgramCosts& costs) {
  require_durations(costs.instruction, program.instructions.size(), "instructions");
  require_durations(costs.message, program.messages.size(), "messages");
  require_durations(costs.collective, program.collectives.size(), "collectives");
  require_size(costs.model_state, program.groups.size(), "model states");
  require_size(costs.activation, program.instructions.size(), "activations");
  require_size(costs.workspace, program.instructions.size(), "workspaces");
}

}  // namespace

Timeline simulate(const Program& program, const ProgramCosts& costs, Detail detail) {
  require_fit(program, costs);
  return Engine(program, costs, detail).run();
}

}  // namespace dflop
