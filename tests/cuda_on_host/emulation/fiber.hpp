// A Fiber is a stack on which a thread of a kernel runs until it hands over to another.
#pragma once

#include <boost/context/fiber.hpp>

#include <cstddef>
#include <functional>

namespace dflop::emulation {

class Fiber {
 public:
  /// Stands for the thread that runs already.
  Fiber() = default;
  /// Makes a stack on which body() begins when it is first switched to. The body must not return.
  explicit Fiber(std::function<void()> body);
  /// What is still on the stack is forgotten: kernels hold nothing that must be given back.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  /// Runs `other` from where it last left. Returns when someone switches to this, which is the one that runs.
  void switch_to(Fiber& other);

 private:
  void leave(const Fiber& other);
  void arrive(boost::context::fiber previous);

  boost::context::fiber context_;  ///< while others run
  // AddressSanitizer, where there is one, wants to know on which stack the program runs.
  const void* stack_ = nullptr;
  std::size_t stack_bytes_ = 0;
  [[maybe_unused]] void* fake_stack_ = nullptr;
};

}  // namespace dflop::emulation
