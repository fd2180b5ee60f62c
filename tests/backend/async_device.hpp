// A device on the host whose streams run asynchronously, each in its own thread, like the streams of a GPU.
// It shows missing waits and unnecessary waits.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "backend/device.hpp"
#include "backend/host/world.hpp"
#include "core/error.hpp"
#include "core/support/clock.hpp"
#include "tests/backend/forwarding.hpp"

namespace dflop::testing {

class AsyncEvent final : public DeviceEvent {
 public:
  Nanoseconds time() override {
    State& s = *state_;
    std::unique_lock lock(s.mutex);
    if (s.recorded == 0) throw Error(ErrorKind::internal, "the event was never recorded");
    s.changed.wait(lock, [&] { return s.reached == s.recorded; });
    return s.time;
  }
  bool reached() const {
    const std::lock_guard lock(state_->mutex);
    return state_->recorded > 0 && state_->reached == state_->recorded;
  }

 private:
  friend class AsyncStream;
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    std::uint64_t recorded = 0;
    std::uint64_t reached = 0;
    Nanoseconds time{};
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class AsyncStream;

/// An AsyncGpu has the streams of all devices of a rank.
class AsyncGpu {
 public:
  /// Returns whether all work entered into any of its streams is done.
  bool is_idle();

 private:
  friend class AsyncStream;
  std::mutex mutex_;
  std::set<AsyncStream*> streams_;
};

class AsyncStream final : public DeviceStream {
 public:
  /// With `waits`, calls return when the stream has executed them, so that kernels of the host may follow.
  explicit AsyncStream(bool waits = false, std::shared_ptr<AsyncGpu> gpu = nullptr)
      : waits_(waits), gpu_(std::move(gpu)) {
    if (gpu_ == nullptr) return;
    const std::lock_guard lock(gpu_->mutex_);
    gpu_->streams_.insert(this);
  }
  ~AsyncStream() override {
    if (gpu_ != nullptr) {
      const std::lock_guard lock(gpu_->mutex_);
      gpu_->streams_.erase(this);
    }
    synchronize();
    enter(nullptr);  // ends the thread
  }

  void record(DeviceEvent& event) override {
    const auto state = dynamic_cast<AsyncEvent&>(event).state_;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(state->mutex);
      number = ++state->recorded;
    }
    enter([state, number] {
      const std::lock_guard lock(state->mutex);
      state->reached = number;
      state->time = host_time();
      state->changed.notify_all();
    });
    if (waits_) synchronize();
  }

  void wait(DeviceEvent& event) override {
    const auto state = dynamic_cast<AsyncEvent&>(event).state_;
    std::uint64_t number = 0;
    {
      const std::lock_guard lock(state->mutex);
      number = state->recorded;
    }
    if (number == 0) throw Error(ErrorKind::internal, "the event was never recorded");
    enter([state, number] {
      std::unique_lock lock(state->mutex);
      state->changed.wait(lock, [&] { return state->reached >= number; });
    });
    if (waits_) synchronize();
  }

  void synchronize() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_ == entered_; });
  }

  bool is_idle() {
    const std::lock_guard lock(mutex_);
    return done_ == entered_;
  }

  void copy_to_device(void* destination, const void* source, std::size_t bytes) override {
    copy(destination, source, bytes);
  }
  void copy_to_host(void* destination, const void* source, std::size_t bytes) override {
    copy(destination, source, bytes);
  }
  void copy(void* destination, const void* source, std::size_t bytes) override {
    enter([=] {
      const auto* from = static_cast<const std::byte*>(source);
      std::copy(from, from + bytes, static_cast<std::byte*>(destination));
    });
    if (waits_) synchronize();
  }

  /// Enters work that may wait for other streams.
  void enter(std::function<void()> work) {
    const std::lock_guard lock(mutex_);
    work_.push_back(std::move(work));
    ++entered_;
    changed_.notify_all();
  }

 private:
  void run() {
    while (true) {
      std::function<void()> work;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return !work_.empty(); });
        work = std::move(work_.front());
        work_.pop_front();
      }
      if (!work) return;
      work();
      const std::lock_guard lock(mutex_);
      ++done_;
      changed_.notify_all();
    }
  }

  bool waits_;
  std::shared_ptr<AsyncGpu> gpu_;  // null if nobody waits for all streams together
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::uint64_t entered_ = 0;
  std::uint64_t done_ = 0;
  std::jthread thread_{[this] { run(); }};  // declared last, so that it starts last
};

inline bool AsyncGpu::is_idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(streams_.begin(), streams_.end(), [](AsyncStream* stream) { return stream->is_idle(); });
}

class AsyncDevice final : public ForwardingDevice {
 public:
  explicit AsyncDevice(int rank, bool waits = false, std::shared_ptr<AsyncGpu> gpu = nullptr)
      : ForwardingDevice(make_host_device({rank, std::nullopt})), waits_(waits), gpu_(std::move(gpu)) {}
  std::string name() const override { return "streams of the host"; }
  bool is_synchronous() const override { return false; }
  std::unique_ptr<DeviceStream> make_stream() override { return std::make_unique<AsyncStream>(waits_, gpu_); }
  std::unique_ptr<DeviceEvent> make_event() override { return std::make_unique<AsyncEvent>(); }

 private:
  bool waits_;
  std::shared_ptr<AsyncGpu> gpu_;
};

}  // namespace dflop::testing
