// parallel_for() loops over independent items on all cores.
#pragma once

#include <tbb/parallel_for.h>

#include <atomic>
#include <cstddef>

namespace dflop {

/// Calls body(i) for every i below `count`, in any order and on any thread, and returns when all are done.
/// What was written before is seen by every call, and what the calls write is seen afterwards.
template <typename Body>
void parallel_for(std::size_t count, const Body& body) {
  // TBB orders this already. Saying it once more in our own code lets the thread sanitizer see it, as
  // Debian's TBB is built without; it costs nothing beside a body of microseconds. It is static, so that
  // looking at it reads nothing else.
  static std::atomic<std::size_t> ordered{0};
  ordered.fetch_add(1, std::memory_order_release);
  tbb::parallel_for(std::size_t{0}, count, [&](std::size_t i) {
    static_cast<void>(ordered.load(std::memory_order_acquire));
    body(i);
    ordered.fetch_add(1, std::memory_order_release);
  });
  static_cast<void>(ordered.load(std::memory_order_acquire));
}

}  // namespace dflop
