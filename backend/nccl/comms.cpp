#include "backend/nccl/comms.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "core/error.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace {

constexpr int kMinVersion = NCCL_VERSION(2, 25, 0);
/// Both NCCL and the rendezvous notice a rank that dies; the rendezvous reports it more clearly, so wait for
/// it this long.
constexpr std::chrono::milliseconds kTimeForTheReason{1000};

}  // namespace

NcclTable load_nccl() {
  const SharedLibrary library({"libnccl.so.2"}, cuda_folders(), "communication between GPUs");
  NcclTable table(library);
  require_version(table, library.name());
  return table;
}

void require_version(const NcclTable& table, const std::string& library) {
  int version = 0;
  const bool told = table.get_version(&version) == ncclSuccess;
  if (told && version >= kMinVersion) return;
  throw Error(
      ErrorKind::no_device,
      library + " is NCCL " + (told ? nccl_version_text(version) : "of an unknown version") + ", expected " +
          nccl_version_text(kMinVersion) +
          " or newer: install a newer NCCL; if the old one is still found, put the folder of the new one "
          "first in LD_LIBRARY_PATH");
}

std::string nccl_version_text(int version) {
  const int major = version < 10000 ? version / 1000 : version / 10000;  // before 2.9, 2804 was 2.8.4
  const int rest = version < 10000 ? version % 1000 : version % 10000;
  return std::to_string(major) + "." + std::to_string(rest / 100) + "." + std::to_string(rest % 100);
}

ncclComm_t NcclComms::make(const std::vector<std::int32_t>& ranks, std::size_t place, const std::string& key,
                           int most_ctas) {
  const std::string what = "making " + key;
  ncclUniqueId id{};
  if (place == 0) {
    const ncclResult_t result = guarded([&] { return table_.get_unique_id(&id); });
    if (result != ncclSuccess) fail(what, result);
    rendezvous_.put(key, std::string(id.internal, sizeof id.internal), static_cast<int>(ranks.size()) - 1);
  } else {
    const std::string value =
        rendezvous_.get(ranks.front(), key, what + " of rank " + std::to_string(ranks.front()));
    if (value.size() != sizeof id.internal)
      throw Error(ErrorKind::internal, what + ": received an id of the wrong size");
    std::memcpy(id.internal, value.data(), value.size());
  }
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  if (most_ctas > 0) config.maxCTAs = most_ctas;
  ncclComm_t comm = nullptr;
  const ncclResult_t result = guarded([&] {
    const ncclResult_t entered = table_.comm_init_rank_config(
        &comms_.emplace_back(nullptr), static_cast<int>(ranks.size()), id, static_cast<int>(place), &config);
    comm = comms_.back();
    if (comm == nullptr) comms_.pop_back();
    return entered;
  });
  finish(comm, what, result);
  return comm;
}

void NcclComms::enter(ncclComm_t comm, const std::string& what, const std::function<ncclResult_t()>& call) {
  finish(comm, what, guarded(call));
}

/// Calls NCCL. @throws Aborted or Error (internal) if the run has ended, because then no communicators are
/// left.
ncclResult_t NcclComms::guarded(const std::function<ncclResult_t()>& call) {
  rendezvous_.check();
  {
    const std::lock_guard lock(mutex_);
    if (!ended_) return call();
  }
  rendezvous_.check();
  throw Error(ErrorKind::internal, "NCCL's communicators have been ended");
}

/// Waits while a call on the communicator is in progress. It polls without sleeping first, because a sleeping
/// thread wakes late, which would slow down every collective of a layer. @throws Error (internal) that names
/// `what` if the call fails.
void NcclComms::finish(ncclComm_t comm, const std::string& what, ncclResult_t result) {
  const Nanoseconds until = result == ncclInProgress ? clock_.now() + kAskWithoutSleep : Nanoseconds{0};
  while (result == ncclInProgress) {
    ncclResult_t state = ncclInProgress;
    result = guarded([&] { return table_.comm_get_async_error(comm, &state); });
    if (result == ncclSuccess) result = state;
    if (result == ncclInProgress && clock_.now() >= until) clock_.sleep(kSleepBetween);
  }
  if (result != ncclSuccess) fail(what, result);
}

void NcclComms::fail(const std::string& what, ncclResult_t result) {
  const auto until = std::chrono::steady_clock::now() + kTimeForTheReason;
  while (result == ncclRemoteError || result == ncclSystemError) {
    rendezvous_.check();
    if (std::chrono::steady_clock::now() > until) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  const std::string message = what + ": " + reason(result);
  rendezvous_.abort(message);
  throw Error(ErrorKind::internal, "rank " + std::to_string(rendezvous_.rank()) + ": " + message);
}

std::string NcclComms::reason(ncclResult_t result) const {
  const char* last = table_.get_last_error(nullptr);
  return std::string("NCCL: ") + table_.get_error_string(result) +
         (last != nullptr && *last != '\0' ? std::string("; ") + last : std::string());
}

std::optional<std::string> NcclComms::failure() {
  const std::lock_guard lock(mutex_);
  for (const ncclComm_t comm : comms_) {
    const ncclResult_t state = state_of(comm);
    if (state != ncclSuccess && state != ncclInProgress) return reason(state);
  }
  return std::nullopt;
}

void NcclComms::abort_all() {
  const std::lock_guard lock(mutex_);
  ended_ = true;
  // Each abort waits for the GPU, on which kernels of other communicators may be stuck. Within an NCCL group,
  // all communicators are told to abort before the first one waits. The exception is a call in progress: its
  // abort waits for the call's thread at once, so such communicators come last.
  std::vector<ncclComm_t> comms(comms_.begin(), comms_.end());
  std::stable_partition(comms.begin(), comms.end(),
                        [&](ncclComm_t comm) { return state_of(comm) != ncclInProgress; });
  table_.group_start();
  for (const ncclComm_t comm : comms) table_.comm_abort(comm);
  table_.group_end();
  comms_.clear();
}

/// Returns NCCL's asynchronous error of a communicator; success if there is none.
ncclResult_t NcclComms::state_of(ncclComm_t comm) const {
  ncclResult_t state = ncclSuccess;
  return table_.comm_get_async_error(comm, &state) == ncclSuccess ? state : ncclSuccess;
}

}  // namespace dflop
