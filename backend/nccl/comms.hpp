// NCCL's communicators of one rank: made together with other ranks, used by one thread, and ended from any.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "backend/nccl/table.hpp"
#include "backend/process/rendezvous.hpp"

namespace dflop {

/// None of NCCL's calls may wait for a rank that is gone, so communicators are non-blocking: a call that
/// needs others is entered, and asked about until it is done or the run has ended. Once it has, for whatever
/// reason, all of them are aborted, which ends their kernels, and every call throws as Rendezvous::check().
class NcclComms {
 public:
  /// Both outlive it.
  NcclComms(const NcclTable& table, Rendezvous& rendezvous);
  ~NcclComms();
  NcclComms(const NcclComms&) = delete;
  NcclComms& operator=(const NcclComms&) = delete;

  /// Waits until all `ranks` make theirs; this one has place `place` of them. `key` names it in the whole
  /// run; `most_ctas`: blocks of threads that its kernels may have, 0: as NCCL likes.
  ncclComm_t make(const std::vector<std::int32_t>& ranks, std::size_t place, const std::string& key,
                  int most_ctas);

  /// Calls NCCL and returns when the call's work is in its stream.
  /// @throws Error (internal) with NCCL's reason, which ends the run; as Rendezvous::check().
  void enter(ncclComm_t comm, const std::string& what, const std::function<ncclResult_t()>& call);

  /// What NCCL has found by itself, as a connection that broke. From any thread.
  std::optional<std::string> failure();
  /// From any thread. Nothing can be made or entered afterwards.
  void abort_all();

 private:
  ncclResult_t guarded(const std::function<ncclResult_t()>& call);
  ncclResult_t finish(ncclComm_t comm);
  [[noreturn]] void fail(const std::string& what, ncclResult_t result);
  std::string reason(ncclResult_t result) const;
  bool in_progress(ncclComm_t comm) const;

  const NcclTable& table_;
  Rendezvous& rendezvous_;
  std::mutex mutex_;  // of the following, and held in every call of NCCL
  /// At places that stay: NCCL writes a communicator to its place once more when it is made, by a thread of
  /// its own, which ends with the communicator and not with the call that waits for it.
  std::deque<ncclComm_t> comms_;
  bool ended_ = false;
};

}  // namespace dflop
