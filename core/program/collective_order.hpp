// A CollectiveOrder says when collectives may start.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// A CollectiveOrder tracks which collectives may start. A group runs the collectives that it has entered in
/// one queue one after another, in order of entry, as a GPU runs the kernels of one stream. So a collective
/// may start when all participants have entered it, no participant has an earlier collective left in the same
/// queue, and all collectives in Collective::after have ended.
class CollectiveOrder {
 public:
  /// `program` must outlive this object.
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

  /// Enters a collective for a group. Returns whether the collective may start now. `instruction` is the
  /// group's instruction that enters it.
  bool enter(std::int32_t group, std::int32_t collective, std::int64_t instruction) {
    Queue& queue = queues_[queue_of(group, collective)];
    queue.entered.push_back({collective, instruction});
    return queue.entered.size() == queue.first + 1 && comes_next(collective);
  }

  /// Returns the instruction with which the group entered the collective. @pre the collective is the first of
  /// the group's queue that has not ended
  std::int64_t entry(std::int32_t group, std::int32_t collective) const {
    const Queue& queue = queues_[queue_of(group, collective)];
    return queue.entered[queue.first].instruction;
  }

  /// Marks a running collective as ended. Returns the collectives that may start now: first those that come
  /// next in its participants' queues, then those that wait for it (Collective::after).
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
    std::size_t first = 0;  ///< index of the entry that runs or comes next
  };

  std::size_t queue_of(std::int32_t group, std::int32_t collective) const {
    return group * queues_per_group_ + program_.collectives[collective].queue;
  }

  /// Records that one more condition of the collective is met: it is next in the queue of a participant, or a
  /// collective that it waits for has ended. Returns whether all its conditions are met.
  bool comes_next(std::int32_t collective) {
    const Collective& parts = program_.collectives[collective];
    return ++ready_[collective] == parts.groups.size() + parts.after.size();
  }

  const Program& program_;
  std::size_t queues_per_group_;
  std::vector<Queue> queues_;       ///< the queues of a group are adjacent
  std::vector<std::size_t> ready_;  ///< per collective: participants for which it is next, plus ended `after`
  std::unordered_map<std::int32_t, std::vector<std::int32_t>> followers_;  ///< by the collective they await
};

}  // namespace dflop
