// Groups of ranks take turns on cores: those of the host in a live run, or of a simulated one.
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
  void ask(std::int32_t group);
  /// Gives the first that waits its cores and names it; nothing where nobody waits or too few are free.
  std::optional<std::int32_t> admit();
  void give_back(std::int32_t group);

  int cores_of(std::int32_t group) const { return needs_[static_cast<std::size_t>(group)]; }

 private:
  int cores_;
  int free_;
  std::vector<int> needs_;  // per group
  std::deque<std::int32_t> waiting_;
};

}  // namespace dflop
