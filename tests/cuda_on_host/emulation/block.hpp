// A Block runs the threads of one block of a kernel on the processor, one at a time: each goes on until it
// has to wait for others. What threads of a warp do together, the last who comes does for all.
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
  constexpr dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}  // NOLINT: as CUDA's
};
inline dim3 threadIdx;
inline dim3 blockIdx;
inline dim3 blockDim;
inline dim3 gridDim;

namespace dflop::emulation {

constexpr int kLanes = 32;
constexpr int kMostThreads = 1024;
constexpr int kMostWarps = kMostThreads / kLanes;
constexpr std::size_t kMostShared = std::size_t{227} * 1024;
constexpr int kPoison = 0xff;  ///< fills memory that nothing was written to: NaN, -1

/// A WarpOrder says which of the warps that can go on does, and which of its lanes: the first, the last, or
/// one that is drawn, where warps also take turns in the midst of what they do.
enum class WarpOrder { forward, backward, drawn };

class Block {
 public:
  /// Runs kernel() once for each of `size` threads.
  /// @throws std::runtime_error for what would be an error on a GPU, or hang there.
  void run(dim3 size, std::size_t shared_bytes, WarpOrder order, const std::function<void()>& kernel);

  // The threads of the kernel call these. What is wrong ends the block, and run() throws it.

  [[noreturn]] void fail(std::string what);
  /// Waits for all threads of the block that have not ended, or for `threads` of whole warps. Returns whether
  /// one of them came with `mine`.
  bool wait_at(int barrier, int threads = 0, bool mine = false);
  /// Calls work(arguments) once all lanes of the warp have come with an argument, and returns when it is
  /// done.
  template <typename Argument, typename Work>
  void with_warp(Argument& mine, Work work) {
    static_assert(std::is_empty_v<Work>);
    static const char operation = 0;  // its address tells this operation from others
    if (!join_warp(&operation, &mine)) return;
    std::array<Argument*, kLanes> all;
    const Warp& warp = warps_[static_cast<std::size_t>(warp_)];
    for (std::size_t lane = 0; lane < kLanes; ++lane)
      all[lane] = static_cast<Argument*>(warp.arguments[lane]);
    work(all);
    release_warp();
  }
  /// Begins a copy that lands when the thread waits for its copies; until then the memory is poisoned. Where
  /// not `inside` it becomes zeros.
  void begin_copy(unsigned to, const void* from, std::size_t bytes, bool inside);
  void wait_copies();
  /// Returns shared memory at an address, of which `bytes` are needed, and aligned to them.
  char* shared_at(unsigned address, std::size_t bytes);

  char* shared() { return shared_; }
  int lane() const { return lane_; }
  std::uint64_t number() const { return number_; }  ///< of the blocks that were run

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
  /// A Warp's masks have a bit for each lane.
  struct Warp {
    std::uint32_t all = 0;
    std::uint32_t ready = 0;  ///< lanes that can go on
    std::uint32_t come = 0;   ///< lanes that wait for the warp's operation
    const void* operation = nullptr;
    std::array<void*, kLanes> arguments = {};
  };
  struct Barrier {
    int come = 0;
    int expected = 0;
    bool any = false;     ///< of those who have come
    bool result = false;  ///< of those who were let go
    std::array<std::uint32_t, kMostWarps> waiting = {};
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
  int warp_ = 0;  ///< that runs, as lane_
  int lane_ = 0;
  std::string failure_;
};

/// Returns the one block that runs.
Block& block();

/// A SharedArray is one that a kernel declares as shared. Each block finds it poisoned.
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

/// Mutations of the kernels have numbers from 1 on; this one is done. None: 0.
inline int mutation = 0;

}  // namespace dflop::emulation
