// Kernels keep the memory that they need between inputs and outputs from call to call.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace dflop::host {

inline constexpr std::align_val_t kAlignment{64};  ///< a cache line, at which results have the same bits

/// A Scratch is memory that only grows, at a cache line.
class Scratch {
 public:
  /// Returns memory for so many bytes; what this returned before is no longer used.
  void* of_size(std::size_t bytes);

 private:
  struct Free {
    void operator()(void* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<void, Free> data_;
  std::size_t bytes_ = 0;
};

/// Returns memory of the calling thread, as a Scratch does. One function at a time uses it.
void* thread_scratch(std::size_t bytes);

}  // namespace dflop::host
