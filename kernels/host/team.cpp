#include "kernels/host/team.hpp"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"

namespace dflop {
namespace {

constexpr int kSpins = 2000;  // some ten microseconds, because operations follow each other closely

/// Waits until value() differs from `old`. It spins for a short time and then sleeps until it is notified.
template <typename T>
void wait_for_change(const std::atomic<T>& value, T old) {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

void stay_on(std::thread& thread, int processor) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  static_cast<void>(::pthread_setaffinity_np(thread.native_handle(), sizeof(one), &one));
}

}  // namespace

Team::Team(int threads, const std::vector<int>& processors) {
  if (threads < 1) {
    throw Error(ErrorKind::internal, fmt::format("a team of {} threads, expected 1 or more", threads));
  }
  try {
    for (int member = 1; member < threads; ++member) {
      members_.emplace_back([this, member] { follow(member); });
      const auto place = static_cast<std::size_t>(member);
      if (place < processors.size()) stay_on(members_.back(), processors[place]);
    }
  } catch (...) {
    end();
    throw;
  }
}

Team::~Team() {
  end();
}

void Team::end() {
  ended_ = true;
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& member : members_) member.join();
}

void Team::run_call(std::int64_t count, Call call) {
  call_ = call;
  count_ = count;
  next_.store(0, std::memory_order_relaxed);
  if (members_.empty() || count < 2) {
    take_chunks(0);
  } else {
    busy_.store(static_cast<int>(members_.size()), std::memory_order_relaxed);
    round_.fetch_add(1, std::memory_order_release);
    round_.notify_all();
    take_chunks(0);
    for (int busy = busy_.load(std::memory_order_acquire); busy > 0;
         busy = busy_.load(std::memory_order_acquire)) {
      wait_for_change(busy_, busy);
    }
  }
  if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Team::follow(int member) {
  for (std::uint32_t seen = 0;; ++seen) {
    wait_for_change(round_, seen);
    if (ended_) return;
    take_chunks(member);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) busy_.notify_all();
  }
}

void Team::take_chunks(int member) {
  try {
    for (;;) {
      const std::int64_t chunk = next_.fetch_add(1, std::memory_order_relaxed);
      if (chunk >= count_) return;
      call_.call(call_.function, chunk, member);
    }
  } catch (...) {
    next_.store(count_, std::memory_order_relaxed);
    const std::lock_guard lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
  }
}

}  // namespace dflop
