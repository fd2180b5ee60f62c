#include "backend/host/cores.hpp"

namespace dflop {

HostCores::HostCores(int ranks, int cores) : gate_(cores), seats_(static_cast<std::size_t>(ranks)) {}

void HostCores::join(int rank, const RankGroup& tp) {
  const auto [team, is_new] = team_of_ranks_.try_emplace(tp.ranks, static_cast<std::int32_t>(teams_.size()));
  if (is_new) {
    gate_.add_group(static_cast<std::int32_t>(tp.ranks.size()));
    teams_.push_back({tp, 0, 0, 0, {}, Nanoseconds{0}});
  }
  seat(rank).team = team->second;
}

HostCores::Ranks HostCores::ask(int rank, Nanoseconds now) {
  Team& team = team_of(rank);
  if (++team.asking < team.ranks.ranks.size()) return {};
  team.asking = 0;
  gate_.ask(seat(rank).team);
  return admit(now);
}

HostCores::Ranks HostCores::give_back(int rank, Nanoseconds now) {
  Team& team = team_of(rank);
  leave_seat(rank);
  if (--team.at_work > 0) return fill(team);
  gate_.give_back(seat(rank).team);
  return admit(now);
}

bool HostCores::can_pause(int rank) const {
  const Seat& own = seat(rank);
  if (!own.taken) return false;
  const auto ranks = static_cast<int>(teams_[static_cast<std::size_t>(own.team)].ranks.ranks.size());
  return gate_.cores_of(own.team) < ranks;
}

HostCores::Ranks HostCores::pause(int rank) {
  leave_seat(rank);
  return fill(team_of(rank));
}

HostCores::Ranks HostCores::resume(int rank) {
  team_of(rank).waiting.push_back(rank);
  return fill(team_of(rank));
}

void HostCores::leave_seat(int rank) {
  seat(rank).taken = false;
  ++team_of(rank).free;
}

/// Gives a team's free cores to its waiting ranks.
HostCores::Ranks HostCores::fill(Team& team) {
  Ranks seated;
  while (team.free > 0 && !team.waiting.empty()) {
    seated.push_back(team.waiting.front());
    seat(team.waiting.front()).taken = true;
    team.waiting.pop_front();
    --team.free;
  }
  return seated;
}

/// Begins the turns of all teams that get their cores.
HostCores::Ranks HostCores::admit(Nanoseconds now) {
  Ranks all;
  while (const auto id = gate_.admit()) {
    Team& team = teams_[static_cast<std::size_t>(*id)];
    team.began = now;
    team.at_work = team.ranks.ranks.size();
    team.free = gate_.cores_of(*id);
    team.waiting.assign(team.ranks.ranks.begin(), team.ranks.ranks.end());
    const Ranks seated = fill(team);
    all.insert(all.end(), seated.begin(), seated.end());
  }
  return all;
}

}  // namespace dflop
