// These functions tell what this machine has for the rank threads of a run: its processors and its memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// Returns the processor's model as it calls itself; "unknown" where it does not.
std::string host_cpu();

/// Returns the vectors of the processor that kernels use: "portable, avx2".
std::string host_isa();

/// Returns the libraries that compute some of the host's variants, "oneDNN 2.6.3, OpenBLAS 0.3.21"; empty
/// for none.
std::string host_libraries();

/// Returns one processor of each core, then the others, which share a core with one of them as hyperthreads
/// do. `core_of` is equal for those of one core.
std::vector<int> cores_first(const std::vector<int>& processors, const std::function<int(int)>& core_of);

/// Returns the processors that the calling thread may use, in the order of cores_first(); none where the
/// system does not tell.
std::vector<int> usable_processors();

/// Keeps the calling thread on a processor. Where the system does not allow it, it goes where it likes.
void stay_on_processor(int processor);

/// A HostBudget counts what the ranks of a host run take of the machine's memory together, since systems
/// promise more memory than they have, and end a process that uses it. Safe to use from all threads.
class HostBudget {
 public:
  explicit HostBudget(Bytes all) : left_(all.count) {}

  /// Returns whether there was so much memory; then it is the caller's.
  bool take(std::size_t bytes);
  void give_back(std::size_t bytes) { left_ += static_cast<std::int64_t>(bytes); }
  Bytes left() const { return {left_}; }

 private:
  std::atomic<std::int64_t> left_;
};

/// Returns what can be used now without swapping (MemAvailable), less a sixteenth for all else that the
/// process does; none where the system does not say.
std::optional<Bytes> available_host_memory();

}  // namespace dflop
