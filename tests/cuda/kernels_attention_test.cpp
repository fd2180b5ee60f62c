// Attention and its gradient, on tensor cores and without.
#include "tests/cuda/on_both.hpp"

namespace dflop::testing {
namespace kernels_attention_test {

class CudaAttention : public CudaKernelTest {
 protected:
  /// Random numbers in [-size, size); with `opposed`, queries are in [0.5, 1.5) and keys in [-1.5, -0.5).
  Reals projection(const AttentionShape& shape, std::int64_t rows, double size) {
    Reals all = random_values(random, rows, shape.qkv_columns(), opposed ? 0.5 : size);
    if (!opposed) return all;
    for (std::size_t i = 0; i < all.data.size(); ++i) {
      const auto head = static_cast<std::int64_t>(i) % shape.qkv_columns() / shape.head_dim;
      if (head < shape.heads + shape.kv_heads) all.data[i] += head < shape.heads ? 1.0 : -1.0;
    }
    return all;
  }

  void expect_attention(const AttentionShape& shape, const Ints& lengths, double size = 1.0) {
    Ints list = {0};
    std::string text;
    for (const std::int32_t length : lengths) {
      list.push_back(list.back() + length);
      text += " " + std::to_string(length);
    }
    const std::int64_t n = list.back();
    const IntsOnBoth offsets(list);
    Both &qkv = keep("qkv", projection(shape, n, size), GetParam()),
         &out = values("out", n, shape.out_columns());
    Both &kept_rows = sums("statistics", n, shape.heads), &dout = values("dout", n, shape.out_columns());
    Both& dqkv = values("dqkv", n, shape.qkv_columns());
    const std::string name = std::to_string(shape.heads) + " heads with " + std::to_string(shape.kv_heads) +
                             " key heads of " + std::to_string(shape.head_dim) +
                             (shape.causal ? ", causal," : ",") + (opposed ? " opposed," : "") + " lengths" +
                             text;
    expect_alike(name, [&](Kernels& k, Side at) {
      run(k.attention, at, at(out), at(kept_rows), at(qkv), shape, at(offsets));
      run(k.attention_backward, at, at(dqkv), at(dout), at(out), at(kept_rows), at(qkv), shape, at(offsets));
    });
  }

  bool opposed = false;
};

TEST_P(CudaAttention, WidthsOfHeads) {
  for (const int head_dim : {1, 8, 20, 40, 64, 72, 128, 136}) {
    for (const bool causal : {false, true}) {
      expect_attention({2, 2, head_dim, causal}, {70});
    }
  }
}

TEST_P(CudaAttention, GroupsOfHeads) {
  for (const int kv_heads : {1, 2, 4}) {
    for (const bool causal : {false, true}) {
      expect_attention({4, kv_heads, 64, causal}, {33, 70});
      expect_attention({4, kv_heads, 128, causal}, {7, 170});
    }
  }
}

TEST_P(CudaAttention, Lengths) {
  const std::vector<Ints> lists = {{},       {0},           {1},          {0, 5, 0, 64, 1},
                                   {63, 65}, {127, 1, 129}, {200, 0, 31}, {300}};
  for (const Ints& lengths : lists) {
    for (const bool causal : {false, true}) {
      expect_attention({1, 1, 64, causal}, lengths);
      expect_attention({1, 1, 128, causal}, lengths);
    }
  }
}

/// Scores of 20 and more: one key takes nearly all.
TEST_P(CudaAttention, LargeScores) {
  for (const bool causal : {false, true}) {
    expect_attention({2, 1, 64, causal}, {90, 10}, 4.0);
    expect_attention({2, 1, 128, causal}, {90, 10}, 4.0);
  }
}

/// All scores are about -sqrt(head_dim). A key of zeros, as lie behind a sequence in a tile, would have the
/// score 0 and take nearly all of a row.
TEST_P(CudaAttention, NothingBehindASequenceIsSeen) {
  opposed = true;
  for (const int length : {1, 31, 33, 63, 64, 95, 127}) {
    expect_attention({1, 1, 64, false}, {length});
    expect_attention({1, 1, 128, false}, {length});
  }
}

TEST_P(CudaAttention, UnalignedMatrices) {
  shift = 1;
  expect_attention({2, 1, 64, true}, {40, 3});
}

/// Blocks of 99 KiB of shared memory, as devices of compute capability 8.6, 8.9 and 12.x have, take fewer
/// queries at once for the gradients of keys of wide heads.
TEST_P(CudaAttention, SmallSharedMemory) {
  gpu = make_cuda_kernels(GetParam(), {stream, 0, nullptr, 99 * 1024});
  for (const bool causal : {false, true}) {
    expect_attention({1, 1, 128, causal}, {31, 0, 33, 65, 140});
    expect_attention({4, 2, 72, causal}, {70});
  }
}

/// Each variant after the default, forward and backward, in what the other tests have for the default.
TEST_P(CudaAttention, Variants) {
  ASSERT_EQ(gpu->attention.variants(), gpu->attention_backward.variants());
  for (variant = 1; variant < gpu->attention.variants(); ++variant) {
    SCOPED_TRACE(std::string(gpu->attention.variant_name(variant)));
    for (const bool causal : {false, true}) {
      for (const int head_dim : {8, 64, 72, 128, 136}) expect_attention({2, 1, head_dim, causal}, {70});
      for (const int head_dim : {64, 128}) {
        expect_attention({4, 2, head_dim, causal}, {0, 5, 0, 64, 1});
        expect_attention({1, 1, head_dim, causal}, {63, 65, 140, 31});
        expect_attention({1, 1, head_dim, causal}, {90, 10}, 4.0);
      }
    }
    opposed = true;
    for (const int length : {1, 33, 63, 95}) {
      expect_attention({1, 1, 64, false}, {length});
      expect_attention({1, 1, 128, false}, {length});
    }
    opposed = false;
    shift = 1;
    expect_attention({2, 1, 64, true}, {40, 3});
    shift = 0;
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaAttention, ::testing::Values(DType::f32, DType::bf16), dtype_name);

}  // namespace kernels_attention_test
}  // namespace dflop::testing
