#include "tests/cuda_on_host/emulation/fiber.hpp"

#include <boost/context/protected_fixedsize_stack.hpp>

#include <memory>
#include <utility>
#include <vector>

#if defined(__SANITIZE_ADDRESS__)
#define DFLOP_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DFLOP_ASAN 1
#endif
#endif
#ifdef DFLOP_ASAN
#include <sanitizer/common_interface_defs.h>
constexpr std::size_t kStackBytes = std::size_t{512} * 1024;
#else
constexpr std::size_t kStackBytes = std::size_t{64} * 1024;
#endif

namespace dflop::emulation {
namespace {

Fiber* leaving = nullptr;  ///< the fiber that switches to another

}  // namespace

Fiber::Fiber(std::function<void()> body) {
  boost::context::protected_fixedsize_stack allocator(kStackBytes);
  const boost::context::stack_context stack = allocator.allocate();
  stack_bytes_ = stack.size;
  stack_ = static_cast<const char*>(stack.sp) - stack.size;
  context_ =
      boost::context::fiber(std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
                            allocator, [this, run = std::move(body)](boost::context::fiber&& previous) {
                              arrive(std::move(previous));
                              run();
                              return boost::context::fiber();
                            });
}

Fiber::~Fiber() {
  // The destructor of a context would unwind its stack, which AddressSanitizer could not track.
  static auto& forgotten = *new std::vector<boost::context::fiber>;
  if (context_) forgotten.push_back(std::move(context_));
}

void Fiber::switch_to(Fiber& other) {
  leaving = this;
  leave(other);
  arrive(std::move(other.context_).resume());
}

void Fiber::leave([[maybe_unused]] const Fiber& other) {
#ifdef DFLOP_ASAN
  __sanitizer_start_switch_fiber(&fake_stack_, other.stack_, other.stack_bytes_);
#endif
}

void Fiber::arrive(boost::context::fiber previous) {
#ifdef DFLOP_ASAN
  __sanitizer_finish_switch_fiber(fake_stack_, &leaving->stack_, &leaving->stack_bytes_);
#endif
  leaving->context_ = std::move(previous);
}

}  // namespace dflop::emulation
