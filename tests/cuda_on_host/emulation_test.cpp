// The emulation follows CUDA and the PTX ISA, and reports the errors that a GPU would punish.
#include <cuda_bf16.h>
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/cuda/ptx.cuh"

namespace dflop::testing {
namespace emulation_test {

using emulation::block;
using emulation::WarpOrder;
using Numbers = std::vector<int>;

int thread() {
  return static_cast<int>(threadIdx.x);
}

/// Returns the message that run() throws; empty if it does not throw.
std::string error_of(int threads, std::size_t shared_bytes, const std::function<void()>& kernel) {
  try {
    block().run(dim3(static_cast<unsigned>(threads)), shared_bytes, WarpOrder::forward, kernel);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

void expect_error(const std::string& expected, int threads, const std::function<void()>& kernel) {
  const std::string error = error_of(threads, 64, kernel);
  EXPECT_NE(error.find(expected), std::string::npos) << "\"" << error << "\", expected " << expected;
  EXPECT_EQ(error_of(64, 64, [] { __syncthreads(); }), "") << "the next block runs as if nothing were";
}

/// Returns the threads of two warps in the order in which they arrive at a barrier.
Numbers order_of_threads(WarpOrder order) {
  Numbers threads;
  block().run(dim3(64), 0, order, [&] {
    threads.push_back(thread());
    __syncthreads();
  });
  return threads;
}

TEST(CudaOnHostBlock, RunsWarpsInTheOrderAskedFor) {
  Numbers rising(64);
  for (int i = 0; i < 64; ++i) rising[static_cast<std::size_t>(i)] = i;
  EXPECT_EQ(order_of_threads(WarpOrder::forward), rising);
  EXPECT_EQ(order_of_threads(WarpOrder::backward), Numbers(rising.rbegin(), rising.rend()));
  std::set<Numbers> drawn;
  for (int i = 0; i < 20; ++i) drawn.insert(order_of_threads(WarpOrder::drawn));
  EXPECT_EQ(drawn.size(), 2U) << "both warps come first in some of 20 blocks";
}

/// In each phase, no thread passes the barrier before all threads have arrived.
TEST(CudaOnHostBlock, BarriersHoldEveryThread) {
  for (const WarpOrder order : {WarpOrder::forward, WarpOrder::backward, WarpOrder::drawn}) {
    int come[3] = {};
    block().run(dim3(16, 8), 0, order, [&] {
      for (int& count : come) {
        ++count;
        __syncthreads();
        EXPECT_EQ(count, 128);
      }
    });
  }
}

/// Warps 0 and 1 meet at barrier 1 although warp 2 has ended.
TEST(CudaOnHostBlock, PartsOfABlockSynchronize) {
  int come = 0;
  EXPECT_EQ(error_of(96, 0,
                     [&] {
                       if (thread() >= 64) return;
                       ++come;
                       cuda::wait_for_some(1, 64);
                       EXPECT_EQ(come, 64);
                     }),
            "");
}

TEST(CudaOnHostBlock, ThreadsTellEachOther) {
  EXPECT_EQ(error_of(64, 0,
                     [] {
                       EXPECT_NE(__syncthreads_or(static_cast<int>(thread() == 40)), 0);
                       EXPECT_EQ(__syncthreads_or(0), 0);
                       EXPECT_EQ(__ballot_sync(~0U, static_cast<int>(thread() % 32 < 3)), 7U);
                       EXPECT_EQ(__shfl_xor_sync(~0U, thread(), 5), thread() ^ 5);
                     }),
            "");
}

TEST(CudaOnHostBlock, ReportsThreadsThatWaitForever) {
  expect_error("wait for each other for ever", 64, [] {
    if (thread() < 32) {
      __syncthreads();
    } else {
      cuda::wait_for_some(1, 64);
    }
  });
  expect_error("31 lanes of warp 0", 32, [] {
    if (thread() != 5) __syncwarp();
  });
}

TEST(CudaOnHostBlock, ReportsLanesThatPartedWays) {
  expect_error("different operations", 32, [] {
    if (thread() < 16) {
      __syncwarp();
    } else {
      __ballot_sync(~0U, 1);
    }
  });
  expect_error("no whole warps", 64, [] { cuda::wait_for_some(1, 40); });
}

TEST(CudaOnHostBlock, ReportsSharedMemoryOutOfBounds) {
  alignas(16) static const char kFrom[16] = {};
  expect_error("behind the block's 64 bytes", 1, [] { cuda::copy_16(64, kFrom, true); });
  expect_error("not aligned", 1, [] { cuda::copy_16(8, kFrom, true); });
  expect_error("source is not aligned", 1, [] { cuda::copy_16(0, kFrom + 4, true); });
  expect_error("was written", 1, [] { block().shared()[64] = 0; });
}

/// Memory is NaN until it is written, and while a copy to it is running.
TEST(CudaOnHostBlock, CopiesLandWhenTheyAreWaitedFor) {
  static const float kFrom = 3.0F;
  EXPECT_EQ(error_of(1, 64,
                     [] {
                       auto* numbers = reinterpret_cast<float*>(block().shared());
                       EXPECT_TRUE(std::isnan(numbers[0]));
                       numbers[1] = 1.0F;
                       cuda::copy_4(0, &kFrom, true);
                       cuda::copy_4(4, &kFrom, false);
                       EXPECT_TRUE(std::isnan(numbers[0]) && std::isnan(numbers[1]));
                       cuda::wait_copies();
                       EXPECT_EQ(numbers[0], 3.0F);
                       EXPECT_EQ(numbers[1], 0.0F);
                     }),
            "");
  expect_error("without having waited for its copies", 1, [] { cuda::copy_4(0, &kFrom, true); });
}

TEST(CudaOnHostRuntime, ReportsMemoryOutOfBounds) {
  void* memory = nullptr;
  ASSERT_EQ(cudaMalloc(&memory, 12), cudaSuccess);
  static_cast<char*>(memory)[12] = 1;
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_THROW(cudaStreamSynchronize(nullptr), std::runtime_error);
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaSuccess);
  EXPECT_EQ(cudaFree(memory), cudaErrorInvalidValue) << "twice";
}

void nothing(int) {}

TEST(CudaOnHostRuntime, RejectsFeaturesThatADeviceLacks) {
  const auto launched = [](dim3 grid, dim3 threads, std::size_t shared_bytes) {
    const cudaLaunchConfig_t config{grid, threads, shared_bytes, nullptr};
    return cudaLaunchKernelEx(&config, nothing, 1);
  };
  EXPECT_EQ(launched(1, 1024, 48 * 1024), cudaSuccess);
  EXPECT_EQ(launched(1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launched(dim3(1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launched(1, 1, 48 * 1024 + 1), cudaErrorInvalidValue);
  const auto* kernel = reinterpret_cast<const void*>(nothing);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 * 1024),
            cudaSuccess);
  EXPECT_EQ(launched(1, 1, 64 * 1024), cudaSuccess);
}

unsigned pair_of(float low, float high) {
  return __float2bfloat16_rn(low).bits | static_cast<unsigned>(__float2bfloat16_rn(high).bits) << 16;
}

/// Whole numbers that are exact in bf16 and f32.
float left_at(int row, int column) {
  return static_cast<float>(row + 3 * column);
}
float right_at(int row, int column) {
  return static_cast<float>(row - 2 * column);
}

/// c[16, 8] = a[16, 16] b[16, 8] with the fragments of the figures for mma.m16n8k16 in the PTX ISA. A lane's
/// value i of A (0 to 7) is in row lane / 4, plus 8 if i is 2, 3, 6 or 7, and column lane % 4 * 2 + i % 2,
/// plus 8 from i = 4 on. Its value i of B is in row lane % 4 * 2 + i % 2, plus 8 from i = 2 on, and column
/// lane / 4.
TEST(CudaOnHostInstructions, MultiplyAdd) {
  EXPECT_EQ(error_of(32, 0,
                     [] {
                       const int group = thread() / 4;
                       const int pair = thread() % 4 * 2;
                       const unsigned a[4] = {
                           pair_of(left_at(group, pair), left_at(group, pair + 1)),
                           pair_of(left_at(group + 8, pair), left_at(group + 8, pair + 1)),
                           pair_of(left_at(group, pair + 8), left_at(group, pair + 9)),
                           pair_of(left_at(group + 8, pair + 8), left_at(group + 8, pair + 9))};
                       float c[4] = {100.0F, 0.0F, 0.0F, 0.0F};
                       cuda::multiply_add(c, a, pair_of(right_at(pair, group), right_at(pair + 1, group)),
                                          pair_of(right_at(pair + 8, group), right_at(pair + 9, group)));
                       for (int i = 0; i < 4; ++i) {
                         float expected = i == 0 ? 100.0F : 0.0F;
                         for (int k = 0; k < 16; ++k) {
                           expected += left_at(group + i / 2 * 8, k) * right_at(k, pair + i % 2);
                         }
                         EXPECT_EQ(c[i], expected) << "lane " << thread() << ", value " << i;
                       }
                     }),
            "");
}

/// Matrix m has the numbers 64 m + 8 row + column. Lanes 8 m to 8 m + 7 pass the addresses of its rows.
TEST(CudaOnHostInstructions, LoadMatrices) {
  EXPECT_EQ(error_of(32, 512,
                     [] {
                       auto* numbers = reinterpret_cast<std::uint16_t*>(block().shared());
                       for (int i = 0; i < 8; ++i) {
                         numbers[8 * thread() + i] = static_cast<std::uint16_t>(8 * thread() + i);
                       }
                       __syncwarp();
                       const auto row = static_cast<unsigned>(16 * thread());
                       unsigned plain[4];
                       unsigned turned[4];
                       cuda::load_matrices(plain, row);
                       cuda::load_matrices_transposed(turned, row);
                       const unsigned group = static_cast<unsigned>(thread()) / 4;
                       const unsigned pair = static_cast<unsigned>(thread()) % 4 * 2;
                       for (unsigned m = 0; m < 4; ++m) {
                         EXPECT_EQ(plain[m], (64 * m + 8 * group + pair) | (64 * m + 8 * group + pair + 1)
                                                                               << 16);
                         EXPECT_EQ(turned[m], (64 * m + 8 * pair + group) | (64 * m + 8 * (pair + 1) + group)
                                                                                << 16);
                       }
                     }),
            "");
}

}  // namespace emulation_test
}  // namespace dflop::testing
