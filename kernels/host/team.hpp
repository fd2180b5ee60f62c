// A Team is the threads in which one rank computes. Kernels that are made with a team cut their operations
// into chunks that follow from shapes alone, so that results do not depend on how many threads there are.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace dflop {

/// A Team has the calling thread as its first member, and others that wait for it. One thread at a time may
/// call run().
class Team {
 public:
  /// Starts the members but the first. The i-th, from 1 on, stays on processors[i] where there are so many
  /// and the system allows it; where the calling thread stays is its own affair.
  /// @throws Error(internal) unless there are 1 or more threads
  explicit Team(int threads, const std::vector<int>& processors = {});
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;
  ~Team();

  int threads() const { return static_cast<int>(members_.size()) + 1; }

  /// Calls f(chunk, member) for each chunk in [0, count), in the threads of the team, and returns when all
  /// are done. A member, in [0, threads()), calls one at a time, in rising order. What f first throws is
  /// thrown here, after the chunks that had begun; the others are left out.
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

  std::vector<std::thread> members_;  // but the first
  // The caller writes these before it begins a round, and members read them during it.
  Call call_;
  std::int64_t count_ = 0;
  bool ended_ = false;

  std::atomic<std::uint32_t> round_{0};  ///< rounds that were begun
  std::atomic<int> busy_{0};             ///< members that have not finished the round
  std::atomic<std::int64_t> next_{0};    ///< chunk that nobody has taken
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace dflop
