#include <algorithm>

#include "sim/engine_run.hpp"
#include "sim/late_entry.hpp"

namespace dflop {
namespace {

constexpr Nanoseconds kNotPosted{-1};
constexpr Nanoseconds kInFlight{-2};  ///< posted; only the network knows when it arrives

}  // namespace

void Engine::post(std::int32_t group, const Instruction& instruction) {
  const Message& message = program_.messages[instruction.index];
  if (flows_) {
    arrival_[instruction.index] = kInFlight;
    transfer_start_[instruction.index] = now_;
    enter_links(group);
    enter_links(message.destination);
    if (spans_) transfer_span_[instruction.index] = static_cast<std::int64_t>(timeline_.spans.size());
    record_span(group, Stream::send, groups_[group].next, Nanoseconds(0), message.bytes);
    flows_->start(instruction.index, now_);
    return;
  }
  // As in start_compute(): one more stream a boundary and direction (64 x 4096: 60 ms without, 43 ms with).
  __builtin_prefetch(&program_.messages[instruction.index] + kPrefetch);
  __builtin_prefetch(&costs_.message[instruction.index] + kPrefetch);
  __builtin_prefetch(&arrival_[instruction.index] + kPrefetch, 1);
  const Nanoseconds duration = costs_.message[instruction.index];
  arrival_[instruction.index] = now_ + duration;
  occupy_links(group, now_ + duration);
  occupy_links(message.destination, now_ + duration);
  record_span(group, Stream::send, groups_[group].next, duration, message.bytes);
  if (groups_[message.destination].awaited == instruction.index) {
    groups_[message.destination].awaited = -1;
    resume_at(message.destination, now_ + duration);
  }
}

/// Whether the message is there. If not, the group sleeps until it is.
bool Engine::receive(std::int32_t group, const Instruction& instruction) {
  const Nanoseconds arrival = arrival_[instruction.index];
  record_wait(group, program_.messages[instruction.index].bytes);
  if (arrival == kNotPosted || arrival == kInFlight) {
    wait_for(group, instruction.index);
    return false;
  }
  if (arrival <= now_) return true;
  resume_at(group, arrival);
  return false;
}

/// An all_reduce_start: the group enters when its next compute has run for the part that the collective asks.
void Engine::enter_later(std::int32_t group, const Instruction& instruction) {
  const std::int64_t position = groups_[group].next;
  std::int64_t compute = position;
  while (program_.instructions[compute].op == Op::all_reduce_start) ++compute;  // verify(): there is one
  const Nanoseconds delay = entry_delay(program_.collectives[instruction.index], costs_.instruction[compute]);
  if (delay == Nanoseconds(0)) return enter_collective(group, instruction.index, position);
  if (cores_) return;  // enter_with_compute() knows when the compute begins
  enter_after(group, position, delay);
}

void Engine::enter_after(std::int32_t group, std::int64_t position, Nanoseconds delay) {
  const std::optional<Nanoseconds> time = end_of_compute(group, delay);
  if (!time) return;
  late_entries_.push_back({group, program_.instructions[position].index, position});
  queue_.push(*time, entry_event(late_entries_.size() - 1));
}

void Engine::enter_collective(std::int32_t group, std::int32_t collective, std::int64_t instruction) {
  if (collective_order_.enter(group, collective, instruction)) start_collective(collective);
}

void Engine::start_collective(std::int32_t collective) {
  const std::int32_t transfer = transfer_of_collective(collective);
  const Collective& parts = program_.collectives[collective];
  const Nanoseconds duration = flows_ ? Nanoseconds(0) : costs_.collective[collective];
  transfer_start_[transfer] = now_;
  if (flows_ && spans_) transfer_span_[transfer] = static_cast<std::int64_t>(timeline_.spans.size());
  for (const std::int32_t group : parts.groups) {
    record_span(group, Stream::collective, collective_order_.entry(group), duration, parts.bytes);
    if (flows_) {
      enter_links(group);
    } else {
      occupy_links(group, now_ + duration);
    }
  }
  if (flows_) {
    flows_->start(transfer, now_);
  } else {
    queue_.push(now_ + duration, end_event(collective));
  }
}

void Engine::end_collective(std::int32_t collective) {
  const std::int32_t transfer = transfer_of_collective(collective);
  collective_ended_[collective] = 1;
  for (const std::int32_t group : program_.collectives[collective].groups) {
    if (groups_[group].awaited == transfer) stop_waiting(group, transfer_start_[transfer]);
  }
  for (const std::int32_t next : collective_order_.end(collective)) start_collective(next);
}

/// Whether the collective has ended. If not, the group sleeps until it has.
bool Engine::wait_for_collective(std::int32_t group, const Instruction& instruction) {
  record_wait(group, Bytes{});
  if (collective_ended_[instruction.index] != 0) return true;
  wait_for(group, transfer_of_collective(instruction.index));
  return false;
}

/// A transfer on a shared network has ended.
void Engine::end_transfer(std::int32_t transfer) {
  const auto messages = static_cast<std::int32_t>(program_.messages.size());
  const bool is_message = transfer < messages;
  const std::size_t spans = is_message ? 1 : program_.collectives[transfer - messages].groups.size();
  for (std::size_t k = 0; spans_ && k < spans; ++k) {
    Span& span = timeline_.spans[transfer_span_[transfer] + k];
    span.duration = now_ - span.start;
  }
  if (!is_message) {
    for (const std::int32_t group : program_.collectives[transfer - messages].groups) leave_links(group);
    return end_collective(transfer - messages);
  }
  const Message& message = program_.messages[transfer];
  arrival_[transfer] = now_;
  leave_links(message.source);
  leave_links(message.destination);
  if (groups_[message.destination].awaited == transfer) {
    stop_waiting(message.destination, transfer_start_[transfer]);
  }
}

void Engine::wait_for(std::int32_t group, std::int32_t transfer) {
  groups_[group].awaited = transfer;
  groups_[group].waiting_since = now_;
}

/// What the group waited for ends now; it was in flight since `began`. Idle time before that is bubble.
void Engine::stop_waiting(std::int32_t group, Nanoseconds began) {
  GroupState& state = groups_[group];
  state.awaited = -1;
  timeline_.groups[group].wait += now_ - std::max(began, state.waiting_since);
  if (spans_ && program_.instructions[state.next].op != Op::all_reduce) {
    Span& span = timeline_.spans[state.waiting_span];
    span.duration = now_ - span.start;
  }
  queue_.push(now_, group);
}

/// What the group waits for is in flight from now until `time`. Called once per wait, at the later of the
/// moment it began to wait and the moment the transfer began, so that the time from now on is `wait` and that
/// before is bubble.
void Engine::resume_at(std::int32_t group, Nanoseconds time) {
  timeline_.groups[group].wait += time - now_;
  if (spans_) {
    Span& span = timeline_.spans[groups_[group].waiting_span];
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

/// The same where ends are not known beforehand: the union is the time in which the count is not zero.
void Engine::enter_links(std::int32_t group) {
  if (groups_[group].in_flight++ == 0) groups_[group].links_busy_since = now_;
}

void Engine::leave_links(std::int32_t group) {
  if (--groups_[group].in_flight > 0) return;
  timeline_.groups[group].transfer += now_ - groups_[group].links_busy_since;
}

void Engine::record_span(std::int32_t group, Stream stream, std::int64_t position, Nanoseconds duration,
                         Bytes bytes) {
  if (!spans_) return;
  const Instruction& instruction = program_.instructions[position];
  Span& span = timeline_.spans.emplace_back();
  span.rank = program_.groups[group].first_rank;
  span.stream = stream;
  span.op = instruction.op;
  span.stage = instruction.stage;
  span.microbatch = instruction.microbatch;
  span.start = now_;
  span.duration = duration;
  span.bytes = bytes;
  (is_compute(instruction.op) ? span.work : span.message) = instruction.index;
  span.position = static_cast<std::int32_t>(position - program_.groups[group].begin);
}

void Engine::record_wait(std::int32_t group, Bytes bytes) {
  groups_[group].waiting_span = static_cast<std::int64_t>(timeline_.spans.size());
  record_span(group, Stream::receive, groups_[group].next, Nanoseconds(0), bytes);
}

void Engine::record_memory(std::int32_t group, Bytes buffers) {
  if (!spans_) return;
  GroupState& state = groups_[group];
  if (state.activations == state.recorded_activations && buffers == state.recorded_buffers) return;
  timeline_.memory.push_back({program_.groups[group].first_rank, now_, state.activations, buffers});
  state.recorded_activations = state.activations;
  state.recorded_buffers = buffers;
}

}  // namespace dflop
