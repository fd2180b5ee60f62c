#include "backend/communicator.hpp"

#include <algorithm>
#include <numeric>

namespace dflop {
namespace {

[[noreturn]] void fail(const Communicator& communicator, const std::string& does, const std::string& why) {
  throw Error(ErrorKind::internal, rank_name(communicator.rank()) + " " + does + ": " + why);
}

std::string known_ranks(const Communicator& communicator) {
  return "0 to " + std::to_string(communicator.ranks() - 1);
}

}  // namespace

RankGroup consecutive_ranks(int first, int count) {
  RankGroup group{std::vector<std::int32_t>(static_cast<std::size_t>(count))};
  std::iota(group.ranks.begin(), group.ranks.end(), first);
  return group;
}

void require_peer(const Communicator& communicator, int peer, const std::string& does) {
  const std::string call = does + " rank " + std::to_string(peer);
  if (peer == communicator.rank()) {
    fail(communicator, call, "a rank cannot send to or receive from itself; copy on a stream instead");
  }
  if (peer < 0 || peer >= communicator.ranks()) {
    fail(communicator, call, "the run has ranks " + known_ranks(communicator));
  }
}

std::size_t place_in(const RankGroup& group, const Communicator& communicator, const std::string& what) {
  std::vector<std::int32_t> sorted = group.ranks;
  std::sort(sorted.begin(), sorted.end());
  const bool distinct = std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end();
  const auto own = std::find(group.ranks.begin(), group.ranks.end(), communicator.rank());
  if (own == group.ranks.end() || !distinct || sorted.front() < 0 || sorted.back() >= communicator.ranks()) {
    fail(communicator, "enters a collective of " + what,
         "its group must contain this rank, and no rank twice, from ranks " + known_ranks(communicator));
  }
  return static_cast<std::size_t>(own - group.ranks.begin());
}

}  // namespace dflop
