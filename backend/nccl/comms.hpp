// NcclComms holds one rank's NCCL communicators. A communicator is created together with other ranks and
// used by one thread; any thread may abort it.
#pragma once

#include <nccl.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "backend/process/rendezvous.hpp"
#include "core/support/clock.hpp"
#include "core/support/shared_library.hpp"

namespace dflop {

/// An NcclTable holds NCCL's functions, which are looked up in NCCL's library when a run first needs them.
/// Tests use their own table.
struct NcclTable : FunctionTable {
  using FunctionTable::FunctionTable;

  decltype(&ncclGetVersion) get_version = function("ncclGetVersion");
  decltype(&ncclGetUniqueId) get_unique_id = function("ncclGetUniqueId");
  decltype(&ncclCommInitRankConfig) comm_init_rank_config = function("ncclCommInitRankConfig");
  decltype(&ncclCommAbort) comm_abort = function("ncclCommAbort");
  decltype(&ncclGroupStart) group_start = function("ncclGroupStart");
  decltype(&ncclGroupEnd) group_end = function("ncclGroupEnd");
  decltype(&ncclCommGetAsyncError) comm_get_async_error = function("ncclCommGetAsyncError");
  decltype(&ncclGetErrorString) get_error_string = function("ncclGetErrorString");
  decltype(&ncclGetLastError) get_last_error = function("ncclGetLastError");
  decltype(&ncclSend) send = function("ncclSend");
  decltype(&ncclRecv) recv = function("ncclRecv");
  decltype(&ncclAllReduce) all_reduce = function("ncclAllReduce");
  decltype(&ncclAllGather) all_gather = function("ncclAllGather");
  decltype(&ncclReduceScatter) reduce_scatter = function("ncclReduceScatter");
};

/// Looks up NCCL's functions. @throws Error (no_device) if the library is missing or require_version()
/// rejects it
NcclTable load_nccl();

/// Checks that NCCL is 2.25 or newer. From that version on, every call on a non-blocking communicator runs
/// in a thread of NCCL. Older versions enqueue the work in the caller's thread. If the queue is full, the
/// call then blocks the thread that would abort it.
/// @throws Error (no_device) that names `library` and its version, and says what to do
void require_version(const NcclTable& table, const std::string& library);

/// Returns NCCL's version number as text: "2.28.9".
std::string nccl_version_text(int version);

/// A PollClock gives the time and lets the thread sleep. Tests use their own clock.
struct PollClock {
  std::function<Nanoseconds()> now = host_time;
  std::function<void(Nanoseconds)> sleep = [](Nanoseconds time) { std::this_thread::sleep_for(time); };
};

/// A thread that waits for an NCCL call first polls without sleeping, for kAskWithoutSleep. Most calls are
/// done by then. Afterwards it sleeps for kSleepBetween between polls.
inline constexpr Nanoseconds kAskWithoutSleep{50'000};
inline constexpr Nanoseconds kSleepBetween{20'000};

/// NcclComms holds a rank's communicators. No NCCL call may wait for a rank that is gone, so communicators
/// are non-blocking: a call that needs other ranks is entered and then polled until it is done or the run
/// has ended. When the run ends for any reason, all communicators are aborted, which ends their kernels.
/// Every call then throws what Rendezvous::check() throws.
class NcclComms {
 public:
  /// The table and the rendezvous must outlive this object.
  NcclComms(const NcclTable& table, Rendezvous& rendezvous, PollClock clock = {})
      : table_(table), rendezvous_(rendezvous), clock_(std::move(clock)) {}
  ~NcclComms() { abort_all(); }
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  /// Makes a communicator of `ranks`; all of them must call this function. `place` is this rank's index in
  /// `ranks`. `key` is the communicator's unique name in the run. `most_ctas` is the max number of thread
  /// blocks of its kernels; 0: NCCL decides.
  ncclComm_t make(const std::vector<std::int32_t>& ranks, std::size_t place, const std::string& key,
                  int most_ctas);

  /// Calls NCCL and returns when the call's work is in its stream.
  /// @throws Error (internal) with NCCL's reason if the call fails, which ends the run; what
  /// Rendezvous::check() throws
  void enter(ncclComm_t comm, const std::string& what, const std::function<ncclResult_t()>& call);

  /// Returns a failure that NCCL has detected outside of calls, such as a broken connection; nullopt if
  /// there is none. Thread-safe.
  std::optional<std::string> failure();
  /// Aborts all communicators. Afterwards make() and enter() fail. Thread-safe.
  void abort_all();

 private:
  ncclResult_t guarded(const std::function<ncclResult_t()>& call);
  void finish(ncclComm_t comm, const std::string& what, ncclResult_t result);
  [[noreturn]] void fail(const std::string& what, ncclResult_t result);
  std::string reason(ncclResult_t result) const;
  ncclResult_t state_of(ncclComm_t comm) const;

  const NcclTable& table_;
  Rendezvous& rendezvous_;
  PollClock clock_;
  std::mutex mutex_;  // guards comms_ and ended_; held during every NCCL call
  /// A deque, because the addresses of its elements must not change: NCCL's own thread writes a new
  /// communicator to its address a second time, possibly after make() has stopped waiting. That thread ends
  /// with the communicator.
  std::deque<ncclComm_t> comms_;
  bool ended_ = false;
};

}  // namespace dflop
