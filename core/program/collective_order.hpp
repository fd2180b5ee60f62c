// A CollectiveOrder says when collectives may start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// A group runs the collectives of a queue that it has entered one after another, in the order of entry, as a
/// GPU runs those of one stream. So a collective may start when all participants have entered it, none of
/// them has an earlier one of its queue left, and those have ended after which it comes.
class CollectiveOrder {
 public:
  /// `program` must outlive it.
  explicit CollectiveOrder(const Program& program)
      : program_(program),
        queues_per_group_(program.queues()),
        queues_(program.collectives.empty() ? 0 : program.groups.size() * queues_per_group_),
        ready_(program.collectives.size(), 0) {
    for (std::size_t c = 0; c < program.collectives.size(); ++c) {
      for (const std::int32_t before : program.collectives[c].after)
        followers_[before].push_back(static_cast<std::int32_t>(c));
    }
  }

  /// The group enters a collective. Returns whether that may start now. `instruction` is that by which the
  /// group enters.
  bool enter(std::int32_t group, std::int32_t collective, std::int64_t instruction) {
    Queue& queue = queues_[queue_of(group, collective)];
    queue.entered.push_back({collective, instruction});
    return queue.entered.size() == queue.first + 1 && comes_next(collective);
  }

  /// Returns the instruction by which a participant entered a collective that it runs.
  std::int64_t entry(std::int32_t group, std::int32_t collective) const {
    const Queue& queue = queues_[queue_of(group, collective)];
    return queue.entered[queue.first].instruction;
  }

  /// A running collective has ended. Returns those that may start now, in the order of its participants, and
  /// last those that come after it in other queues.
  std::vector<std::int32_t> end(std::int32_t collective) {
    std::vector<std::int32_t> startable;
    for (const std::int32_t group : program_.collectives[collective].groups) {
      Queue& queue = queues_[queue_of(group, collective)];
      if (++queue.first == queue.entered.size()) continue;
      const std::int32_t next = queue.entered[queue.first].collective;
      if (comes_next(next)) startable.push_back(next);
    }
    const auto followers = followers_.find(collective);
    if (followers == followers_.end()) return startable;
    for (const std::int32_t next : followers->second) {
      if (comes_next(next)) startable.push_back(next);
    }
    return startable;
  }

 private:
  struct Entry {
    std::int32_t collective = 0;
    std::int64_t instruction = 0;
  };
  struct Queue {
    std::vector<Entry> entered;
    std::size_t first = 0;  ///< the one that runs or comes next
  };

  std::size_t queue_of(std::int32_t group, std::int32_t collective) const {
    return group * queues_per_group_ + program_.collectives[collective].queue;
  }

  /// Notes that one more participant has the collective next, or that one before it has ended, and returns
  /// whether that was all it waited for.
  bool comes_next(std::int32_t collective) {
    const Collective& parts = program_.collectives[collective];
    return ++ready_[collective] == parts.groups.size() + parts.after.size();
  }

  const Program& program_;
  std::size_t queues_per_group_;
  std::vector<Queue> queues_;       ///< those of a group together
  std::vector<std::size_t> ready_;  ///< per collective: participants whose next one it is, and ended ones
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> followers_;  ///< by the one they come after
};

}  // namespace dflop
