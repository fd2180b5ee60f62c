// A Rendezvous connects the processes of a run. Processes exchange values through rank 0. If one process
// fails, the run ends for all processes.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/communicator.hpp"
#include "backend/process/rendezvous_server.hpp"

namespace dflop {

/// A RankWait says what a rank waits for, and since when (host_time()).
struct RankWait {
  std::string what;
  Nanoseconds since{};
};

/// A RankState is a rank's state that the callback of Rendezvous::watch() reports, for example from the
/// rank's device.
struct RankState {
  std::optional<RankWait> wait;
  std::optional<std::string> failure;  ///< a failure that must end the run
};

/// A Rendezvous is one rank's endpoint for exchanging values. All values pass through rank 0, so they should
/// carry control data, not tensors.
///
/// The run ends if a process dies, if a machine is lost (detected within half a minute on idle connections)
/// or if a rank calls abort(). Every other rank's calls then throw Aborted with the reason. A rank that
/// waits longer than the timeout also ends the run, with an Error (internal) that lists what each rank was
/// waiting for.
class Rendezvous {
 public:
  /// Listens if this is rank 0, otherwise connects. Returns when all ranks have joined.
  /// @throws Error (internal) that names the ranks that did not join in time, a port that is in use or serves
  /// another run, or a token that differs from rank 0's; Error (usage) for an unknown host name.
  explicit Rendezvous(const RendezvousOptions& options);
  /// Closes the connection. If neither leave() nor abort() was called before, the other ranks treat this as
  /// a failure.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks; }
  Seconds timeout() const { return options_.timeout; }

  /// Offers a value of at most kMaxValueBytes to the other ranks. Any ranks may get it, until they have got
  /// it `readers` times in total; then it is dropped. Until it is dropped, this rank must not put another
  /// value under the same key.
  /// @throws Error (internal) for a larger value
  void put(const std::string& key, std::string value, int readers = 1);
  /// Waits until the rank `from` has put a value under a key, and returns the value. `what` names the value
  /// in messages.
  std::string get(int from, const std::string& key, const std::string& what);

  /// On rank 0, returns all ranks' values, by rank; on other ranks, returns an empty list. All ranks must
  /// call gather() and broadcast() in the same order.
  std::vector<std::string> gather(std::string value, const std::string& what);
  /// Returns rank 0's value on every rank; the values of other ranks are ignored.
  std::string broadcast(std::string value, const std::string& what);

  /// Returns the offset between clocks: rank 0's host_time() is this process's host_time() plus the offset.
  /// The error is at most half a round trip.
  Nanoseconds clock_offset();

  /// Ends the run for all ranks, which get the reason.
  void abort(const std::string& reason);
  /// Throws if the run has ended.
  /// @throws Error (internal), once, if this rank ended the run by waiting too long; otherwise Aborted
  void check();
  /// Announces that this rank has finished and waits until all ranks have, but at most twice the timeout.
  /// Rank 0 must stay so long because it serves the other ranks: a rank that still waits must be able to
  /// report its timeout.
  void leave();

  /// Sets a callback that is called once, from any thread, when the run ends early. If the run has ended
  /// early already, it is called at once. Null removes the callback.
  void on_end(std::function<void()> callback);
  /// Sets a callback that returns this rank's state and is called several times a second. A wait that
  /// Waiting marks takes precedence over the callback's. The callback must not call the rendezvous. It runs
  /// in its own thread and may wait for a device: meanwhile the end of the run still reaches the other
  /// ranks, and a rank whose callback takes long counts as waiting for its device. Null removes the
  /// callback, after a running call has returned.
  void watch(std::function<RankState()> callback);

  /// A Waiting marks this rank as waiting for `what` during its lifetime. If Waitings are nested, only the
  /// outermost counts.
  class Waiting {
   public:
    Waiting(Rendezvous& rendezvous, std::string what);
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Rendezvous& rendezvous_;
    bool outer_;
  };

 private:
  using Lock = std::unique_lock<std::mutex>;

  void run(const std::stop_token& stop);
  bool read();
  void handle(Frame frame);
  void check_wait();
  void watch_rank(const std::stop_token& stop);
  void ask();
  /// A Seen is a rank's state as observed at a time; the state may have changed since then.
  struct Seen {
    RankState state;
    Nanoseconds at{};
  };
  Seen state();
  void send(const Frame& frame);
  void end_run(const std::string& reason, bool was_late = false);
  void call_on_end();
  bool has_ended();
  void check_held();
  std::string address() const { return options_.host + ":" + std::to_string(options_.port); }

  const RendezvousOptions options_;
  std::unique_ptr<RendezvousServer> server_;  // only on rank 0
  Descriptor connection_;
  FrameBuffer received_;  // used only by thread_
  std::mutex send_mutex_;

  std::mutex mutex_;  // guards the following members
  std::condition_variable changed_;
  bool met_ = false;
  bool told_ = false;                   ///< rank 0 has told this rank how the run ended
  bool leaves_ = false;                 ///< this rank has said goodbye
  bool gone_ = false;                   ///< all ranks have left
  std::optional<Deadline> late_since_;  ///< when this rank reported to rank 0 that it has waited too long
  bool was_late_ = false;               ///< this rank waited too long, and no call has thrown that error yet
  std::optional<std::string> ended_;
  std::optional<RankWait> wait_;
  std::optional<Nanoseconds> asked_since_;  ///< start of the running call of the watch() callback, if any
  Seen seen_;                               ///< the callback's last answer, and when the callback was called
  std::map<std::pair<int, std::string>, std::string> values_;  // arrived values, by putting rank and key
  std::optional<std::string> pong_;

  std::mutex end_mutex_;  // guards on_end_; held while on_end_ is called
  std::function<void()> on_end_;
  std::mutex watch_mutex_;  // guards watch_; held while watch_ is called
  std::function<RankState()> watch_;

  int gathered_ = 0;
  int broadcasts_ = 0;
  std::condition_variable_any tick_;
  std::jthread thread_;   // reads frames; declared last, so that the threads' data outlive them
  std::jthread watcher_;  // calls watch_
};

}  // namespace dflop
