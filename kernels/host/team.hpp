// A Team holds the threads in which one rank computes. Kernels that use a team cut their operations into
// chunks. Chunks depend only on shapes, so results do not depend on the number of threads.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dflop {

/// A Team consists of the calling thread, which is its first member, and of threads that wait for work. Only
/// one thread at a time may call run().
class Team {
 public:
  /// Starts all members except the first. Member i, from 1 on, is pinned to processors[i] if that exists and
  /// the system allows it. The calling thread is not pinned.
  /// @throws Error(internal) if `threads` is less than 1
  explicit Team(int threads, const std::vector<int>& processors = {});
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int threads() const { return static_cast<int>(members_.size()) + 1; }

  /// Calls f(chunk, member) for each chunk in [0, count), in the team's threads, and returns when all chunks
  /// are done. `member` is the number of the thread, in [0, threads()). Each member runs one chunk at a time,
  /// in increasing order. If f throws, no new chunks begin; run() throws the first exception after the
  /// running chunks have ended.
  template <typename F>
  void run(std::int64_t count, const F& f) {
    run_call(count, {&f, [](const void* function, std::int64_t chunk, int member) {
                       (*static_cast<const F*>(function))(chunk, member);
                     }});
  }

 private:
  struct Call {
    const void* function = nullptr;
    void (*call)(const void* function, std::int64_t chunk, int member) = nullptr;
  };

  void run_call(std::int64_t count, Call call);
  void follow(int member);
  void take_chunks(int member);
  void end();

  std::vector<std::thread> members_;  // all but the first
  // The caller writes these before it begins a round (a call of run()), and members read them during the
  // round.
  Call call_;
  std::int64_t count_ = 0;
  bool ended_ = false;

  std::atomic<std::uint32_t> round_{0};  ///< number of rounds begun
  std::atomic<int> busy_{0};             ///< members that have not finished the round
  std::atomic<std::int64_t> next_{0};    ///< next chunk to take
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace dflop
