// The functions of this header describe the processors and memory of this machine that the rank threads of a
// run may use.
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

/// Returns the processor's vector instruction sets that kernels use: "portable, avx2".
std::string host_isa();

/// Sorts processors: first one processor of each core, then the other processors (hyperthreads). core_of()
/// returns the same number for processors of the same core.
std::vector<int> cores_first(const std::vector<int>& processors, const std::function<int(int)>& core_of);

/// Returns the processors that the calling thread may use, in the order of cores_first(); empty if the system
/// does not report them.
std::vector<int> usable_processors();

/// Pins the calling thread to a processor. If the system does not allow that, the thread stays unpinned.
void stay_on_processor(int processor);

/// A HostBudget counts the machine's memory that all ranks of a host run have allocated. It is needed
/// because systems grant more memory than they have, and kill a process that uses too much. It is
/// thread-safe.
class HostBudget {
 public:
  explicit HostBudget(Bytes all) : left_(all.count) {}

  /// Reserves `bytes` bytes. Returns false if there is not enough memory.
  bool take(std::size_t bytes);
  void give_back(std::size_t bytes) { left_ += static_cast<std::int64_t>(bytes); }
  Bytes left() const { return {left_}; }

 private:
  std::atomic<std::int64_t> left_;
};

/// Returns the memory that can be used now without swapping (MemAvailable), minus one sixteenth for the
/// process's other needs; nullopt if the system does not report it.
std::optional<Bytes> available_host_memory();

}  // namespace dflop
