// The rank threads of a run share a HostRun: the mail between them, the collectives that they meet in, and
// what each of them waits for.
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

/// A HostMessage is on its way from one rank to another.
struct HostMessage {
  std::unique_ptr<Buffer> data;
  std::string what;
  std::shared_ptr<DeviceEvent> ready;  ///< when the data is there; none where it was when it was posted
  Nanoseconds posted{};                ///< on the host's clock
};

/// A HostPart is what a rank brings to a collective.
struct HostPart {
  const void* input = nullptr;
  void* output = nullptr;
  /// This event tells, where streams run behind their threads, when the input is there; the next, when this
  /// rank's share is done, which is recorded before the rank leaves. Null: both are as the thread comes to
  /// them.
  std::shared_ptr<DeviceEvent> come;
  std::shared_ptr<DeviceEvent> done;
};

/// A HostCollective is one meeting of a group's ranks. Its work is cut into as many shares as it has ranks.
/// From come() to leave() its parts do not change, and their memory is there.
struct HostCollective {
  CollectiveCall call;              ///< of the rank that came first
  std::vector<std::int32_t> ranks;  ///< of the group, in its order
  std::vector<std::optional<HostPart>>
      parts;           ///< by place in the group; none as long as that rank has not come
  int first_rank = 0;  ///< that came first
  std::size_t come = 0;
  std::size_t taken = 0;    ///< shares, by take_share()
  std::size_t done = 0;     ///< shares
  Nanoseconds all_there{};  ///< when the last rank came, on the host's clock
};

/// A HostRun is shared by all rank threads; every function may be called from any of them. The first failure
/// ends the run: whoever finds it gets an Error (internal), and everybody else Aborted with its text.
class HostRun {
 public:
  /// Ranks take turns to compute on so many cores; 0: every rank has one.
  /// @throws Error (internal) without ranks, for negative cores, or for a timeout that is not positive or
  /// over a year.
  HostRun(int ranks, Seconds timeout, int cores = 0);

  int ranks() const { return static_cast<int>(ranks_.size()); }

  /// These say that a rank begins or ends. @throws Error (internal) for a rank that is not there or has begun
  /// before.
  void begin(int rank);
  void end(int rank);

  void abort(int rank, const std::string& reason);

  /// Puts a message into the mailbox of its receiver.
  void post(int source, int destination, HostMessage message);
  /// Waits for the next message from source to destination, whose bytes must be as many as expected.
  HostMessage take(int source, int destination, std::size_t bytes, const std::string& what);

  /// Brings a rank's part to its group's next collective that it has not come to. `place` is that of the rank
  /// in the group.
  std::shared_ptr<HostCollective> come(const RankGroup& group, std::size_t place, const CollectiveCall& call,
                                       const HostPart& part);
  /// Waits until all others have come.
  void wait_for_all(int rank, const HostCollective& collective);
  /// Returns a share that nobody has taken; none where all are.
  std::optional<std::size_t> take_share(HostCollective& collective);
  /// Says that a share is done, or never will be, as its rank has failed.
  void end_share(HostCollective& collective);
  /// Waits until all shares are done, after which the parts' memory is the ranks' own again. Never throws:
  /// once all have come, all shares are done, whatever becomes of the run.
  void leave(int rank, HostCollective& collective);

  /// These give a rank its turns (ComputeTurn). join_turns() returns whether the rank has to take turns at
  /// all.
  bool join_turns(int rank, const RankGroup& tp);
  Nanoseconds begin_turn(int rank);
  void end_turn(int rank);
  /// Lets another rank of the tp group compute while this one waits for it; false where no other needs that.
  bool pause_turn(int rank);
  void resume_turn(int rank);

 private:
  using Lock = std::unique_lock<std::mutex>;
  enum class Life : std::uint8_t { not_begun, at_work, ended };

  struct RankState {
    Life life = Life::not_begun;
    std::function<std::string()> waits_for;  ///< empty where it does not wait
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
  std::deque<RankState> ranks_;                // a deque, as condition variables cannot be moved
  std::vector<std::deque<HostMessage>> mail_;  // by source * ranks + destination
  /// By group, those to which not all have come, in their order.
  std::map<std::vector<std::int32_t>, std::deque<std::shared_ptr<HostCollective>>> open_;
  std::optional<std::string> end_reason_;  // of the whole run
  std::optional<HostCores> cores_;         // none: every rank has one
};

}  // namespace dflop
