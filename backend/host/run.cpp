#include "backend/host/run.hpp"

#include <chrono>
#include <utility>

#include "core/error.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

/// Returns "all-reduce of gradients of stage 1 (12 f32)".
std::string in_words(const CollectiveCall& call) {
  return std::string(to_string(call.kind)) + " of " + call.what + " (" + std::to_string(call.count) + " " +
         std::string(to_string(call.element)) + ")";
}

bool same_operation(const CollectiveCall& a, const CollectiveCall& b) {
  return a.kind == b.kind && a.count == b.count && a.element == b.element;
}

/// Returns "all-reduce of gradients of stage 1 (12 f32) with ranks 2, 5, which have not come".
std::string missing_in(const HostCollective& collective) {
  std::string missing;
  for (std::size_t place = 0; place < collective.ranks.size(); ++place) {
    if (collective.parts[place]) continue;
    missing += (missing.empty() ? "" : ", ") + std::to_string(collective.ranks[place]);
  }
  return in_words(collective.call) + ", which these ranks have not joined: " + missing;
}

Nanoseconds checked(Seconds timeout) {
  constexpr Seconds year{365.0 * 24 * 3600};
  if (timeout > Seconds{0} && timeout <= year) return to_nanoseconds(timeout);
  throw Error(ErrorKind::internal, "a run's timeout is positive and at most a year, not " +
                                       std::to_string(timeout.count()) + " s");
}

int checked(int ranks) {
  if (ranks >= 1) return ranks;
  throw Error(ErrorKind::internal, "expected a run of at least 1 rank, found " + std::to_string(ranks));
}

}  // namespace

HostRun::HostRun(int ranks, Seconds timeout, int cores)
    : timeout_(checked(timeout)),
      ranks_(static_cast<std::size_t>(checked(ranks))),
      mail_(static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks)) {
  if (cores < 0)
    throw Error(ErrorKind::internal, "expected at least 0 cores, found " + std::to_string(cores));
  if (cores > 0 && cores < ranks) cores_.emplace(ranks, cores);
}

void HostRun::begin(int rank) {
  const Lock lock(mutex_);
  if (rank < 0 || rank >= ranks()) {
    throw Error(ErrorKind::internal,
                "expected a rank from 0 to " + std::to_string(ranks() - 1) + ", found " + rank_name(rank));
  }
  if (state(rank).life != Life::not_begun) {
    throw Error(ErrorKind::internal,
                rank_name(rank) + " already has a communicator; a run gives each rank only one");
  }
  state(rank).life = Life::at_work;
}

void HostRun::end(int rank) {
  const Lock lock(mutex_);
  state(rank).life = Life::ended;
}

void HostRun::abort(int rank, const std::string& reason) {
  const Lock lock(mutex_);
  end_run(rank_name(rank) + " ended the run: " + reason);
}

void HostRun::post(int source, int destination, HostMessage message) {
  const Lock lock(mutex_);
  check_running();
  message.posted = host_time();
  mail(source, destination).push_back(std::move(message));
  state(destination).woken.notify_one();
}

HostMessage HostRun::take(int source, int destination, std::size_t bytes, const std::string& what) {
  Lock lock(mutex_);
  check_running();
  std::deque<HostMessage>& box = mail(source, destination);
  wait(
      lock, destination, [&] { return what + " from " + rank_name(source); }, [&] { return !box.empty(); });
  HostMessage message = std::move(box.front());
  box.pop_front();
  if (message.data->bytes() != bytes) {
    fail(rank_name(destination) + " receives " + what + " (" + std::to_string(bytes) + " bytes), but " +
         rank_name(source) + " sent " + message.what + " (" + std::to_string(message.data->bytes()) +
         " bytes); messages between two ranks must be received in the order in which they were sent");
  }
  return message;
}

std::shared_ptr<HostCollective> HostRun::come(const RankGroup& group, std::size_t place,
                                              const CollectiveCall& call, const HostPart& part) {
  const Lock lock(mutex_);
  check_running();
  std::shared_ptr<HostCollective> collective = open_collective(group, place, call);
  collective->parts[place] = part;
  if (++collective->come == group.ranks.size()) {
    collective->all_there = host_time();
    open_.at(group.ranks).pop_front();  // ranks come to all collectives of a group in the same order
    wake(group.ranks);
  }
  return collective;
}

void HostRun::wait_for_all(int rank, const HostCollective& collective) {
  Lock lock(mutex_);
  wait(
      lock, rank, [&] { return missing_in(collective); },
      [&] { return collective.come == collective.ranks.size(); });
}

/// Returns the group's first collective to which the rank has not come; it may be a new one.
std::shared_ptr<HostCollective> HostRun::open_collective(const RankGroup& group, std::size_t place,
                                                         const CollectiveCall& call) {
  const int rank = group.ranks[place];
  for (const std::shared_ptr<HostCollective>& open : open_[group.ranks]) {
    if (open->parts[place]) continue;
    if (!same_operation(open->call, call)) {
      fail(rank_name(rank) + " enters " + in_words(call) + ", but " + rank_name(open->first_rank) +
           " waits in " + in_words(open->call) +
           "; all ranks of a group must enter the same collectives in the same order");
    }
    return open;
  }
  const auto made = std::make_shared<HostCollective>();
  made->call = call;
  made->ranks = group.ranks;
  made->parts.resize(group.ranks.size());
  made->first_rank = rank;
  return open_[group.ranks].emplace_back(made);
}

std::optional<std::size_t> HostRun::take_share(HostCollective& collective) {
  const Lock lock(mutex_);
  if (collective.taken == collective.ranks.size()) return std::nullopt;
  return collective.taken++;
}

void HostRun::end_share(HostCollective& collective) {
  const Lock lock(mutex_);
  if (++collective.done == collective.ranks.size()) wake(collective.ranks);
}

void HostRun::leave(int rank, HostCollective& collective) {
  Lock lock(mutex_);
  state(rank).woken.wait(lock, [&] { return collective.done == collective.ranks.size(); });
}

bool HostRun::join_turns(int rank, const RankGroup& tp) {
  const Lock lock(mutex_);
  if (cores_) cores_->join(rank, tp);
  return cores_.has_value();
}

Nanoseconds HostRun::begin_turn(int rank) {
  Lock lock(mutex_);
  check_running();
  wake(cores_->ask(rank, host_time()));
  wait_for_core(lock, rank);
  return cores_->turn_began(rank);
}

void HostRun::end_turn(int rank) {
  const Lock lock(mutex_);
  wake(cores_->give_back(rank, host_time()));
}

bool HostRun::pause_turn(int rank) {
  if (!cores_) return false;
  const Lock lock(mutex_);
  if (!cores_->can_pause(rank)) return false;
  wake(cores_->pause(rank));
  return true;
}

void HostRun::resume_turn(int rank) {
  Lock lock(mutex_);
  wake(cores_->resume(rank));
  wait_for_core(lock, rank);
}

void HostRun::wait_for_core(Lock& lock, int rank) {
  wait(
      lock, rank, [] { return std::string("a core"); }, [&] { return cores_->may_compute(rank); });
}

/// Waits until ready() is true. If that holds when the run ends, the call still succeeds, because other ranks
/// count on it.
void HostRun::wait(Lock& lock, int rank, const std::function<std::string()>& waits_for,
                   const std::function<bool()>& ready) {
  RankState& own = state(rank);
  own.waits_for = waits_for;
  own.since = host_time();
  own.woken.wait_until(lock, std::chrono::steady_clock::now() + timeout_,
                       [&] { return ready() || end_reason_.has_value(); });
  const bool too_late = !ready() && !end_reason_;
  const std::string message = too_late ? report(rank) : "";
  own.waits_for = nullptr;
  if (too_late) fail(message);
  if (!ready()) check_running();
}

void HostRun::check_running() const {
  if (end_reason_) throw Aborted(ErrorKind::internal, *end_reason_);
}

/// Ends the run. The first reason is kept, because later failures are its consequences.
void HostRun::end_run(const std::string& reason) {
  if (end_reason_) return;
  end_reason_ = reason;
  for (RankState& rank : ranks_) rank.woken.notify_one();
}

void HostRun::fail(const std::string& message) {
  end_run(message);
  throw Error(ErrorKind::internal, message);
}

/// Returns the report of a run in which `rank` has waited too long.
std::string HostRun::report(int rank) const {
  std::string text = rank_name(rank) + " waited for longer than " + in_seconds(timeout_) + ":";
  for (std::size_t r = 0; r < ranks_.size(); ++r) {
    const RankState& state = ranks_[r];
    text += "\n  " + rank_name(static_cast<int>(r));
    if (state.life == Life::not_begun) {
      text += " has not begun";
    } else if (state.life == Life::ended) {
      text += " has ended";
    } else if (!state.waits_for) {
      text += " is not waiting";
    } else {
      text += " waits for " + state.waits_for() + " (" + in_seconds(host_time() - state.since) + ")";
    }
  }
  return text;
}

}  // namespace dflop
