// A Scratch is temporary memory that kernels reuse from call to call.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace dflop::host {

inline constexpr std::align_val_t kAlignment{64};  ///< a cache line; results are then bit-identical

/// A Scratch is memory aligned to a cache line. It grows if a call needs more, and never shrinks.
class Scratch {
 public:
  /// Returns memory for `bytes` bytes. Memory from earlier calls becomes invalid.
  void* of_size(std::size_t bytes);

 private:
  struct Free {
    void operator()(void* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

/// Returns memory from a Scratch of the calling thread. Only one function may use it at a time.
void* thread_scratch(std::size_t bytes);

}  // namespace dflop::host
