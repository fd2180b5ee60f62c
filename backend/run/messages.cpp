#include "backend/run/messages.hpp"

#include <set>
#include <utility>

namespace dflop {

std::vector<int> receivers_of(int place, int senders, int receivers) {
  std::vector<int> places;
  for (int t = place; t < receivers; t += senders) places.push_back(t);
  return places;
}

std::vector<RankRoute> routes_of(const Program& program) {
  std::set<RankRoute> routes;
  for (const Message& message : program.messages) {
    const Group& from = program.groups[static_cast<std::size_t>(message.source)];
    const Group& to = program.groups[static_cast<std::size_t>(message.destination)];
    for (int p = 0; p < from.ranks; ++p) {
      for (const int t : receivers_of(p, from.ranks, to.ranks)) {
        routes.insert({from.first_rank + p, to.first_rank + t});
      }
    }
  }
  return {routes.begin(), routes.end()};
}

IncomingMessages::IncomingMessages(const Program& program, std::size_t group) {
  std::set<std::pair<int, int>> forwarded;  // stage and microbatch
  for (const Instruction& i : program.instructions_of(program.groups[group])) {
    const std::pair<int, int> key{i.stage, i.microbatch};
    if (i.op == Op::forward) forwarded.insert(key);
    if (!is_receive(i.op)) continue;
    const Message& message = program.messages[static_cast<std::size_t>(i.index)];
    incoming_[i.index] = {i, forwarded.count(key) == 0};
    source_of_[i.index] = message.source;
    sent_by_[message.source];
  }
  for (auto& [source, messages] : sent_by_) {
    for (const Instruction& i : program.instructions_of(program.groups[static_cast<std::size_t>(source)])) {
      if (is_send(i.op) && source_of_.count(i.index) > 0) messages.push_back(i.index);
    }
  }
}

std::vector<std::int32_t> IncomingMessages::take_until(std::int32_t message) {
  std::vector<std::int32_t> taken;
  const auto source = source_of_.find(message);
  if (source == source_of_.end()) return taken;
  std::deque<std::int32_t>& messages = sent_by_.at(source->second);
  while (taken.empty() || taken.back() != message) {
    taken.push_back(messages.front());
    messages.pop_front();
    source_of_.erase(taken.back());
  }
  return taken;
}

}  // namespace dflop
