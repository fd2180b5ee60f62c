// A Fiber is a stack on which a thread of a kernel runs until it switches to another fiber.
#pragma once

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <functional>

namespace dflop::emulation {

class Fiber {
 public:
  /// Represents the thread that is already running.
  Fiber() = default;
  /// Makes a stack on which body() starts at the first switch to it. The body must not return.
  explicit Fiber(std::function<void()> body);
  /// Drops the stack without unwinding it: kernels hold no resources.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Continues `other` where it last stopped. Must be called on the running fiber; returns when a fiber
  /// switches back to it.
  void switch_to(Fiber& other);

 private:
  void leave(const Fiber& other);
  void arrive(boost::context::fiber previous);

  boost::context::fiber context_;  ///< saved while other fibers run
  // AddressSanitizer must be told on which stack the program runs.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace dflop::emulation
