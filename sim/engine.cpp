#include "sim/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/program/collective_order.hpp"
#include "core/support/core_gate.hpp"
#include "sim/event_queue.hpp"
#include "sim/network/flows.hpp"
#include "sim/shared_compute.hpp"

namespace dflop {
namespace {

// These stand for a message's arrival time before it is known.
constexpr Nanoseconds kNotPosted{-1};
constexpr Nanoseconds kInFlight{-2};  ///< posted; only the network knows when it arrives

/// A rank runs about this many instructions during one memory access. So tables are prefetched this many
/// entries ahead.
constexpr std::int64_t kPrefetch = 16;

/// A GroupState is a group's changing state during the run; its sums are kept in its GroupUsage.
struct GroupState {
  std::int64_t next = 0;            ///< the instruction that it runs or waits in
  std::int64_t end = 0;             ///< one past its last instruction
  Nanoseconds links_busy_until{0};  ///< by messages and collectives so far
  Bytes activations;
  std::int32_t awaited = -1;        ///< transfer that it waits for and whose end is unknown; -1: none
  std::int32_t in_flight = 0;       ///< its transfers on a shared network
  Nanoseconds waiting_since{0};     ///< for its awaited transfer or its cores
  Nanoseconds links_busy_since{0};  ///< of a shared network
  std::int64_t waiting_span = 0;    ///< its latest wait
  Bytes recorded_activations{-1};   ///< of its latest memory point; none yet
  Bytes recorded_buffers;
  bool failed = false;
  bool begun = true;  ///< false before conditions.begins
};

/// A LateEntry is an all_reduce_start that takes effect while an instruction runs.
struct LateEntry {
  std::int32_t group = 0;
  std::int32_t collective = 0;
  std::int64_t instruction = 0;
};

// This part checks the costs before a run.

template <typename T>
void require_size(const std::vector<T>& table, std::size_t expected, std::string_view what) {
  if (table.size() == expected) return;
  throw Error(ErrorKind::internal,
              fmt::format("expected {} costs of {}, found {}", expected, what, table.size()));
}

void require_durations(const std::vector<Nanoseconds>& table, std::size_t expected, std::string_view what) {
  require_size(table, expected, what);
  const auto negative =
      std::find_if(table.begin(), table.end(), [](Nanoseconds d) { return d < Nanoseconds(0); });
  if (negative == table.end()) return;
  throw Error(ErrorKind::internal, fmt::format("expected durations of {} of at least 0, found {} ns at {}",
                                               what, negative->count(), negative - table.begin()));
}

void require_fit(const Program& program, const ProgramCosts& costs) {
  require_durations(costs.instruction, program.instructions.size(), "instructions");
  require_durations(costs.message, program.messages.size(), "messages");
  require_durations(costs.collective, program.collectives.size(), "collectives");
  require_size(costs.model_state, program.groups.size(), "model states");
  if (!costs.activation.empty()) require_size(costs.activation, program.instructions.size(), "activations");
  if (!costs.workspace.empty()) require_size(costs.workspace, program.instructions.size(), "workspaces");
  if (costs.bandwidth.empty()) return;
  require_size(costs.bandwidth, program.instructions.size(), "bandwidths");
  const auto none = std::find_if(costs.bandwidth.begin(), costs.bandwidth.end(),
                                 [](double part) { return !(part >= 0 && part <= 1); });
  if (none == costs.bandwidth.end()) return;
  throw Error(ErrorKind::internal, fmt::format("expected bandwidths from 0 to 1, found {} at {}", *none,
                                               none - costs.bandwidth.begin()));
}

/// Returns "group 3 (stage 3, dp rank 0) waits for message 42 (microbatch 5) of group 2".
std::string describe_wait(const Program& program, std::int32_t group, const Instruction& instruction) {
  const Group& waiting = program.groups[group];
  const std::string who =
      fmt::format("group {} (stage {}, dp rank {}) waits for", group, waiting.stage, waiting.dp_rank);
  if (is_collective(instruction.op)) {
    return fmt::format("{} the other participants of collective {}", who, instruction.index);
  }
  const Message& message = program.messages[instruction.index];
  return fmt::format("{} message {} (microbatch {}) of group {}", who, instruction.index, message.microbatch,
                     message.source);
}

/// Calls `enter` with each all_reduce_start that takes effect during a group's compute instruction, and with
/// how much of the compute is done then.
template <typename Enter>
void for_each_late_entry(const Program& program, const ProgramCosts& costs, std::int32_t group,
                         std::int64_t compute, Enter enter) {
  const auto& instructions = program.instructions;
  std::int64_t start = compute;
  while (start > program.groups[group].begin && instructions[start - 1].op == Op::all_reduce_start) --start;
  for (; start < compute; ++start) {
    const Nanoseconds delay =
        entry_delay(program.collectives[instructions[start].index], costs.instruction[compute]);
    if (delay > Nanoseconds(0)) enter(start, delay);
  }
}

/// An Engine is one run of simulate().
class Engine {
 public:
  Engine(const Program& program, const ProgramCosts& costs, Detail detail, const Conditions& conditions)
      : program_(program),
        costs_(costs),
        conditions_(conditions),
        spans_(detail == Detail::spans),
        queue_(program.groups.size() + program.collectives.size()),
        groups_(program.groups.size()),
        arrival_(program.messages.size(), kNotPosted),
        collective_ended_(program.collectives.size(), 0),
        collective_order_(program) {
    const std::size_t transfers = program.messages.size() + program.collectives.size();
    if (conditions.network != nullptr) {
      flows_.emplace(*conditions.network);
      if (spans_) transfer_span_.resize(transfers);
    }
    if (conditions.network != nullptr || !program.collectives.empty()) transfer_start_.resize(transfers);
    timeline_.source = "simulated";
    if (program.shared_gpus > 0) {
      shared_.emplace(program, conditions);
      compute_span_.resize(program.groups.size());
    }
    set_up_cores(conditions.cores);
    timeline_.stages = stage_names(program);
    timeline_.stage_shapes = program.stages;
    if (program.hub >= 0) timeline_.hub = program.groups[program.hub].first_rank;
    timeline_.shared_gpus = program.shared_gpus;
    timeline_.groups.resize(program.groups.size());
    if (spans_) {
      timeline_.works = program.works;
      timeline_.spans.reserve(program.instructions.size());
      // A compute instruction changes the memory twice; in most programs a send and a receive go with it.
      timeline_.memory.reserve(program.groups.size() + program.instructions.size());
    }
  }

  /// Makes run() write into `times` when each all_reduce_start took effect, if that was during compute on
  /// shared GPUs. `times` has an entry for each instruction.
  void keep_entries(std::vector<Nanoseconds>& times) { entry_times_ = &times; }

  Timeline run() {
    const auto groups = static_cast<std::int32_t>(groups_.size());
    for (std::int32_t group = 0; group < groups; ++group) set_up_group(group);
    for (std::int32_t group = 0; group < groups; ++group) {
      if (groups_[group].begun) advance(group);
    }
    for (;;) {
      if (cores_ && instant_ends()) grant_cores();
      if (shared_ && step_shared()) continue;
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

 private:
  void step() {
    const Event event = queue_.pop();
    now_ = event.time;
    const auto groups = static_cast<std::int32_t>(groups_.size());
    const auto collectives = static_cast<std::int32_t>(program_.collectives.size());
    if (event.what < groups) {
      if (std::exchange(groups_[event.what].begun, true)) finish(event.what);
      advance(event.what);
    } else if (event.what - groups < collectives) {
      end_collective(event.what - groups);
    } else {
      const LateEntry& entry = late_entries_[event.what - groups - collectives];
      enter_collective(entry.group, entry.collective, entry.instruction);
    }
  }

  /// Processes the next event on shared GPUs, if no other event comes before it, and returns whether it did.
  bool step_shared() {
    if (shared_->idle()) return false;
    const Nanoseconds time = shared_->next_time();
    if (!queue_.empty() && queue_.next_time() < time) return false;
    if (flows_ && !flows_->idle() && flows_->next_time() <= time) return false;
    now_ = time;
    const SharedCompute::Happening happening = shared_->advance();
    switch (happening.what) {
      case SharedCompute::What::nothing:
        break;
      case SharedCompute::What::enters:
        if (entry_times_ != nullptr) (*entry_times_)[happening.entry] = now_;
        enter_collective(happening.group, program_.instructions[happening.entry].index, happening.entry);
        break;
      case SharedCompute::What::ends:
        end_shared(happening);
        finish(happening.group);
        advance(happening.group);
        break;
      case SharedCompute::What::fails:
        end_shared(happening);
        fail(happening.group, now_);
        break;
    }
    return true;
  }

  void set_up_group(std::int32_t group) {
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
    if (conditions_.begins.empty() || conditions_.begins[group] == Nanoseconds(0)) return;
    usage.begin = conditions_.begins[group];
    state.begun = false;
    queue_.push(usage.begin, group);
  }

  /// Records where each unfinished group stopped. Unfinished groups are an error unless a rank has failed.
  void record_stalls() {
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
      // A failure, and the end of a transfer that no group is left to wait for, are not events.
      now_ = std::max({now_, state.waiting_since, state.links_busy_until});
    }
    if (!timeline_.stalls.empty() && !failed) throw_deadlock();
  }

  [[noreturn]] void throw_deadlock() const {
    constexpr std::size_t kNamed = 8;  // keeps the message readable on a large cluster
    std::string waits;
    const std::size_t stuck = timeline_.stalls.size();
    std::size_t named = 0;
    for (std::size_t g = 0; g < groups_.size() && named < kNamed; ++g) {
      if (groups_[g].next == groups_[g].end) continue;
      ++named;
      waits += "; " +
               describe_wait(program_, static_cast<std::int32_t>(g), program_.instructions[groups_[g].next]);
    }
    if (stuck > kNamed) waits += fmt::format("; and {} more", stuck - kNamed);
    throw Error(ErrorKind::internal, fmt::format("the program deadlocks: {} of {} groups do not finish{}",
                                                 stuck, groups_.size(), waits));
  }

  void check_memory_returned() const {
    if (!timeline_.stalls.empty()) return;
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].activations == Bytes{}) continue;
      throw Error(ErrorKind::internal,
                  fmt::format("expected the activations of group {} to return to 0 bytes, found {}", g,
                              groups_[g].activations.count));
    }
  }

  // This part runs instructions and compute.

  /// Runs the instructions of a group until one takes time.
  void advance(std::int32_t group) {
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

  /// Finishes the group's current instruction, which took time.
  void finish(std::int32_t group) {
    GroupState& state = groups_[group];
    const Op op = program_.instructions[state.next].op;
    if (op == Op::backward || op == Op::backward_weight)
      state.activations -= costs_.activation_of(state.next);
    if (op == Op::backward_input) {
      state.activations += costs_.activation_of(state.next);
      raise_peak(group, Bytes{});
    }
    record_memory(group, Bytes{});
    if (cores_ && (is_compute(op) || op == Op::optimizer_step)) cores_->give_back(group);
    ++state.next;
  }

  void start_compute(std::int32_t group, const Instruction& instruction) {
    GroupState& state = groups_[group];
    // Groups take turns, so each reads its own place in four long tables: too many streams for the hardware's
    // prefetcher (64 stages x 4096 microbatches: 80 ms without these lines, 60 ms with them).
    const auto fetch = [&](const auto& table) {
      if (!table.empty()) __builtin_prefetch(table.data() + state.next + kPrefetch);
    };
    fetch(program_.instructions);
    fetch(costs_.instruction);
    fetch(costs_.activation);
    fetch(costs_.workspace);
    fetch(costs_.bandwidth);
    const Nanoseconds duration = costs_.instruction[state.next];
    if (instruction.op == Op::forward) state.activations += costs_.activation_of(state.next);
    const Bytes buffers = costs_.workspace_of(state.next);
    raise_peak(group, buffers);
    record_memory(group, buffers);
    if (shared_) return start_shared(group, duration);
    const ComputeRun run = run_compute(conditions_, group, now_, duration);
    timeline_.groups[group].busy += run.computed;
    record_span(group, Stream::compute, state.next, run.end - now_, Bytes{});
    if (run.fails) return fail(group, run.end);
    queue_.push(run.end, group);
  }

  void fail(std::int32_t group, Nanoseconds time) {
    groups_[group].failed = true;
    groups_[group].waiting_since = time;
  }

  /// Starts compute on shared GPUs; its end depends on what else runs there.
  void start_shared(std::int32_t group, Nanoseconds duration) {
    const std::int64_t position = groups_[group].next;
    compute_span_[group] = static_cast<std::int64_t>(timeline_.spans.size());
    record_span(group, Stream::compute, position, Nanoseconds(0), Bytes{});
    shared_->start(group, duration, costs_.bandwidth.empty() ? 0 : costs_.bandwidth[position], now_);
    for_each_late_entry(
        program_, costs_, group, groups_[group].next,
        [&](std::int64_t start, Nanoseconds delay) { shared_->add_entry(group, delay, start); });
  }

  void end_shared(const SharedCompute::Happening& happening) {
    timeline_.groups[happening.group].busy += happening.computed;
    if (!spans_) return;
    Span& span = timeline_.spans[compute_span_[happening.group]];
    span.duration = now_ - span.start;
  }

  void raise_peak(std::int32_t group, Bytes buffers) {
    const Bytes activations = groups_[group].activations;
    GroupUsage& usage = timeline_.groups[group];
    const Bytes in_use = usage.model_state.total() + activations + buffers;
    if (in_use <= usage.peak_memory) return;
    usage.peak_memory = in_use;
    usage.peak_time = now_;
    usage.peak_activations = activations;
    usage.peak_buffers = buffers;
  }

  // This part shares cores, if there are fewer cores than ranks.

  /// Sets up the cores. Nothing asks for cores if there is no limit, or if there are enough for all ranks.
  void set_up_cores(int cores) {
    timeline_.cores = cores;
    if (cores == 0 || cores >= program_.ranks()) return;
    cores_.emplace(cores);
    for (const Group& group : program_.groups) cores_->add_group(group.ranks);
  }

  /// Records that the group has compute to do. Cores are granted after all other events of the same time, so
  /// that groups that ask at the same time are served by number, not by event order.
  void ask_for_cores(std::int32_t group) {
    groups_[group].waiting_since = now_;
    asking_.push_back(group);
  }

  /// Returns whether no events are left at the current time.
  bool instant_ends() {
    if (!queue_.empty() && queue_.next_time() <= now_) return false;
    if (shared_ && !shared_->idle() && shared_->next_time() <= now_) return false;
    return !flows_ || flows_->idle() || flows_->next_time() > now_;
  }

  void grant_cores() {
    std::sort(asking_.begin(), asking_.end());
    for (const std::int32_t group : asking_) cores_->ask(group);
    asking_.clear();
    while (const auto group = cores_->admit()) {
      if (!shared_) {
        for_each_late_entry(
            program_, costs_, *group, groups_[*group].next,
            [&](std::int64_t start, Nanoseconds delay) { enter_after(*group, start, delay); });
      }
      start_compute(*group, program_.instructions[groups_[*group].next]);
    }
  }

  // This part runs messages and collectives.

  void post(std::int32_t group, const Instruction& instruction) {
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
    // Prefetch tables as in start_compute(): each boundary and direction is one more stream (64 x 4096: 60 ms
    // without, 43 ms with).
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

  /// Returns whether the message has arrived. If not, the group sleeps until it does.
  bool receive(std::int32_t group, const Instruction& instruction) {
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

  /// Runs an all_reduce_start: the group enters when its next compute has run for the fraction given by the
  /// collective.
  void enter_later(std::int32_t group, const Instruction& instruction) {
    const std::int64_t position = groups_[group].next;
    std::int64_t compute = position;
    while (program_.instructions[compute].op == Op::all_reduce_start) ++compute;  // verify() guarantees one
    const Nanoseconds delay =
        entry_delay(program_.collectives[instruction.index], costs_.instruction[compute]);
    if (delay == Nanoseconds(0)) return enter_collective(group, instruction.index, position);
    if (cores_ || shared_) return;  // for_each_late_entry() is called when the compute begins
    enter_after(group, position, delay);
  }

  void enter_after(std::int32_t group, std::int64_t position, Nanoseconds delay) {
    const ComputeRun run = run_compute(conditions_, group, now_, delay);
    if (run.fails) return;
    late_entries_.push_back({group, program_.instructions[position].index, position});
    queue_.push(run.end, entry_event(late_entries_.size() - 1));
  }

  void enter_collective(std::int32_t group, std::int32_t collective, std::int64_t instruction) {
    if (collective_order_.enter(group, collective, instruction)) start_collective(collective);
  }

  void start_collective(std::int32_t collective) {
    const std::int32_t transfer = transfer_of_collective(collective);
    const Collective& parts = program_.collectives[collective];
    const Nanoseconds duration = flows_ ? Nanoseconds(0) : costs_.collective[collective];
    transfer_start_[transfer] = now_;
    if (flows_ && spans_) transfer_span_[transfer] = static_cast<std::int64_t>(timeline_.spans.size());
    for (const std::int32_t group : parts.groups) {
      record_span(group, Stream::collective, collective_order_.entry(group, collective), duration,
                  parts.bytes);
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

  void end_collective(std::int32_t collective) {
    const std::int32_t transfer = transfer_of_collective(collective);
    collective_ended_[collective] = 1;
    for (const std::int32_t group : program_.collectives[collective].groups) {
      if (groups_[group].awaited == transfer) stop_waiting(group, transfer_start_[transfer]);
    }
    for (const std::int32_t next : collective_order_.end(collective)) start_collective(next);
  }

  /// Returns whether the collective has ended. If not, the group sleeps until it does.
  bool wait_for_collective(std::int32_t group, const Instruction& instruction) {
    record_wait(group, Bytes{});
    if (collective_ended_[instruction.index] != 0) return true;
    wait_for(group, transfer_of_collective(instruction.index));
    return false;
  }

  /// Ends a transfer on a shared network.
  void end_transfer(std::int32_t transfer) {
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

  void wait_for(std::int32_t group, std::int32_t transfer) {
    groups_[group].awaited = transfer;
    groups_[group].waiting_since = now_;
  }

  /// Wakes a group, because the transfer that it waited for ends now. The transfer was in flight since
  /// `began`; the group's idle time before `began` is bubble.
  void stop_waiting(std::int32_t group, Nanoseconds began) {
    GroupState& state = groups_[group];
    state.awaited = -1;
    timeline_.groups[group].wait += now_ - std::max(began, state.waiting_since);
    if (spans_ && program_.instructions[state.next].op != Op::all_reduce) {
      Span& span = timeline_.spans[state.waiting_span];
      span.duration = now_ - span.start;
    }
    queue_.push(now_, group);
  }

  /// Wakes a group at `time`, when the transfer that it waits for ends. Call this once per wait: when the
  /// group begins to wait or, if that is later, when the transfer begins. So the time from now to `time` is
  /// wait, and idle time before is bubble.
  void resume_at(std::int32_t group, Nanoseconds time) {
    timeline_.groups[group].wait += time - now_;
    if (spans_) {
      Span& span = timeline_.spans[groups_[group].waiting_span];
      span.duration = time - span.start;
    }
    queue_.push(time, group);
  }

  /// Adds [now, until] to the union of the group's transfers. Transfers begin in order of virtual time, so
  /// the union already covers exactly the part of the interval before links_busy_until.
  void occupy_links(std::int32_t group, Nanoseconds until) {
    GroupState& state = groups_[group];
    if (until <= state.links_busy_until) return;
    timeline_.groups[group].transfer += until - std::max(now_, state.links_busy_until);
    state.links_busy_until = until;
  }

  /// Counts the transfers of a group whose ends are not known in advance. At least one of them is in flight
  /// while the count is not zero.
  void enter_links(std::int32_t group) {
    if (groups_[group].in_flight++ == 0) groups_[group].links_busy_since = now_;
  }

  void leave_links(std::int32_t group) {
    if (--groups_[group].in_flight > 0) return;
    timeline_.groups[group].transfer += now_ - groups_[group].links_busy_since;
  }

  // This part fills the timeline.

  void record_span(std::int32_t group, Stream stream, std::int64_t position, Nanoseconds duration,
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

  void record_wait(std::int32_t group, Bytes bytes) {
    groups_[group].waiting_span = static_cast<std::int64_t>(timeline_.spans.size());
    record_span(group, Stream::receive, groups_[group].next, Nanoseconds(0), bytes);
  }

  void record_memory(std::int32_t group, Bytes buffers) {
    if (!spans_) return;
    GroupState& state = groups_[group];
    if (state.activations == state.recorded_activations && buffers == state.recorded_buffers) return;
    timeline_.memory.push_back({program_.groups[group].first_rank, now_, state.activations, buffers});
    state.recorded_activations = state.activations;
    state.recorded_buffers = buffers;
  }

  std::int32_t transfer_of_collective(std::int32_t collective) const {
    return static_cast<std::int32_t>(program_.messages.size()) + collective;
  }

  // Event numbers stand for, in this order: the groups, the ends of the collectives, the late entries.
  std::int32_t end_event(std::int32_t collective) const {
    return static_cast<std::int32_t>(groups_.size()) + collective;
  }
  std::int32_t entry_event(std::size_t entry) const {
    return end_event(static_cast<std::int32_t>(program_.collectives.size() + entry));
  }

  const Program& program_;
  const ProgramCosts& costs_;
  const Conditions& conditions_;
  const bool spans_;
  Nanoseconds now_{0};
  /// The queue has at most one event per group (the end of what it does or waits for), the ends of running
  /// collectives, and late entries.
  EventQueue queue_;
  std::optional<Flows> flows_;
  std::optional<SharedCompute> shared_;     ///< if GPUs are shared
  std::vector<std::int64_t> compute_span_;  ///< per group of shared GPUs: of its latest compute
  std::optional<CoreGate> cores_;           ///< if groups have to wait for cores
  std::vector<std::int32_t> asking_;        ///< groups that ask for cores at the current time
  std::vector<GroupState> groups_;
  std::vector<Nanoseconds> arrival_;         ///< per message
  std::vector<Nanoseconds> transfer_start_;  ///< per transfer; for collectives only if nothing is shared
  std::vector<std::int64_t> transfer_span_;  ///< per transfer on a shared network
  std::vector<std::uint8_t> collective_ended_;
  CollectiveOrder collective_order_;
  std::vector<LateEntry> late_entries_;
  std::vector<Nanoseconds>* entry_times_ = nullptr;  ///< if requested
  Timeline timeline_;
};

}  // namespace

Nanoseconds entry_delay(const Collective& collective, Nanoseconds compute) {
  return Nanoseconds(std::llround(collective.ready * static_cast<double>(compute.count())));
}

std::vector<Nanoseconds> late_entry_times(const Program& program, const ProgramCosts& costs,
                                          const Conditions& conditions) {
  std::vector<Nanoseconds> times(program.instructions.size(), Nanoseconds(-1));
  if (program.collectives.empty()) return times;
  Engine engine(program, costs, Detail::usage, conditions);
  engine.keep_entries(times);
  engine.run();
  return times;
}

Timeline simulate(const Program& program, const ProgramCosts& costs, Detail detail,
                  const Conditions& conditions) {
  require_fit(program, costs);
  return Engine(program, costs, detail, conditions).run();
}

}  // namespace dflop
