// OutOfMemory is the exception for a device with too little memory. It ends a live run; measurements of
// kernels leave the call out instead.
#pragma once

#include <stdexcept>
#include <string>

#include "core/units.hpp"

namespace dflop {

/// An OutOfMemory says how much memory a device lacks.
class OutOfMemory : public std::runtime_error {
 public:
  /// An example of the message is "rank 3 on host: 1.50 GiB more are needed, 0.25 GiB are left".
  OutOfMemory(const std::string& message, Bytes needed, Bytes available)
      : std::runtime_error(message), needed_(needed), available_(available) {}
  Bytes needed() const { return needed_; }
  Bytes available() const { return available_; }

 private:
  Bytes needed_;
  Bytes available_;
};

}  // namespace dflop
