// Tests what happens if a GPU's memory is short, and which calls must never happen.
#include "backend/cuda/short_memory.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace dflop {
namespace short_memory_test {

using Strings = std::vector<std::string>;

/// Returns the remedies that are tried if memory is available at the n-th attempt; 0: never.
Strings deeds(int there_at) {
  Strings done;
  int memory = 0;
  int asked = 0;
  const auto take = [&]() -> void* {
    done.push_back("take");
    return ++asked == there_at ? &memory : nullptr;
  };
  void* const data = take_or_remedy(
      take, [&] { done.push_back("wait"); }, [&] { done.push_back("trim"); });
  EXPECT_EQ(data, there_at > 0 ? &memory : nullptr);
  return done;
}

TEST(ShortMemory, RemediesRunInOrderUntilMemoryIsFree) {
  EXPECT_EQ(deeds(1), (Strings{"take"}));
  EXPECT_EQ(deeds(2), (Strings{"take", "wait", "take"}));
  EXPECT_EQ(deeds(3), (Strings{"take", "wait", "take", "trim", "take"}));
  EXPECT_EQ(deeds(0), (Strings{"take", "wait", "take", "trim", "take"}));
}

/// CUDA calls that wait for all work of the GPU could wait for sends that are received only after this rank
/// continues. cudaFree(nullptr) only makes a context and is allowed.
TEST(ShortMemory, NothingWaitsForAWholeGpu) {
  namespace fs = std::filesystem;
  int sources = 0;
  for (const char* folder : {"backend", "kernels/cuda"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(DFLOP_SOURCE_DIR) / folder)) {
      if (!entry.is_regular_file() || entry.path().extension() == ".md") continue;
      ++sources;
      std::ifstream file(entry.path());
      const std::string text{std::istreambuf_iterator<char>(file), {}};
      for (const char* call : {"cudaDeviceSynchronize(", "cuCtxSynchronize(", "cudaMalloc(", "cudaMemset("}) {
        EXPECT_EQ(text.find(call), std::string::npos) << entry.path() << " has " << call << ")";
      }
    }
  }
  EXPECT_GT(sources, 50);
}

}  // namespace short_memory_test
}  // namespace dflop
