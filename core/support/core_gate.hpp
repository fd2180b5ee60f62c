// A CoreGate lets groups of ranks, live or simulated, take turns on the host's cores. become_batch_work()
// keeps background threads from interrupting others.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace dflop {

/// A CoreGate hands out a number of cores, first come, first served. A group of R ranks gets R cores at once,
/// or all cores if there are fewer: its ranks run in lockstep, so a core of a single rank would only be idle.
/// No group overtakes the first in the queue, even if fewer cores would be enough; so every group gets its
/// turn.
class CoreGate {
 public:
  /// @pre cores >= 1
  explicit CoreGate(int cores) : cores_(cores), free_(cores) {}

  /// Adds a group and returns its number, from 0 on. @pre ranks >= 1
  std::int32_t add_group(std::int32_t ranks);

  /// Puts the group at the end of the queue. @pre it neither waits nor holds cores
  void ask(std::int32_t group) { waiting_.push_back(group); }
  /// Gives the first group in the queue its cores and returns its number; nullopt if no group waits or too
  /// few cores are free.
  std::optional<std::int32_t> admit();
  void give_back(std::int32_t group) { free_ += cores_of(group); }

  int cores_of(std::int32_t group) const { return needs_[static_cast<std::size_t>(group)]; }

 private:
  int cores_;
  int free_;
  std::vector<int> needs_;  // per group
  std::deque<std::int32_t> waiting_;
};

/// Makes the calling thread background work (Linux: SCHED_BATCH). Waking it does not interrupt a running
/// thread: the thread that wakes it continues, and the woken one starts on a free core. A thread whose policy
/// is not the default, SCHED_OTHER, keeps its policy, because the user chose it and threads of one policy do
/// not interrupt each other. If the system rejects the change, only time is lost.
void become_batch_work();

}  // namespace dflop
