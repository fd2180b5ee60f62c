// NCCL on the host: its functions with the waiting that they really do, between threads of one process whose
// streams are those of an AsyncDevice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/nccl/comms.hpp"
#include "backend/nccl/communicator.hpp"
#include "tests/backend/async_device.hpp"

namespace dflop::testing {

/// As NCCL: making a communicator, and its first operation, are in progress until all its ranks have come; a
/// send holds up its stream until its receive is there, and all others theirs; aborting a communicator ends
/// its work that holds up streams, and waits until all of it has come to its end, at once or, of those that
/// are aborted in a group, when the group ends. What breaks a rule of NCCL is noted, and gives
/// ncclInvalidUsage.
const NcclTable& fake_nccl();

/// `gpu`: what the seam's streams are of.
NcclSeam fake_seam(int rank, std::shared_ptr<AsyncGpu> gpu = nullptr);

/// Calls since the last forget, in order: "all_reduce 12 of type 7 as 1 of 2".
std::vector<std::string> fake_nccl_calls();
/// Returns what broke a rule since the last forget, as "a call with an aborted communicator".
std::vector<std::string> fake_nccl_faults();
void forget_fake_nccl_calls();

/// All communicators have this error from now on; ncclSuccess: none.
void break_fake_nccl(ncclResult_t error);

}  // namespace dflop::testing
