#include "sim/engine.hpp"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "sim/engine_run.hpp"

namespace dflop {
Engine::Engine(const Program& program, const ProgramCosts& costs, Detail detail, const Conditions& conditions)
    : program_(program),
      costs_(costs),
      pauses_(conditions.pauses),
      spans_(detail == Detail::spans),
      queue_(program.groups.size() + program.collectives.size()),
      groups_(program.groups.size()),
      arrival_(program.messages.size(), Nanoseconds(-1)),
      collective_ended_(program.collectives.size(), 0),
      collective_order_(program) {
  const std::size_t transfers = program.messages.size() + program.collectives.size();
  if (conditions.network != nullptr) {
    flows_.emplace(*conditions.network);
    if (spans_) transfer_span_.resize(transfers);
  }
  if (conditions.network != nullptr || !program.collectives.empty()) transfer_start_.resize(transfers);
  timeline_.source = "simulated";
  set_up_cores(conditions.cores);
  timeline_.stages = stage_names(program);
  timeline_.stage_shapes = program.stages;
  timeline_.groups.resize(program.groups.size());
  if (spans_) {
    timeline_.works = program.works;
    timeline_.spans.reserve(program.instructions.size());
    // A compute instruction changes the memory twice, and most programs have a send and a receive beside it.
    timeline_.memory.reserve(program.groups.size() + program.instructions.size());
  }
}

Timeline Engine::run() {
  const auto groups = static_cast<std::int32_t>(groups_.size());
  for (std::int32_t group = 0; group < groups; ++group) set_up_group(group);
  for (std::int32_t group = 0; group < groups; ++group) advance(group);
  for (;;) {
    if (cores_ && instant_ends()) grant_cores();
    const bool moving = flows_ && !flows_->idle();
    if (moving && (queue_.empty() || flows_->next_time() <= queue_.next_time())) {
      now_ = flows_->next_time();
      if (const auto transfer = flows_->advance()) end_transfer(*transfer);
    } else if (!queue_.empty()) {
      step();
    } else {
      break;
    }
  }
  record_stalls();
  check_memory_returned();
  timeline_.makespan = now_;
  for (GroupUsage& usage : timeline_.groups) usage.bubble = timeline_.makespan - usage.busy - usage.wait;
  return std::move(timeline_);
}

void Engine::step() {
  const Event event = queue_.pop();
  now_ = event.time;
  const auto groups = static_cast<std::int32_t>(groups_.size());
  const auto collectives = static_cast<std::int32_t>(program_.collectives.size());
  if (event.what < groups) {
    finish(event.what);
    advance(event.what);
  } else if (event.what - groups < collectives) {
    end_collective(event.what - groups);
  } else {
    const LateEntry& entry = late_entries_[event.what - groups - collectives];
    enter_collective(entry.group, entry.collective, entry.instruction);
  }
}

void Engine::set_up_group(std::int32_t group) {
  const Group& list = program_.groups[group];
  GroupState& state = groups_[group];
  state.next = list.begin;
  state.end = list.end;
  GroupUsage& usage = timeline_.groups[group];
  usage.first_rank = list.first_rank;
  usage.ranks = list.ranks;
  usage.stage = list.stage;
  usage.dp_rank = list.dp_rank;
  usage.model_state = costs_.model_state[group];
  usage.peak_memory = usage.model_state.total();
  record_memory(group, Bytes{});
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
      wait_for(group, transfer_of_collective(instruction.index));
      return enter_collective(group, instruction.index, state.next);
    } else if (instruction.op == Op::all_reduce_start) {
      enter_later(group, instruction);
    } else if (instruction.op == Op::all_reduce_wait) {
      if (!wait_for_collective(group, instruction)) return;
    } else {
      return cores_ ? ask_for_cores(group) : start_compute(group, instruction);
    }
    ++state.next;
  }
}

/// Ends the instruction that took time.
void Engine::finish(std::int32_t group) {
  GroupState& state = groups_[group];
  const Op op = program_.instructions[state.next].op;
  if (op == Op::backward || op == Op::backward_weight) state.activations -= costs_.activation_of(state.next);
  if (op == Op::backward_input) {
    state.activations += costs_.activation_of(state.next);
    raise_peak(group, Bytes{});
  }
  record_memory(group, Bytes{});
  if (cores_ && (is_compute(op) || op == Op::optimizer_step)) cores_->give_back(group);
  ++state.next;
}

void Engine::start_compute(std::int32_t group, const Instruction& instruction) {
  GroupState& state = groups_[group];
  GroupUsage& usage = timeline_.groups[group];
  // Groups take turns, so that each reads its own place of four long tables: too many streams for the
  // hardware's own prefetching (64 stages x 4096 microbatches: 80 ms without these lines, 60 ms with them).
  const auto fetch = [&](const auto& table) {
    if (!table.empty()) __builtin_prefetch(table.data() + state.next + kPrefetch);
  };
  fetch(program_.instructions);
  fetch(costs_.instruction);
  fetch(costs_.activation);
  fetch(costs_.workspace);
  const Nanoseconds duration = costs_.instruction[state.next];
  if (instruction.op == Op::forward) state.activations += costs_.activation_of(state.next);
  const Bytes buffers = costs_.workspace_of(state.next);
  raise_peak(group, buffers);
  record_memory(group, buffers);
  const std::optional<Nanoseconds> end = end_of_compute(group, duration);
  if (!end) return fail(group);
  usage.busy += duration;
  record_span(group, Stream::compute, state.next, *end - now_, Bytes{});
  queue_.push(*end, group);
}

void Engine::raise_peak(std::int32_t group, Bytes buffers) {
  const Bytes activations = groups_[group].activations;
  GroupUsage& usage = timeline_.groups[group];
  const Bytes in_use = usage.model_state.total() + activations + buffers;
  if (in_use <= usage.peak_memory) return;
  usage.peak_memory = in_use;
  usage.peak_time = now_;
  usage.peak_activations = activations;
  usage.peak_buffers = buffers;
}

/// When compute that takes `duration` ends, pauses included; never if the group fails before.
std::optional<Nanoseconds> Engine::end_of_compute(std::int32_t group, Nanoseconds duration) const {
  Nanoseconds end = now_ + duration;
  Nanoseconds held_until = now_;        // by the pauses so far, which may overlap
  for (const Pause& pause : pauses_) {  // in order of start
    if (pause.group != group || pause.start >= end) continue;
    if (pause.duration == Pause::kForever) return std::nullopt;
    const Nanoseconds from = std::max(pause.start, held_until);
    held_until = std::max(held_until, pause.start + pause.duration);
    end += std::max(held_until - from, Nanoseconds(0));
  }
  return end;
}

/// The compute that starts now never ends. Until the group fails it is busy, but for other pauses.
void Engine::fail(std::int32_t group) {
  GroupState& state = groups_[group];
  state.failed = true;
  Nanoseconds held_until = now_;
  for (const Pause& pause : pauses_) {  // in order of start
    if (pause.group != group) continue;
    timeline_.groups[group].busy += std::max(pause.start - held_until, Nanoseconds(0));
    state.waiting_since = std::max(now_, pause.start);
    if (pause.duration == Pause::kForever) break;
    held_until = std::max(held_until, pause.start + pause.duration);
  }
  record_span(group, Stream::compute, state.next, state.waiting_since - now_, Bytes{});
}

/// Where each group stands that did not come to its end. That is an error unless a rank has failed.
void Engine::record_stalls() {
  bool failed = false;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const GroupState& state = groups_[g];
    if (state.next == state.end) continue;
    const Instruction& instruction = program_.instructions[state.next];
    Stall stall{program_.groups[g].first_rank,
                instruction.op,
                instruction.stage,
                instruction.microbatch,
                state.waiting_since,
                state.failed,
                -1};
    if (is_receive(instruction.op)) {
      stall.awaited_rank = program_.groups[program_.messages[instruction.index].source].first_rank;
    }
    timeline_.stalls.push_back(stall);
    failed = failed || state.failed;
    // A failure and the end of a transfer that nobody is left to wait for are no events.
    now_ = std::max({now_, state.waiting_since, state.links_busy_until});
  }
  if (!timeline_.stalls.empty() && !failed) throw_deadlock();
}

namespace {

/// "group 3 (stage 3, dp rank 0) waits for message 42 (microbatch 5) of group 2".
std::string describe_wait(const Program& program, std::int32_t group, const Instruction& instruction) {
  const Group& waiting = program.groups[group];
  std::string text = "group " + std::to_string(group) + " (stage " + std::to_string(waiting.stage) +
                     ", dp rank " + std::to_string(waiting.dp_rank) + ") waits for ";
  if (is_collective(instruction.op)) {
    return text + "the other participants of collective " + std::to_string(instruction.index);
  }
  const Message& message = program.messages[instruction.index];
  return text + "message " + std::to_string(instruction.index) + " (microbatch " +
         std::to_string(message.microbatch) + ") of group " + std::to_string(message.source);
}

}  // namespace

void Engine::throw_deadlock() const {
  constexpr std::size_t kNamed = 8;  // a line to read, not a listing of a cluster
  std::string waits;
  const std::size_t stuck = timeline_.stalls.size();
  std::size_t named = 0;
  for (std::size_t g = 0; g < groups_.size() && named < kNamed; ++g) {
    if (groups_[g].next == groups_[g].end) continue;
    ++named;
    waits +=
        "; " + describe_wait(program_, static_cast<std::int32_t>(g), program_.instructions[groups_[g].next]);
  }
  if (stuck > kNamed) waits += "; and " + std::to_string(stuck - kNamed) + " more";
  throw Error(ErrorKind::internal, "the program deadlocks: " + std::to_string(stuck) + " of " +
                                       std::to_string(groups_.size()) + " groups do not end" + waits);
}

void Engine::check_memory_returned() const {
  if (!timeline_.stalls.empty()) return;
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    if (groups_[g].activations == Bytes{}) continue;
    throw Error(ErrorKind::internal, "expected the activations of group " + std::to_string(g) +
                                         " to return to 0 bytes, found " +
                                         std::to_string(groups_[g].activations.count));
  }
}

namespace {

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
  if (!costs.activation.empty()) require_size(costs.activation, program.instructions.size(), "activations");
  if (!costs.workspace.empty()) require_size(costs.workspace, program.instructions.size(), "workspaces");
}

}  // namespace

Timeline simulate(const Program& program, const ProgramCosts& costs, Detail detail,
                  const Conditions& conditions) {
  require_fit(program, costs);
  return Engine(program, costs, detail, conditions).run();
}

}  // namespace dflop
