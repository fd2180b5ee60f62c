#include "core/error.hpp"
#include "tests/cuda/on_both.hpp"

namespace dflop::testing {
namespace kernels_linear_test {

class CudaLinear : public CudaKernelTest {
 protected:
  void expect_linear(int n, int in, int out) {
    // Outputs start with other numbers: matrices are overwritten, and sums are added to.
    Both &x = values("x", n, in), &weight = values("weight", out, in), &bias = values("bias", 1, out);
    Both &y = values("y", n, out), &without_bias = values("y without bias", n, out);
    Both &dy = values("dy", n, out), &dx = values("dx", n, in);
    Both &dweight = sums("dweight", out, in), &dbias = sums("dbias", 1, out);
    Both &dweight_alone = sums("dweight alone", out, in), &dweight_set = sums("dweight set", out, in);
    expect_alike(
        "linear " + std::to_string(n) + " rows from " + std::to_string(in) + " to " + std::to_string(out),
        [&](Kernels& k, Side at) {
          run(k.linear, at, at(y), at(x), at(weight), at(bias));
          run(k.linear, at, at(without_bias), at(x), at(weight), ConstMatrix());
          run(k.linear_backward_input, at, at(dx), at(dy), at(weight));
          run(k.linear_backward_weight, at, at(dweight), at(dbias), at(dy), at(x), Beta::one);
          run(k.linear_backward_weight, at, at(dweight_alone), Sums(), at(dy), at(x), Beta::one);
          run(k.linear_backward_weight, at, at(dweight_set), Sums(), at(dy), at(x), Beta::zero);
        });
  }
};

TEST_P(CudaLinear, Shapes) {
  expect_linear(0, 8, 8);
  expect_linear(1, 1, 1);
  expect_linear(7, 5, 3);
  expect_linear(64, 64, 64);
  expect_linear(33, 40, 56);
  expect_linear(100, 129, 77);
  expect_linear(300, 256, 512);
}

TEST_P(CudaLinear, UnalignedMatrices) {
  shift = 1;
  expect_linear(40, 64, 32);
  expect_linear(9, 33, 7);
}

TEST_P(CudaLinear, WithFewMultiprocessors) {
  gpu = make_cuda_kernels(GetParam(), {stream, 16});
  expect_linear(300, 256, 512);
}

/// Each variant after the default. Shapes repeat, mixed with others of the same rounded number of rows.
TEST_P(CudaLinear, Variants) {
  ASSERT_EQ(gpu->linear.variants(), gpu->linear_backward_input.variants());
  ASSERT_EQ(gpu->linear.variants(), gpu->linear_backward_weight.variants());
  for (variant = 1; variant < gpu->linear.variants(); ++variant) {
    SCOPED_TRACE(std::string(gpu->linear.variant_name(variant)));
    for (const int rows : {64, 100, 7, 64}) expect_linear(rows, 64, 96);
    expect_linear(300, 256, 512);
    expect_linear(33, 41, 56);
    shift = 1;
    expect_linear(40, 64, 32);
    shift = 0;
  }
}

INSTANTIATE_TEST_SUITE_P(Precision, CudaLinear, ::testing::Values(DType::f32, DType::bf16), dtype_name);

TEST(CudaKernels, HaveEveryOperation) {
  const auto kernels = make_cuda_kernels(DType::f32, {});
  for_each_operation([&](auto operation) {
    EXPECT_TRUE(((*kernels).*operation).is_set()) << ((*kernels).*operation).name();
  });
}

TEST(CudaKernels, RejectsF64) {
  try {
    make_cuda_kernels(DType::f64, {});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("f64"), std::string::npos) << error.what();
  }
}

TEST(CudaKernels, ChecksArguments) {
  const auto kernels = make_cuda_kernels(DType::f32, {});
  try {
    kernels->gelu({nullptr, 2, 3}, {nullptr, 2, 4});
    FAIL() << "expected an error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("gelu"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("2 x 4"), std::string::npos) << error.what();
  }
}

}  // namespace kernels_linear_test
}  // namespace dflop::testing
