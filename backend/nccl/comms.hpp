// NcclComms has NCCL's communicators of one rank: made together with other ranks, used by one thread, and
// ended from any.
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

/// An NcclTable has functions as NCCL documents them, looked up in its library when a run first needs them.
/// Tests have their own.
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

/// Looks up NCCL's functions. @throws Error (no_device) where the library is missing, as require_version().
NcclTable load_nccl();

/// Checks that NCCL is 2.25 or newer. From then on every call on a non-blocking communicator has a thread of
/// its own; before, one enters its work in the caller's, and with a full queue holds up who would abort it.
/// @throws Error (no_device) that names `library`, its version and what to do.
void require_version(const NcclTable& table, const std::string& library);

/// Returns "2.28.9" for NCCL's number of a version.
std::string nccl_version_text(int version);

/// A PollClock tells the time and sleeps; tests have their own.
struct PollClock {
  std::function<Nanoseconds()> now = host_time;
  std::function<void(Nanoseconds)> sleep = [](Nanoseconds time) { std::this_thread::sleep_for(time); };
};

/// Whoever waits for a call of NCCL asks again and again for so long, as most calls need no longer, and then
/// sleeps so long between two questions.
inline constexpr Nanoseconds kAskWithoutSleep{50'000};
inline constexpr Nanoseconds kSleepBetween{20'000};

/// NcclComms has a rank's communicators. None of NCCL's calls may wait for a rank that is gone, so
/// communicators are non-blocking: a call that needs others is entered, and asked about until it is done or
/// the run has ended. Once it has, for whatever reason, all of them are aborted, which ends their kernels,
/// and every call throws as Rendezvous::check().
class NcclComms {
 public:
  /// Takes the table and the rendezvous, which outlive it.
  NcclComms(const NcclTable& table, Rendezvous& rendezvous, PollClock clock = {})
      : table_(table), rendezvous_(rendezvous), clock_(std::move(clock)) {}
  ~NcclComms() { abort_all(); }
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  /// Makes a communicator when all `ranks` make theirs; this one has place `place` of them. `key` names it in
  /// the whole run; `most_ctas`: blocks of threads that its kernels may have, 0: as NCCL likes.
  ncclComm_t make(const std::vector<std::int32_t>& ranks, std::size_t place, const std::string& key,
                  int most_ctas);

  /// Calls NCCL and returns when the call's work is in its stream.
  /// @throws Error (internal) with NCCL's reason, which ends the run; as Rendezvous::check().
  void enter(ncclComm_t comm, const std::string& what, const std::function<ncclResult_t()>& call);

  /// Returns what NCCL has found by itself, as a connection that broke. From any thread.
  std::optional<std::string> failure();
  /// Aborts all communicators, from any thread. Nothing can be made or entered afterwards.
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
  std::mutex mutex_;  // of the following, and held in every call of NCCL
  /// Communicators are at places that stay: NCCL writes a communicator to its place once more when it is
  /// made, by a thread of its own, which ends with the communicator and not with the call that waits for it.
  std::deque<ncclComm_t> comms_;
  bool ended_ = false;
};

}  // namespace dflop
