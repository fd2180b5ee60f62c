#include "kernels/host/scratch.hpp"

namespace dflop::host {

void* Scratch::of_size(std::size_t bytes) {
  if (bytes > bytes_) {
    data_.reset();
    bytes_ = 0;
    data_.reset(::operator new(bytes, kAlignment));
    bytes_ = bytes;
  }
  return data_.get();
}

void* thread_scratch(std::size_t bytes) {
  thread_local Scratch scratch;
  return scratch.of_size(bytes);
}

}  // namespace dflop::host
