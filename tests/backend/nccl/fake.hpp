// A fake NCCL on the host: its functions wait like the real ones, between threads of one process with streams
// of an AsyncDevice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/nccl/comms.hpp"
#include "backend/nccl/communicator.hpp"
#include "tests/backend/async_device.hpp"

namespace dflop::testing {

/// Returns functions that behave like NCCL. Making a communicator and its first operation are in progress
/// until all its ranks have arrived. Sends and other operations block their stream until their peers have
/// arrived. Aborting a communicator ends its blocking work and waits until all of its work has ended: at once
/// or, for aborts in a group, when the group ends. Violations of NCCL's rules are recorded and return
/// ncclInvalidUsage.
const NcclTable& fake_nccl();

/// `gpu` is the GPU of the seam's streams.
NcclSeam fake_seam(int rank, std::shared_ptr<AsyncGpu> gpu = nullptr);

/// Returns the calls since the last forget_fake_nccl_calls(), in order: "all_reduce 12 of type 7 as 1 of 2".
std::vector<std::string> fake_nccl_calls();
/// Returns the violations since then, such as "a call with an aborted communicator".
std::vector<std::string> fake_nccl_faults();
void forget_fake_nccl_calls();

/// All communicators report this error from now on; ncclSuccess means none.
void break_fake_nccl(ncclResult_t error);

}  // namespace dflop::testing
