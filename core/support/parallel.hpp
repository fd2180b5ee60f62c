// parallel_for() loops over independent items on all cores.
#pragma once

#include <tbb/parallel_for.h>

#include <atomic>
#include <cstddef>

namespace dflop {

/// Calls body(i) for every i below `count`, in any order and on any thread, and returns when all calls are
/// done. Every call sees what the caller wrote before, and the caller sees what the calls wrote after the
/// return.
template <typename Body>
void parallel_for(std::size_t count, const Body& body) {
  // TBB already guarantees this order. Debian's TBB is built without the thread sanitizer, so this atomic
  // repeats the guarantee where the sanitizer can see it. Its cost is negligible next to bodies of
  // microseconds. It is static so that accessing it touches nothing else.
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
