// Threads share the cores of a machine: groups of ranks take turns on them, those of the host in a live run
// or of a simulated one, and batch work does not interrupt others.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

namespace dflop {

/// A CoreGate hands out a number of cores, first come, first served. A group of R ranks gets R cores at once,
/// or all there are where they are fewer: its ranks run in lockstep, so that one of them on a core of its own
/// would only hold it idle. Nobody overtakes the first that waits, even where fewer cores would do for it; so
/// every group has its turn.
class CoreGate {
 public:
  /// @pre cores >= 1
  explicit CoreGate(int cores) : cores_(cores), free_(cores) {}

  /// Adds a group and returns its number, from 0 on. @pre ranks >= 1
  std::int32_t add_group(std::int32_t ranks);

  /// The group comes to the end of the queue. @pre it neither waits nor holds cores
  void ask(std::int32_t group) { waiting_.push_back(group); }
  /// Gives the first that waits its cores and names it; nothing where nobody waits or too few are free.
  std::optional<std::int32_t> admit();
  void give_back(std::int32_t group) { free_ += cores_of(group); }

  int cores_of(std::int32_t group) const { return needs_[static_cast<std::size_t>(group)]; }

 private:
  int cores_;
  int free_;
  std::vector<int> needs_;  // per group
  std::deque<std::int32_t> waiting_;
};

/// Makes the calling thread one of batch work (Linux: SCHED_BATCH): waking it does not interrupt a thread
/// that is at work. So who hands it work or sends it a message goes on, and it begins on a core that is free.
/// A thread that has another policy than the usual one, SCHED_OTHER, keeps it, as that is the user's choice
/// and none of them interrupts its like. Where the system refuses, nothing but time is lost.
void become_batch_work();

}  // namespace dflop
