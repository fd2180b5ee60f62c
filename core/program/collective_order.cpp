#include "core/program/collective_order.hpp"

namespace dflop {

CollectiveOrder::CollectiveOrder(const Program& program)
    : program_(program),
      queues_(program.collectives.empty() ? 0 : program.groups.size()),
      ready_(program.collectives.size(), 0) {}

bool CollectiveOrder::enter(std::int32_t group, std::int32_t collective, std::int64_t instruction) {
  Queue& queue = queues_[group];
  queue.entered.push_back({collective, instruction});
  return queue.entered.size() == queue.first + 1 && comes_next(collective);
}

std::vector<std::int32_t> CollectiveOrder::end(std::int32_t collective) {
  std::vector<std::int32_t> startable;
  for (const std::int32_t group : program_.collectives[collective].groups) {
    Queue& queue = queues_[group];
    if (++queue.first == queue.entered.size()) continue;
    const std::int32_t next = queue.entered[queue.first].collective;
    if (comes_next(next)) startable.push_back(next);
  }
  return startable;
}

/// Notes that one more participant has the collective next, and returns whether all have.
bool CollectiveOrder::comes_next(std::int32_t collective) {
  return ++ready_[collective] == program_.collectives[collective].groups.size();
}

}  // namespace dflop
