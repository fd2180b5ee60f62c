// The processes of a run meet in a rendezvous: they pass each other values through rank 0, and the end of one
// is the end of all.
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

/// A RankWait says what a rank waits for, and since when by host_time().
struct RankWait {
  std::string what;
  Nanoseconds since{};
};

/// A RankState is what is known of a rank from outside of its calls.
struct RankState {
  std::optional<RankWait> wait;
  std::optional<std::string> failure;  ///< for which the run must end
};

/// A Rendezvous is one rank's end. Values are meant for control, not for tensors: all of them pass through
/// rank 0.
///
/// A process that dies, a machine that is lost (noticed within half a minute while nothing is under way to
/// it) and a call of abort() end the run: every other rank's calls throw Aborted with the reason. A rank that
/// waits for longer than the timeout ends it too, by Error (internal) with a list of what each rank was
/// waiting for.
class Rendezvous {
 public:
  /// Listens as rank 0, connects as the others; returns when all have come.
  /// @throws Error (internal) naming the ranks that have not come in time, a port that is taken, or another
  /// run's ranks there, or a token that is not that of rank 0; Error (usage) for a host whose name is not
  /// known.
  explicit Rendezvous(const RendezvousOptions& options);
  /// Ends the connection. Without leave() or abort() before, the others take it for a failure.
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  int rank() const { return options_.rank; }
  int ranks() const { return options_.ranks; }
  Seconds timeout() const { return options_.timeout; }

  /// Gives a value to the others, of at most kMostValueBytes. It can be got `readers` times, by any rank, and
  /// then is forgotten. Until then this rank puts no other under its key.
  /// @throws Error (internal) for a larger one
  void put(const std::string& key, std::string value, int readers = 1);
  /// Returns the value that a rank has put under a key, when it has. `what` is for messages.
  std::string get(int from, const std::string& key, const std::string& what);

  /// Returns all ranks' values at rank 0, by rank, and none elsewhere. All ranks call it, as broadcast(), in
  /// the same order.
  std::vector<std::string> gather(std::string value, const std::string& what);
  /// Returns rank 0's value; those of others are passed over.
  std::string broadcast(std::string value, const std::string& what);

  /// Returns what to add to host_time() of this process to have that of rank 0, to within half of a round
  /// trip.
  Nanoseconds clock_offset();

  /// Ends the run for all ranks, which are told why.
  void abort(const std::string& reason);
  /// Does nothing as long as the run goes on. @throws Aborted, or where this rank was the one that waited for
  /// too long Error (internal), once the run has ended.
  void check();
  /// Says that this rank has come to its end, and waits until all have, or for twice the timeout: by then a
  /// rank that waits for another has reported it, for which rank 0 must be there.
  void leave();

  /// Sets what is called once when the run has ended early, from any thread; at once where it has. Null:
  /// nothing is.
  void on_end(std::function<void()> callback);
  /// Sets what is asked several times a second how this rank is, beside what Waiting says; not to call the
  /// rendezvous. It has a thread of its own and may wait for a device: others hear of the end of the run all
  /// the same, and a rank whose answer is long in coming waits for its device. Null: nothing is, and what was
  /// asked has answered.
  void watch(std::function<RankState()> callback);

  /// A Waiting says while it lives that this rank waits. One at a time; those inside of another count as the
  /// outer one.
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
  /// A Seen is a rank's state, and when it was so: what it waited for then it may have by now.
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
  std::unique_ptr<RendezvousServer> server_;  // of rank 0
  Descriptor connection_;
  FrameBuffer received_;  // of the thread
  std::mutex send_mutex_;

  std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  bool met_ = false;
  bool told_ = false;                   ///< by rank 0 how the run ended
  bool leaves_ = false;                 ///< it has said goodbye
  bool gone_ = false;                   ///< all have left
  std::optional<Deadline> late_since_;  ///< when rank 0 was told that this one waits for too long
  bool was_late_ = false;               ///< this rank has ended the run by waiting, and not heard of it
  std::optional<std::string> ended_;
  std::optional<RankWait> wait_;
  std::optional<Nanoseconds> asked_since_;                     ///< how this rank is, without an answer yet
  Seen seen_;                                                  ///< the last answer, of when it was asked
  std::map<std::pair<int, std::string>, std::string> values_;  // by the rank that has put it, and key
  std::optional<std::string> pong_;

  std::mutex end_mutex_;  // of this, held while it is called
  std::function<void()> on_end_;
  std::mutex watch_mutex_;  // the same of this
  std::function<RankState()> watch_;

  int gathered_ = 0;
  int broadcasts_ = 0;
  std::condition_variable_any tick_;
  std::jthread thread_;   // reads frames; the last: what threads use is there before and after
  std::jthread watcher_;  // asks how this rank is
};

}  // namespace dflop
