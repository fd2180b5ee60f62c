#include "backend/run/routes.hpp"

#include <set>

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

}  // namespace dflop
