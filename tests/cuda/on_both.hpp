// Runs the same operation with the same numbers on a GPU, in f32 or bf16, and on the host in f64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/runtime.hpp"
#include "tests/kernels/values.hpp"

namespace dflop::testing {

/// Rounds a finite number to the nearest bf16, ties to even.
inline std::uint16_t to_bf16(double x) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(x));
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}
inline double from_bf16(std::uint16_t x) {
  return std::bit_cast<float>(std::uint32_t{x} << 16);
}

/// Device memory with a guard margin on both sides that must not be written.
class GuardedMemory {
 public:
  static constexpr std::size_t kMargin = 256;

  /// The bytes start `shift` bytes after an aligned address.
  GuardedMemory(std::size_t bytes, std::size_t shift) : bytes_(bytes), shift_(shift) {
    check_cuda(cudaMalloc(&memory_, all_bytes()), "memory of a test");
  }
  ~GuardedMemory() { cudaFree(memory_); }
  GuardedMemory(const GuardedMemory&) = delete;
  GuardedMemory& operator=(const GuardedMemory&) = delete;

  void* data() const { return static_cast<char*>(memory_) + kMargin + shift_; }

  void write(const std::vector<char>& bytes) {
    std::vector<char> all(all_bytes(), kGuard);
    std::copy(bytes.begin(), bytes.end(), all.begin() + static_cast<std::ptrdiff_t>(kMargin + shift_));
    check_cuda(cudaMemcpy(memory_, all.data(), all.size(), cudaMemcpyHostToDevice), "copy to the GPU");
    check_cuda(cudaDeviceSynchronize(), "copy to the GPU");  // streams do not wait for the copy's end
  }
  std::vector<char> read() const {
    std::vector<char> all(all_bytes());
    check_cuda(cudaMemcpy(all.data(), memory_, all.size(), cudaMemcpyDeviceToHost), "copy from the GPU");
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(kMargin + shift_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    const auto whole = [](auto first, auto last) {
      return std::all_of(first, last, [](char x) { return x == kGuard; });
    };
    EXPECT_TRUE(whole(all.begin(), begin)) << "memory before a matrix was written";
    EXPECT_TRUE(whole(end, all.end())) << "memory behind a matrix was written";
    return {begin, end};
  }

 private:
  static constexpr char kGuard = 0x5a;
  std::size_t all_bytes() const { return 2 * kMargin + shift_ + bytes_; }

  std::size_t bytes_;
  std::size_t shift_;
  void* memory_ = nullptr;
};

/// Numbers or indices on one side, convertible to any argument type.
struct Place {
  void* data;
  std::int64_t rows;
  std::int64_t columns;

  operator Matrix() const { return {data, rows, columns}; }
  operator ConstMatrix() const { return {data, rows, columns}; }
  operator Sums() const { return {data, rows, columns}; }
  operator ConstSums() const { return {data, rows, columns}; }
};

/// A matrix on the host in f64 and on the GPU in `stored`.
class Both {
 public:
  Both(std::string name, Reals start, DType stored, std::size_t shift)
      : name_(std::move(name)),
        stored_(stored),
        host_(std::move(start)),
        device_(host_.data.size() * bytes_of(stored), shift * bytes_of(stored)) {
    host_.data = decoded(encoded(host_.data));  // rounded to the GPU's precision
    start_ = host_;
  }

  void reset() {
    host_ = start_;
    device_.write(encoded(start_.data));
  }
  Place on_host() { return {host_.data.data(), host_.rows, host_.columns}; }
  Place on_gpu() { return {host_.data.empty() ? nullptr : device_.data(), host_.rows, host_.columns}; }
  std::vector<char> read() const { return device_.read(); }

  /// Compares the largest difference, divided by the largest number on the host, with the tolerance.
  void expect_close(double tolerance) const {
    const std::vector<double> values = decoded(device_.read());
    double largest = 1e-30;
    for (const double x : host_.data) largest = std::max(largest, std::abs(x));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(values[i] - host_.data[i]) / largest;
      ASSERT_LE(error, tolerance) << name_ << " of " << host_.rows << " x " << host_.columns << " is "
                                  << values[i] << " at row " << i / static_cast<std::size_t>(host_.columns)
                                  << ", column " << i % static_cast<std::size_t>(host_.columns)
                                  << ", expected " << host_.data[i] << "; the largest is " << largest;
    }
  }
  const std::string& name() const { return name_; }

 private:
  std::vector<char> encoded(const std::vector<double>& values) const {
    std::vector<char> bytes(values.size() * bytes_of(stored_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto single = static_cast<float>(values[i]);
      const std::uint16_t half = to_bf16(values[i]);
      const void* from = stored_ == DType::bf16 ? static_cast<const void*>(&half) : &single;
      std::memcpy(bytes.data() + i * bytes_of(stored_), from, bytes_of(stored_));
    }
    return bytes;
  }
  std::vector<double> decoded(const std::vector<char>& bytes) const {
    std::vector<double> values(bytes.size() / bytes_of(stored_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      float single = 0.0f;
      std::uint16_t half = 0;
      void* to = stored_ == DType::bf16 ? static_cast<void*>(&half) : &single;
      std::memcpy(to, bytes.data() + i * bytes_of(stored_), bytes_of(stored_));
      values[i] = stored_ == DType::bf16 ? from_bf16(half) : single;
    }
    return values;
  }

  std::string name_;
  DType stored_;
  Reals host_;
  Reals start_;
  GuardedMemory device_;
};

class IntsOnBoth {
 public:
  explicit IntsOnBoth(Ints numbers) : numbers_(std::move(numbers)), device_(numbers_.size() * 4, 0) {
    std::vector<char> bytes(numbers_.size() * 4);
    if (!bytes.empty()) std::memcpy(bytes.data(), numbers_.data(), bytes.size());
    device_.write(bytes);
  }
  Indices on_host() const { return indices(numbers_); }
  Indices on_gpu() const { return {numbers_, static_cast<const std::int32_t*>(device_.data())}; }

 private:
  Ints numbers_;
  GuardedMemory device_;
};

/// Chooses one side of Both and IntsOnBoth.
struct Side {
  bool gpu;

  Place operator()(Both& both) const { return gpu ? both.on_gpu() : both.on_host(); }
  Indices operator()(const IntsOnBoth& both) const { return gpu ? both.on_gpu() : both.on_host(); }
};

/// Compares operations on a GPU with the host's. The parameter is the precision of the GPU's matrices.
class CudaKernelTest : public ::testing::TestWithParam<DType> {
 protected:
  CudaKernelTest() {
    check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream of a test");
    gpu = make_cuda_kernels(GetParam(), {stream, 0});
  }
  ~CudaKernelTest() override {
    gpu.reset();
    cudaStreamDestroy(stream);
  }

  double tolerance() const { return GetParam() == DType::bf16 ? 2e-2 : 1e-5; }

  /// Random numbers in [-size, size), in the GPU's precision of matrices or sums, `shift` numbers after an
  /// aligned address.
  Both& values(const std::string& name, std::int64_t rows, std::int64_t columns, double size = 1.0) {
    return keep(name, random_values(random, rows, columns, size), GetParam());
  }
  Both& sums(const std::string& name, std::int64_t rows, std::int64_t columns, double size = 1.0) {
    return keep(name, random_values(random, rows, columns, size), DType::f32);
  }
  Both& keep(const std::string& name, const Reals& start, DType stored) {
    kept.push_back(std::make_unique<Both>(name, start, stored, shift));
    return *kept.back();
  }

  /// Runs call(kernels, side) once on the host and twice on the GPU. All matrices made since the last call
  /// must be the same on both sides within the tolerance, and bit-identical in both runs on the GPU. Then
  /// forgets the matrices.
  template <typename Call>
  void expect_alike(const std::string& shape, Call call) {
    SCOPED_TRACE(std::string(to_string(GetParam())) + ", " + shape + ", shift " + std::to_string(shift));
    std::vector<std::vector<char>> first;
    for (int run = 0; run < 2; ++run) {
      for (const auto& both : kept) both->reset();
      call(*gpu, Side{true});
      check_cuda(cudaStreamSynchronize(stream), "wait for " + shape);
      for (std::size_t i = 0; i < kept.size(); ++i) {
        if (run == 0) {
          first.push_back(kept[i]->read());
        } else if (repeats) {
          EXPECT_TRUE(kept[i]->read() == first[i]) << kept[i]->name() << " differs from run to run";
        }
      }
    }
    call(*reference, Side{false});
    for (const auto& both : kept) both->expect_close(tolerance());
    kept.clear();
  }

  /// Computes on the host, or on the GPU with the selected variant of the operation.
  template <typename AnyOperation, typename... Args>
  void run(const AnyOperation& operation, Side at, Args... args) {
    operation.run_variant(at.gpu ? variant : 0, args...);
  }

  Random random{11};
  std::size_t shift = 0;
  std::size_t variant = 0;
  bool repeats = true;  ///< whether both runs on the GPU must have the same bits
  cudaStream_t stream = nullptr;
  std::unique_ptr<Kernels> gpu;
  std::unique_ptr<Kernels> reference = host<double>();
  std::vector<std::unique_ptr<Both>> kept;
};

inline std::string dtype_name(const ::testing::TestParamInfo<DType>& info) {
  return std::string(to_string(info.param));
}

/// Rows and columns: none, one, odd numbers, whole vectors, and more than the threads of a block.
inline const std::vector<std::pair<int, int>> kShapes = {{0, 8},    {1, 1},    {3, 7},    {5, 64},
                                                         {33, 129}, {270, 24}, {9, 1000}, {3, 5128}};

inline std::string shape_text(std::int64_t rows, std::int64_t columns) {
  return std::to_string(rows) + " x " + std::to_string(columns);
}

}  // namespace dflop::testing
