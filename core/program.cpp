#include "core/program.hpp"

#include <algorithm>
#include <array>

namespace dflop {

std::string_view to_string(Op op) {
  constexpr std::array<std::string_view, kOps> names = {
      "forward",    "backward",         "backward_input",  "backward_weight",
      "send",       "receive",          "reshard_send",    "reshard_receive",
      "all_reduce", "all_reduce_start", "all_reduce_wait", "optimizer_step"};
  return names[static_cast<std::size_t>(op)];
}

int Program::ranks() const {
  int ranks = 0;
  for (const Group& group : groups) ranks = std::max(ranks, group.first_rank + group.ranks);
  return ranks;
}

}  // namespace dflop
