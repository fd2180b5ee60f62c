#include "backend/nccl/table.hpp"

#include <string>

#include "core/error.hpp"
#include "core/support/shared_library.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

constexpr int kLeastVersion = NCCL_VERSION(2, 22, 0);

}  // namespace

NcclTable load_nccl() {
  const SharedLibrary library({"libnccl.so.2"}, cuda_folders(), "communication between GPUs");
  NcclTable table;
  library.load(table.get_version, "ncclGetVersion");
  library.load(table.get_unique_id, "ncclGetUniqueId");
  library.load(table.comm_init_rank_config, "ncclCommInitRankConfig");
  library.load(table.comm_abort, "ncclCommAbort");
  library.load(table.group_start, "ncclGroupStart");
  library.load(table.group_end, "ncclGroupEnd");
  library.load(table.comm_get_async_error, "ncclCommGetAsyncError");
  library.load(table.get_error_string, "ncclGetErrorString");
  library.load(table.get_last_error, "ncclGetLastError");
  library.load(table.send, "ncclSend");
  library.load(table.recv, "ncclRecv");
  library.load(table.all_reduce, "ncclAllReduce");
  library.load(table.all_gather, "ncclAllGather");
  library.load(table.reduce_scatter, "ncclReduceScatter");
  int version = 0;
  if (table.get_version(&version) != ncclSuccess || version < kLeastVersion) {
    throw Error(ErrorKind::no_device, library.name() + " has version " + std::to_string(version) +
                                          "; expected at least " + std::to_string(kLeastVersion));
  }
  return table;
}

}  // namespace dflop
