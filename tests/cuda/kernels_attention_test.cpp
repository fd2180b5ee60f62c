// Attention and its gradient: on tensor cores, without tensor cores, and by a library.
#include <utility>

#include "kernels/cuda/attention_rule.hpp"
#include "kernels/cuda/themes.hpp"
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
  for (const int head_dim : {1, 8, 20, 40, 64, 72, 80, 96, 128, 136}) {
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

/// With scores of 20 and more, one key gets nearly all of the probability.
TEST_P(CudaAttention, LargeScores) {
  for (const bool causal : {false, true}) {
    expect_attention({2, 1, 64, causal}, {100, 10}, 4.0);
    expect_attention({2, 1, 128, causal}, {100, 10}, 4.0);
  }
}

/// The heads of a group are divided among blocks: one head per block, or two if a key head has 134 tiles.
TEST_P(CudaAttention, FewKeyHeads) {
  expect_attention({4, 1, 64, true}, {31, 100});
  expect_attention({3, 1, 80, false}, {70});
  expect_attention({2, 1, 128, true}, {100});
  expect_attention({4, 1, 8, true}, Ints(130, 2));
}

/// Windows of 64 tokens and a shorter one, with the head width of Qwen2.5-VL's encoder, and a long sequence.
TEST_P(CudaAttention, Windows) {
  expect_attention({2, 2, 80, false}, {64, 64, 64, 16});
  expect_attention({2, 2, 80, false}, {208});
}

/// All scores are about -sqrt(head_dim). A key of zeros, as in a tile past the end of a sequence, would have
/// score 0 and get nearly all of a row's probability.
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

/// With 99 KiB of shared memory per block (compute capability 8.6, 8.9 and 12.x), blocks process fewer
/// queries at once for the key gradients of wide heads.
TEST_P(CudaAttention, SmallSharedMemory) {
  gpu = make_cuda_kernels(GetParam(), {stream, 0, nullptr, 99 * 1024});
  for (const bool causal : {false, true}) {
    expect_attention({1, 1, 128, causal}, {31, 0, 33, 65, 140});
    expect_attention({4, 2, 72, causal}, {100});
  }
}

/// Each variant after the default, forward and backward, on the shapes of the other tests. The library's
/// variant has its own test, as it makes a plan for each shape.
TEST_P(CudaAttention, Variants) {
  ASSERT_EQ(gpu->attention.variants(), gpu->attention_backward.variants());
  for (variant = 1; variant < gpu->attention.variants(); ++variant) {
    if (gpu->attention.variant_name(variant) == "cudnn") continue;
    SCOPED_TRACE(std::string(gpu->attention.variant_name(variant)));
    for (const bool causal : {false, true}) {
      for (const int head_dim : {8, 64, 72, 80, 128, 136}) expect_attention({2, 1, head_dim, causal}, {70});
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

/// The library makes a plan for each shape and direction, so this test has only a few shapes.
TEST_P(CudaAttention, Library) {
  for (const AttentionSums sums : {AttentionSums::fixed, AttentionSums::any}) {
    CudaKernelOptions options{stream};
    options.attention.sums = sums;
    gpu = make_cuda_kernels(GetParam(), options);
    repeats = sums == AttentionSums::fixed;
    variant = gpu->attention.variants() - 1;
    if (gpu->attention.variant_name(variant) != "cudnn") GTEST_SKIP() << "no library of attention";
    expect_attention({4, 2, 64, true}, {600, 0, 200});
    expect_attention({2, 2, 80, false}, {520});
    expect_attention({4, 1, 128, true}, {512, 300, 1});
  }
}

/// A FakeLibrary records the longest sequence of each call that it is offered, and computes nothing.
class FakeLibrary final : public cuda::AttentionLibrary {
 public:
  FakeLibrary(std::vector<std::int64_t>& asked, bool takes) : asked_(asked), takes_(takes) {}
  std::string_view name() const override { return "fake"; }
  bool forward(Matrix, Sums, ConstMatrix, const AttentionShape&, Indices offsets) override {
    return note(offsets);
  }
  bool backward(Matrix, ConstMatrix, ConstMatrix, ConstSums, ConstMatrix, const AttentionShape&,
                Indices offsets) override {
    return note(offsets);
  }

 private:
  bool note(Indices offsets) {
    asked_.push_back(cuda::longest_sequence(offsets.host));
    return takes_;
  }
  std::vector<std::int64_t>& asked_;
  bool takes_;
};

/// Kernels with attention only.
class AttentionKernels final : public Kernels {
 public:
  AttentionKernels(cudaStream_t stream, std::vector<std::int64_t>& asked, bool takes)
      : Kernels(DType::bf16), target_{stream, DType::bf16} {
    check_cuda(cudaDeviceGetDefaultMemPool(&target_.pool, 0), "memory pool of a test");
    state_ = cuda::set_attention(*this, target_, std::make_unique<FakeLibrary>(asked, takes));
  }

 private:
  cuda::CudaTarget target_;
  std::shared_ptr<void> state_;
};

/// The default offers the library calls whose longest sequence has at least 512 tokens, and computes those
/// that it does not accept. The library's variant offers it every call.
TEST_P(CudaAttention, LongSequencesGoToTheLibrary) {
  if (GetParam() != DType::bf16) return;
  const AttentionShape shape{1, 1, 8, true};
  for (const bool takes : {false, true}) {
    std::vector<std::int64_t> asked;
    AttentionKernels kernels(stream, asked, takes);
    const std::size_t library = kernels.attention.variants() - 1;
    EXPECT_EQ(kernels.attention.variant_name(library), "fake");
    EXPECT_EQ(kernels.attention_backward.variant_name(library), "fake");
    const std::vector<std::pair<std::size_t, int>> calls = {{0, 511}, {0, 512}, {library, 20}};
    for (const auto& [way, length] : calls) {
      const IntsOnBoth offsets({0, 3, 3 + length});
      const std::int64_t n = 3 + length;
      Both &qkv = values("qkv", n, shape.qkv_columns()), &out = values("out", n, shape.out_columns());
      Both& statistics = sums("statistics", n, shape.heads);
      for (const auto& both : kept) both->reset();
      const std::vector<char> before = out.read();
      kernels.attention.run_variant(way, out.on_gpu(), statistics.on_gpu(), qkv.on_gpu(), shape,
                                    offsets.on_gpu());
      check_cuda(cudaStreamSynchronize(stream), "attention");
      EXPECT_EQ(out.read() == before, takes && length != 511) << length;
      kept.clear();
    }
    // The rule offers 512. The variant offers 20; the library declines, and the rule then does not offer it
    // again.
    EXPECT_EQ(asked, (std::vector<std::int64_t>{512, 20}));
  }
}

/// Below 96 tokens the default has the bits of tiles of 64, from there on the bits of tiles of 128. The test
/// distinguishes them by dv of wide heads, whose sums they compute in different orders. All probabilities are
/// 1, and the second half of dout is the negated first half, so that only the rounding of numbers up to 2^24
/// remains.
TEST_P(CudaAttention, LengthsChooseTiles) {
  if (GetParam() != DType::bf16) return;
  const AttentionShape shape{1, 1, 128, false};
  ASSERT_EQ(gpu->attention_backward.variant_name(1), "tiles-128");
  ASSERT_EQ(gpu->attention_backward.variant_name(2), "tiles-64");
  for (const int length : {95, 96}) {
    const IntsOnBoth offsets({0, length});
    Reals slopes = random_values(random, length, shape.out_columns());
    for (int row = 0; row < length; ++row) {
      for (std::int64_t column = 0; column < slopes.columns; ++column) {
        double& slope = slopes(row, column);
        slope = row < length / 2 ? std::ldexp(slope, row % 24) : -slopes(row - length / 2, column);
      }
    }
    Both& qkv = keep("qkv", Reals(length, shape.qkv_columns()), DType::bf16);
    Both& statistics = keep("statistics", Reals(length, 1), DType::f32);
    Both &dout = keep("dout", slopes, DType::bf16), &out = values("out", length, shape.out_columns());
    Both& dqkv = values("dqkv", length, shape.qkv_columns());
    std::vector<std::vector<char>> bits;
    for (std::size_t way = 0; way < 3; ++way) {
      for (const auto& both : kept) both->reset();
      gpu->attention_backward.run_variant(way, dqkv.on_gpu(), dout.on_gpu(), out.on_gpu(),
                                          statistics.on_gpu(), qkv.on_gpu(), shape, offsets.on_gpu());
      check_cuda(cudaStreamSynchronize(stream), "attention");
      bits.push_back(dqkv.read());
    }
    EXPECT_TRUE(bits[1] != bits[2]) << "nothing is learned from equal bits";
    EXPECT_TRUE(bits[0] == bits[length < 96 ? 2 : 1]) << length;
    kept.clear();
  }
}

/// The sums of 8 parts (8 x 128 rows x 2 x 64 values in f32) count as the rank's memory until the end of the
/// call.
TEST_P(CudaAttention, LargeMemoryCounts) {
  if (GetParam() != DType::bf16) return;
  std::vector<std::size_t> taken;
  std::weak_ptr<void> last;
  CudaKernelOptions options{stream};
  options.allocate = [&](std::size_t bytes) {
    void* data = nullptr;
    check_cuda(cudaMalloc(&data, bytes), "memory of a test");
    taken.push_back(bytes);
    std::shared_ptr<void> memory(data, [](void* freed) { cudaFree(freed); });
    last = memory;
    return memory;
  };
  gpu = make_cuda_kernels(DType::bf16, options);
  expect_attention({8, 1, 64, false}, {128});
  EXPECT_EQ(taken, std::vector<std::size_t>(2, 8 * 128 * 2 * 64 * 4));  // one allocation per run
  EXPECT_TRUE(last.expired());
}

TEST(AttentionRule, TakesTheLongestSequence) {
  const Ints offsets = {0, 5, 5, 69, 70};
  EXPECT_EQ(cuda::longest_sequence(offsets), 64);
  EXPECT_EQ(cuda::longest_sequence({}), 0);
}

TEST(AttentionRule, ChoosesByTheLongestSequence) {
  using cuda::attention_way;
  using cuda::AttentionWay;
  for (const bool library : {false, true}) {
    EXPECT_EQ(attention_way(0, library), AttentionWay::tiles_64);
    EXPECT_EQ(attention_way(95, library), AttentionWay::tiles_64);
    EXPECT_EQ(attention_way(96, library), AttentionWay::tiles_128);
    EXPECT_EQ(attention_way(511, library), AttentionWay::tiles_128);
  }
  EXPECT_EQ(attention_way(512, true), AttentionWay::library);
  EXPECT_EQ(attention_way(512, false), AttentionWay::tiles_128);
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaAttention, ::testing::Values(DType::f32, DType::bf16), dtype_name);

}  // namespace kernels_attention_test
}  // namespace dflop::testing
