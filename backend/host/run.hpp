// A HostRun connects the rank threads of one process: it holds their messages, their collectives and a
// description of what each thread waits for.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/host/cores.hpp"
#include "core/units.hpp"

namespace dflop {

/// A HostMessage is a message in flight between two ranks.
struct HostMessage {
  std::unique_ptr<Buffer> data;
  std::string what;
  std::shared_ptr<DeviceEvent>
      ready;             ///< recorded when the data are ready; null: they were ready when posted
  Nanoseconds posted{};  ///< on the host's clock
};

/// A HostPart is one rank's contribution to a collective.
struct HostPart {
  const void* input = nullptr;
  void* output = nullptr;
  /// On devices that run work later than the thread enqueues it, the event `come` marks when the input is
  /// ready, and `done` marks when this rank's share is done; `done` is recorded before the rank calls
  /// leave(). On synchronous devices both are null: the input is ready, and the share is done, when the
  /// thread gets there.
  std::shared_ptr<DeviceEvent> come;
  std::shared_ptr<DeviceEvent> done;
};

/// A HostCollective is one collective of a group's ranks. Its work is divided into one share per rank. A
/// rank's part does not change between its HostRun::come() and leave(), and the part's memory stays valid.
struct HostCollective {
  CollectiveCall call;                         ///< as passed by the rank that joined first
  std::vector<std::int32_t> ranks;             ///< in the group's order
  std::vector<std::optional<HostPart>> parts;  ///< by index in the group; nullopt until that rank joins
  int first_rank = 0;                          ///< the rank that joined first
  std::size_t come = 0;
  std::size_t taken = 0;    ///< number of shares that take_share() has returned
  std::size_t done = 0;     ///< number of shares that end_share() has announced
  Nanoseconds all_there{};  ///< when the last rank joined, on the host's clock
};

/// A HostRun is shared by all rank threads and is thread-safe. The first failure ends the run: the thread
/// that detects it gets an Error (internal), and all others get Aborted with that error's message.
class HostRun {
 public:
  /// If `cores` is above 0, ranks take turns to compute on this number of cores; if it is 0, they take no
  /// turns.
  /// @throws Error (internal) if there are no ranks, for negative cores, or for a timeout that is not
  /// positive or over a year.
  HostRun(int ranks, Seconds timeout, int cores = 0);

  int ranks() const { return static_cast<int>(ranks_.size()); }

  /// begin() and end() announce that a rank begins or ends.
  /// @throws Error (internal) for a rank that does not exist or has begun before.
  void begin(int rank);
  void end(int rank);

  void abort(int rank, const std::string& reason);

  /// Puts a message into its receiver's mailbox.
  void post(int source, int destination, HostMessage message);
  /// Waits for the next message from source to destination and removes it from the mailbox. It must have
  /// `bytes` bytes.
  HostMessage take(int source, int destination, std::size_t bytes, const std::string& what);

  /// Joins the first collective of the group that the rank has not joined yet, with the rank's part. `place`
  /// is the rank's index in the group.
  std::shared_ptr<HostCollective> come(const RankGroup& group, std::size_t place, const CollectiveCall& call,
                                       const HostPart& part);
  /// Waits until all ranks of the group have joined the collective.
  void wait_for_all(int rank, const HostCollective& collective);
  /// Returns the index of a share that no rank has taken yet; nullopt if all are taken.
  std::optional<std::size_t> take_share(HostCollective& collective);
  /// Announces that a share is done, or that it will never be done because its rank has failed.
  void end_share(HostCollective& collective);
  /// Waits until end_share() was called for all shares; then the ranks may reuse their parts' memory. It
  /// never throws, because once all ranks have joined, all shares get done even if the run ends.
  void leave(int rank, HostCollective& collective);

  /// The next three functions implement a rank's turns (ComputeTurn). join_turns() returns whether the rank
  /// must take turns.
  bool join_turns(int rank, const RankGroup& tp);
  Nanoseconds begin_turn(int rank);
  void end_turn(int rank);
  /// Lets another rank of the tp group use this rank's core while this rank waits. Returns false, and keeps
  /// the core, if no other rank could use it.
  bool pause_turn(int rank);
  void resume_turn(int rank);

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Life : std::uint8_t { not_begun, at_work, ended };

  struct RankState {
    Life life = Life::not_begun;
    std::function<std::string()> waits_for;  ///< describes what the rank waits for; empty if it does not wait
    Nanoseconds since{};
    std::condition_variable woken;
  };

  RankState& state(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  std::deque<HostMessage>& mail(int source, int destination) {
    return mail_[static_cast<std::size_t>(source) * ranks_.size() + static_cast<std::size_t>(destination)];
  }
  void wait(Lock& lock, int rank, const std::function<std::string()>& waits_for,
            const std::function<bool()>& ready);
  void wait_for_core(Lock& lock, int rank);
  void wake(const std::vector<std::int32_t>& ranks) {
    for (const std::int32_t rank : ranks) state(rank).woken.notify_one();
  }
  std::shared_ptr<HostCollective> open_collective(const RankGroup& group, std::size_t place,
                                                  const CollectiveCall& call);
  void check_running() const;
  void end_run(const std::string& reason);
  [[noreturn]] void fail(const std::string& message);
  std::string report(int rank) const;

  std::mutex mutex_;
  const Nanoseconds timeout_;
  std::deque<RankState> ranks_;                // a deque, because condition variables cannot be moved
  std::vector<std::deque<HostMessage>> mail_;  // by source * ranks + destination
  /// The collectives that some ranks have not joined yet, by group and in order.
  std::map<std::vector<std::int32_t>, std::deque<std::shared_ptr<HostCollective>>> open_;
  std::optional<std::string> end_reason_;  // why the run ended
  std::optional<HostCores> cores_;         // nullopt: ranks take no turns
};

}  // namespace dflop
