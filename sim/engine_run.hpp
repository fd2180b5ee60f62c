// Engine: one run of simulate(). The rest of the program sees only sim/engine.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/iteration/executor.hpp"
#include "core/program/collective_order.hpp"
#include "core/support/core_gate.hpp"
#include "core/timeline.hpp"
#include "sim/conditions.hpp"
#include "sim/event_queue.hpp"
#include "sim/network/flows.hpp"

namespace dflop {

/// Instructions, about what runs on a rank during one memory access.
inline constexpr std::int64_t kPrefetch = 16;

/// What changes about a group while it runs; its sums are kept in its GroupUsage.
struct GroupState {
  std::int64_t next = 0;            ///< the instruction that it runs or waits in
  std::int64_t end = 0;             ///< one past its last instruction
  Nanoseconds links_busy_until{0};  ///< by messages and collectives so far
  Bytes activations;
  std::int32_t awaited = -1;        ///< transfer that it waits for and whose end is not known; -1: none
  std::int32_t in_flight = 0;       ///< its transfers on a shared network
  Nanoseconds waiting_since{0};     ///< for its awaited transfer or its cores
  Nanoseconds links_busy_since{0};  ///< of a shared network
  std::int64_t waiting_span = 0;    ///< its latest wait
  Bytes recorded_activations{-1};   ///< of its latest memory point; none yet
  Bytes recorded_buffers;
  bool failed = false;
};

/// An all_reduce_start that comes into force while an instruction runs.
struct LateEntry {
  std::int32_t group = 0;
  std::int32_t collective = 0;
  std::int64_t instruction = 0;
};

class Engine {
 public:
  Engine(const Program& program, const ProgramCosts& costs, Detail detail, const Conditions& conditions);
  Timeline run();

 private:
  void set_up_group(std::int32_t group);
  void step();
  void advance(std::int32_t group);
  void finish(std::int32_t group);
  void start_compute(std::int32_t group, const Instruction& instruction);
  void raise_peak(std::int32_t group, Bytes buffers);
  std::optional<Nanoseconds> end_of_compute(std::int32_t group, Nanoseconds duration) const;
  void fail(std::int32_t group);

  void set_up_cores(int cores);
  void ask_for_cores(std::int32_t group);
  bool instant_ends();
  void grant_cores();
  void enter_with_compute(std::int32_t group);

  void post(std::int32_t group, const Instruction& instruction);
  bool receive(std::int32_t group, const Instruction& instruction);
  void enter_collective(std::int32_t group, std::int32_t collective, std::int64_t instruction);
  void enter_later(std::int32_t group, const Instruction& instruction);
  void enter_after(std::int32_t group, std::int64_t position, Nanoseconds delay);
  void start_collective(std::int32_t collective);
  void end_collective(std::int32_t collective);
  bool wait_for_collective(std::int32_t group, const Instruction& instruction);
  void end_transfer(std::int32_t transfer);
  void wait_for(std::int32_t group, std::int32_t transfer);
  void stop_waiting(std::int32_t group, Nanoseconds began);
  void resume_at(std::int32_t group, Nanoseconds time);
  void occupy_links(std::int32_t group, Nanoseconds until);
  void enter_links(std::int32_t group);
  void leave_links(std::int32_t group);

  void record_span(std::int32_t group, Stream stream, std::int64_t instruction, Nanoseconds duration,
                   Bytes bytes);
  void record_wait(std::int32_t group, Bytes bytes);
  void record_memory(std::int32_t group, Bytes buffers);
  void record_stalls();
  [[noreturn]] void throw_deadlock() const;
  void check_memory_returned() const;

  std::int32_t transfer_of_collective(std::int32_t collective) const {
    return static_cast<std::int32_t>(program_.messages.size()) + collective;
  }

  // Numbers of events beyond those of groups: a collective ends, a late entry comes into force.
  std::int32_t end_event(std::int32_t collective) const {
    return static_cast<std::int32_t>(groups_.size()) + collective;
  }
  std::int32_t entry_event(std::size_t entry) const {
    return end_event(static_cast<std::int32_t>(program_.collectives.size() + entry));
  }

  const Program& program_;
  const ProgramCosts& costs_;
  const std::vector<Pause>& pauses_;
  const bool spans_;
  Nanoseconds now_{0};
  EventQueue queue_;  ///< a group has at most one event: the end of what it does or waits for
  std::optional<Flows> flows_;
  std::optional<CoreGate> cores_;     ///< where groups have to wait for cores
  std::vector<std::int32_t> asking_;  ///< for cores, at this instant
  std::vector<GroupState> groups_;
  std::vector<Nanoseconds> arrival_;         ///< per message
  std::vector<Nanoseconds> transfer_start_;  ///< per transfer; of collectives only where nothing is shared
  std::vector<std::int64_t> transfer_span_;  ///< per transfer on a shared network
  std::vector<std::uint8_t> collective_ended_;
  CollectiveOrder collective_order_;
  std::vector<LateEntry> late_entries_;
  Timeline timeline_;
};

}  // namespace dflop
