// A Block runs the threads of one block of a kernel on the CPU, one at a time. Each thread runs until it must
// wait for others. The last lane that arrives at a warp operation does its work for the whole warp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "tests/cuda_on_host/emulation/fiber.hpp"

struct dim3 {
  unsigned x;
  unsigned y;
  unsigned z;
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}  // NOLINT: like CUDA's
};
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace dflop::emulation {

constexpr int kLanes = 32;
constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / kLanes;
constexpr std::size_t kMaxShared = std::size_t{227} * 1024;
constexpr int kPoison = 0xff;  ///< fills uninitialized memory: NaN, -1

/// A WarpOrder selects the next warp and lane among those that are ready: the first, the last, or a random
/// one. With random choice, warps also alternate between barriers.
enum class WarpOrder { forward, backward, drawn };

class Block {
 public:
  /// Runs kernel() once for each of `size` threads.
  /// @throws std::runtime_error for anything that would be an error or a hang on a GPU
  void run(dim3 size, std::size_t shared_bytes, WarpOrder order, const std::function<void()>& kernel);

  // The threads of the kernel call these functions. An error ends the block, and run() throws it.

  [[noreturn]] void fail(std::string what);
  /// Waits for all threads of the block that have not ended, or for `threads` threads in whole warps. Returns
  /// whether `mine` was true in one of them.
  bool wait_at(int barrier, int threads = 0, bool mine = false);
  /// Calls work(arguments) once all lanes of the warp have arrived with an argument, and returns when it is
  /// done.
  template <typename Argument, typename Work>
  void with_warp(Argument& mine, Work work) {
    static_assert(std::is_empty_v<Work>);
    static const char operation = 0;  // its address identifies this operation
    if (!join_warp(&operation, &mine)) return;
    std::array<Argument*, kLanes> all;
    const Warp& warp = warps_[static_cast<std::size_t>(warp_)];
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      all[lane] = static_cast<Argument*>(warp.arguments[lane]);
    work(all);
    release_warp();
  }
  /// Begins a copy that completes when the thread waits for its copies. Until then the memory is poisoned. If
  /// not `inside`, the memory becomes zeros.
  void begin_copy(unsigned to, const void* from, std::size_t bytes, bool inside);
  void wait_copies();
  /// Returns the shared memory at an address. Checks that `bytes` bytes exist there and that it is aligned to
  /// them.
  char* shared_at(unsigned address, std::size_t bytes);

  char* shared() { return shared_; }
  int lane() const { return lane_; }
  std::uint64_t number() const { return number_; }  ///< number of blocks run so far

 private:
  struct Copy {
    void* to;
    const void* from;
    std::size_t bytes;
    bool inside;
  };
  struct Thread {
    std::unique_ptr<Fiber> fiber;
    dim3 index;
    std::vector<Copy> copies;
  };
  /// The masks of a Warp have one bit per lane.
  struct Warp {
    std::uint32_t all = 0;
    std::uint32_t ready = 0;  ///< lanes that are ready to run
    std::uint32_t come = 0;   ///< lanes that have arrived at the warp's operation
    const void* operation = nullptr;
    std::array<void*, kLanes> arguments = {};
  };
  struct Barrier {
    int come = 0;
    int expected = 0;
    bool any = false;     ///< over the threads that have arrived
    bool result = false;  ///< for the threads that were released
    std::array<std::uint32_t, kMaxWarps> waiting = {};
  };

  void start(dim3 size, std::size_t shared_bytes);
  void run_thread();
  void end_thread();
  bool join_warp(const void* operation, void* mine);
  void release_warp();
  void release(Barrier& barrier);
  void go_on(bool in_this_warp);
  int next_warp();
  int next_lane(std::uint32_t ready);
  std::string who_waits() const;
  Thread& thread() { return threads_[static_cast<std::size_t>(warp_ * kLanes + lane_)]; }
  Warp& warp() { return warps_[static_cast<std::size_t>(warp_)]; }
  std::uint32_t bit() const { return std::uint32_t{1} << lane_; }

  Fiber caller_;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  std::array<Barrier, 16> barriers_ = {};
  const std::function<void()>* kernel_ = nullptr;
  WarpOrder order_ = WarpOrder::forward;
  std::minstd_rand random_;
  std::vector<char> memory_;
  char* shared_ = nullptr;
  std::size_t shared_bytes_ = 0;
  std::uint64_t number_ = 0;
  int alive_ = 0;
  int warp_ = 0;  ///< running now, like lane_
  int lane_ = 0;
  std::string failure_;
};

/// Returns the one block that runs.
Block& block();

/// A SharedArray is an array that a kernel declares as shared. Each block starts with it poisoned.
template <typename Array>
class SharedArray {
 public:
  Array& of_block() {
    if (block_ != block().number()) {
      block_ = block().number();
      auto* bytes = reinterpret_cast<unsigned char*>(&array_);
      for (std::size_t i = 0; i < sizeof array_; ++i) bytes[i] = kPoison;
    }
    return array_;
  }

 private:
  Array array_;
  std::uint64_t block_ = 0;
};

/// The active mutation of the kernels. Mutations are numbered from 1 on; 0 means none.
inline int mutation = 0;

}  // namespace dflop::emulation
