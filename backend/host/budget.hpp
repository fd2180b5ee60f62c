// What the ranks of a host run may take of the machine's memory together.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "core/units.hpp"

namespace dflop {

/// Systems promise more memory than they have, and end a process that uses it; so what ranks ask for is
/// counted. Safe to use from all threads.
class HostBudget {
 public:
  explicit HostBudget(Bytes all) : left_(all.count) {}

  /// Whether there was so much; then it is the caller's.
  bool take(std::size_t bytes);
  void give_back(std::size_t bytes) { left_ += static_cast<std::int64_t>(bytes); }
  Bytes left() const { return {left_}; }

 private:
  std::atomic<std::int64_t> left_;
};

/// What can be used now without swapping (MemAvailable), less a sixteenth for all else that the process does;
/// none where the system does not say.
std::optional<Bytes> available_host_memory();

}  // namespace dflop
