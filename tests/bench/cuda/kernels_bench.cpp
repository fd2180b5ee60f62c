// The kernels of a GPU in bf16 at the shapes of a 7B language model: 4,096 tokens, width 4096, hidden width
// 11008, 32 heads of 128. A time is the median of kPasses passes between two events of the stream, after
// warm-up and with a flushed second-level cache before each pass. `share` is relative to the speed of the
// same GPU in the same run: copying 1 GiB for memory-bound operations, and a product of 8192^3 for
// compute-bound ones.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "core/support/random.hpp"
#include "kernels/cuda/runtime.hpp"

namespace dflop {
namespace cuda_kernels_bench {

constexpr int kWarmUps = 5;
constexpr int kPasses = 25;
constexpr std::int64_t kTokens = 4096;
constexpr std::int64_t kWidth = 4096;
constexpr std::int64_t kHidden = 11'008;
constexpr std::int64_t kClasses = 32'000;

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t bytes) { check_cuda(cudaMalloc(&data_, bytes), "memory of a benchmark"); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
};

/// Random bf16 in [-1, 1): arithmetic on zeros would draw less power and run at a higher clock rate.
class Values {
 public:
  Values(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), memory_(static_cast<std::size_t>(2 * rows * columns)) {
    static const std::vector<std::uint16_t> pattern = make_pattern();
    const auto all = static_cast<std::size_t>(2 * rows * columns);
    for (std::size_t at = 0; at < all; at += 2 * pattern.size()) {
      check_cuda(cudaMemcpy(static_cast<char*>(memory_.data()) + at, pattern.data(),
                            std::min(all - at, 2 * pattern.size()), cudaMemcpyHostToDevice),
                 "copy to the GPU");
    }
  }
  operator Matrix() const { return {memory_.data(), rows_, columns_}; }
  operator ConstMatrix() const { return {memory_.data(), rows_, columns_}; }

 private:
  static std::vector<std::uint16_t> make_pattern() {
    Random random(1);
    std::vector<std::uint16_t> pattern(1u << 20);
    for (std::uint16_t& x : pattern) {  // sign, an exponent from 2^-8 to 2^-1, mantissa
      x = static_cast<std::uint16_t>(random.below(2) << 15 | (119 + random.below(8)) << 7 |
                                     random.below(128));
    }
    return pattern;
  }

  std::int64_t rows_;
  std::int64_t columns_;
  DeviceMemory memory_;
};

/// f32, zeros.
class Zeros {
 public:
  Zeros(std::int64_t rows, std::int64_t columns)
      : rows_(rows), columns_(columns), memory_(static_cast<std::size_t>(4 * rows * columns)) {
    check_cuda(cudaMemset(memory_.data(), 0, static_cast<std::size_t>(4 * rows * columns)), "zeros");
  }
  operator Sums() const { return {memory_.data(), rows_, columns_}; }
  operator ConstSums() const { return {memory_.data(), rows_, columns_}; }

 private:
  std::int64_t rows_;
  std::int64_t columns_;
  DeviceMemory memory_;
};

class DeviceInts {
 public:
  explicit DeviceInts(std::vector<std::int32_t> numbers)
      : numbers_(std::move(numbers)), memory_(4 * numbers_.size()) {
    check_cuda(cudaMemcpy(memory_.data(), numbers_.data(), 4 * numbers_.size(), cudaMemcpyHostToDevice),
               "copy to the GPU");
  }
  operator Indices() const { return {numbers_, static_cast<const std::int32_t*>(memory_.data())}; }

 private:
  std::vector<std::int32_t> numbers_;
  DeviceMemory memory_;
};

DeviceInts ints_below(std::int64_t count, std::uint64_t bound) {
  Random random(2);
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  for (auto& n : numbers) n = static_cast<std::int32_t>(random.below(bound));
  return DeviceInts(std::move(numbers));
}

/// A stream with its kernels, and a timer.
class Bench {
 public:
  Bench() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "stream");
    check_cuda(cudaEventCreate(&begin_), "event");
    check_cuda(cudaEventCreate(&end_), "event");
    kernels_ = make_cuda_kernels(DType::bf16, {stream_, 0});
  }
  ~Bench() {
    kernels_.reset();
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
    cudaStreamDestroy(stream_);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  Kernels& kernels() { return *kernels_; }
  cudaStream_t stream() const { return stream_; }

  /// Median seconds of one call.
  template <typename Call>
  double seconds(Call call) {
    check_cuda(cudaDeviceSynchronize(), "start values");  // their copies run in parallel to the stream
    std::vector<double> times;
    for (int pass = -kWarmUps; pass < kPasses; ++pass) {
      check_cuda(cudaMemsetAsync(flush_.data(), pass & 1, kFlushBytes, stream_), "flush");
      check_cuda(cudaEventRecord(begin_, stream_), "event");
      call();
      check_cuda(cudaEventRecord(end_, stream_), "event");
      check_cuda(cudaEventSynchronize(end_), "benchmark");
      float milliseconds = 0.0f;
      check_cuda(cudaEventElapsedTime(&milliseconds, begin_, end_), "benchmark");
      if (pass >= 0) times.push_back(milliseconds / 1e3);
    }
    std::nth_element(times.begin(), times.begin() + kPasses / 2, times.end());
    return times[kPasses / 2];
  }

 private:
  static constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  ///< several second-level caches

  cudaStream_t stream_ = nullptr;
  cudaEvent_t begin_ = nullptr;
  cudaEvent_t end_ = nullptr;
  DeviceMemory flush_{kFlushBytes};
  std::unique_ptr<Kernels> kernels_;
};

/// Bytes read and written per second by a copy of 1 GiB.
double copy_rate(Bench& bench) {
  constexpr std::size_t kBytes = std::size_t{1} << 30;
  const DeviceMemory from(kBytes);
  const DeviceMemory to(kBytes);
  const double seconds = bench.seconds([&] {
    check_cuda(cudaMemcpyAsync(to.data(), from.data(), kBytes, cudaMemcpyDeviceToDevice, bench.stream()),
               "copy");
  });
  return 2.0 * kBytes / seconds;
}

/// FLOP per second of a product of 8192^3.
double product_rate(Bench& bench) {
  constexpr std::int64_t kSize = 8192;
  const Values x(kSize, kSize), weight(kSize, kSize), y(kSize, kSize);
  const double seconds = bench.seconds([&] { bench.kernels().linear(y, x, weight, ConstMatrix()); });
  return 2.0 * kSize * kSize * kSize / seconds;
}

/// The unit of a benchmark's work.
enum class Unit { bytes, flop };

double ceiling_of(Unit unit, Bench& bench) {
  static const double copy = copy_rate(bench);
  static const double product = product_rate(bench);
  return unit == Unit::bytes ? copy : product;
}

/// Makes an Operation, times its operator() and reports work() relative to the ceiling.
template <typename Operation>
void time_operation(benchmark::State& state) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
    state.SkipWithError("no GPU");
    return;
  }
  Bench bench;
  const double ceiling = ceiling_of(Operation::kUnit, bench);
  Operation operation;
  double seconds = 0.0;
  for (auto _ : state) {
    seconds = bench.seconds([&] { operation(bench.kernels()); });
    state.SetIterationTime(seconds);
  }
  const double rate = operation.work() / seconds;
  const bool bytes = Operation::kUnit == Unit::bytes;
  state.counters[bytes ? "GB/s" : "TFLOP/s"] = rate / (bytes ? 1e9 : 1e12);
  state.counters["ceiling"] = ceiling / (bytes ? 1e9 : 1e12);
  state.counters["share"] = rate / ceiling;
}

template <std::int64_t in, std::int64_t out>
struct LinearForward {
  static constexpr Unit kUnit = Unit::flop;
  Values x{kTokens, in}, weight{out, in}, bias{1, out}, y{kTokens, out};
  void operator()(Kernels& k) { k.linear(y, x, weight, bias); }
  double work() const { return 2.0 * kTokens * in * out; }
};

template <std::int64_t in, std::int64_t out>
struct LinearBackward {
  static constexpr Unit kUnit = Unit::flop;
  Values x{kTokens, in}, weight{out, in}, dy{kTokens, out}, dx{kTokens, in};
  Zeros dweight{out, in}, dbias{1, out};
  void operator()(Kernels& k) {
    k.linear_backward_input(dx, dy, weight);
    k.linear_backward_weight(dweight, dbias, dy, x, Beta::one);
  }
  double work() const { return 4.0 * kTokens * in * out; }
};

template <bool causal, int kv_heads>
struct Attention {
  static constexpr Unit kUnit = Unit::flop;
  AttentionShape shape{32, kv_heads, 128, causal};
  Values qkv{kTokens, shape.qkv_columns()}, out{kTokens, shape.out_columns()};
  Zeros statistics{kTokens, shape.heads};
  DeviceInts offsets{{0, static_cast<std::int32_t>(kTokens)}};
  void operator()(Kernels& k) { k.attention(out, statistics, qkv, shape, offsets); }
  double work() const { return flop(2); }
  /// Counts the FLOP of `products` matrix products over all heads; masked keys do not count.
  double flop(int products) const {
    const double pairs = causal ? kTokens * (kTokens + 1) / 2.0 : 1.0 * kTokens * kTokens;
    return 2.0 * products * pairs * static_cast<double>(shape.out_columns());
  }
};

template <bool causal, int kv_heads>
struct AttentionBackward : Attention<causal, kv_heads> {
  Values dout{kTokens, this->shape.out_columns()}, dqkv{kTokens, this->shape.qkv_columns()};
  void operator()(Kernels& k) {
    k.attention_backward(dqkv, dout, this->out, this->statistics, this->qkv, this->shape, this->offsets);
  }
  double work() const { return this->flop(5); }
};

struct RmsNorm {
  static constexpr Unit kUnit = Unit::bytes;
  Values x{kTokens, kWidth}, y{kTokens, kWidth}, gamma{1, kWidth};
  Zeros statistics{kTokens, 1};
  void operator()(Kernels& k) { k.rms_norm(y, statistics, x, {}, gamma, 1e-5); }
  double work() const { return 4.0 * kTokens * kWidth; }
};
struct RmsNormBackward : RmsNorm {
  Values dy{kTokens, kWidth};
  Zeros dgamma{1, kWidth};
  void operator()(Kernels& k) { k.rms_norm_backward(y, dgamma, dy, x, gamma, statistics, {}); }
  double work() const { return 6.0 * kTokens * kWidth; }
};
struct AddRmsNorm : RmsNorm {
  Values added{kTokens, kWidth};
  void operator()(Kernels& k) { k.rms_norm(y, statistics, x, added, gamma, 1e-5); }
  double work() const { return 8.0 * kTokens * kWidth; }
};
struct RmsNormBackwardAdd : RmsNormBackward {
  Values added{kTokens, kWidth};
  void operator()(Kernels& k) { k.rms_norm_backward(y, dgamma, dy, x, gamma, statistics, added); }
  double work() const { return 8.0 * kTokens * kWidth; }
};
struct LayerNorm {
  static constexpr Unit kUnit = Unit::bytes;
  Values x{kTokens, kWidth}, y{kTokens, kWidth}, gamma{1, kWidth};
  Zeros statistics{kTokens, 2};
  void operator()(Kernels& k) { k.layer_norm(y, statistics, x, {}, gamma, gamma, 1e-5); }
  double work() const { return 4.0 * kTokens * kWidth; }
};
struct LayerNormBackward : LayerNorm {
  Values dy{kTokens, kWidth};
  Zeros dgamma{1, kWidth}, dbeta{1, kWidth};
  void operator()(Kernels& k) { k.layer_norm_backward(y, dgamma, dbeta, dy, x, gamma, statistics, {}); }
  double work() const { return 6.0 * kTokens * kWidth; }
};
struct Gelu {
  static constexpr Unit kUnit = Unit::bytes;
  Values x{kTokens, kHidden}, y{kTokens, kHidden};
  void operator()(Kernels& k) { k.gelu(y, x); }
  double work() const { return 4.0 * kTokens * kHidden; }
};
struct Swiglu {
  static constexpr Unit kUnit = Unit::bytes;
  Values x{kTokens, 2 * kHidden}, y{kTokens, kHidden};
  void operator()(Kernels& k) { k.swiglu(y, x); }
  double work() const { return 6.0 * kTokens * kHidden; }
};
struct SwigluBackward {
  static constexpr Unit kUnit = Unit::bytes;
  Values x{kTokens, 2 * kHidden}, dy{kTokens, kHidden}, dx{kTokens, 2 * kHidden};
  void operator()(Kernels& k) { k.swiglu_backward(dx, dy, x); }
  double work() const { return 10.0 * kTokens * kHidden; }
};
struct Rope {
  static constexpr Unit kUnit = Unit::bytes;
  AttentionShape shape{32, 32, 128, true};
  Values qkv{kTokens, shape.qkv_columns()};
  Zeros turns{kTokens, shape.head_dim};
  DeviceInts rows = ints_below(kTokens, kTokens);
  void operator()(Kernels& k) { k.rope(qkv, shape, rows, turns, false); }
  double work() const { return 4.0 * kTokens * 2 * static_cast<double>(shape.out_columns()); }
};
struct CrossEntropy {
  static constexpr Unit kUnit = Unit::bytes;
  Values logits{kTokens, kClasses};
  Zeros parts{kTokens, 3}, merged{kTokens, 3}, loss{1, 1};
  DeviceInts targets = ints_below(kTokens, kClasses);
  void operator()(Kernels& k) {
    k.cross_entropy_parts(parts, logits, targets, 0);
    k.cross_entropy_merge(merged, parts, 1);
    k.cross_entropy_backward(logits, loss, merged, targets, 0, 1.0 / kTokens);
  }
  double work() const { return 6.0 * kTokens * kClasses; }
};
struct EmbeddingBackward {
  static constexpr Unit kUnit = Unit::bytes;
  Values dy{kTokens, kWidth};
  Zeros dtable{kClasses, kWidth};
  DeviceInts ids = ints_below(kTokens, kClasses);
  void operator()(Kernels& k) { k.embedding_backward(dtable, dy, ids, 0); }
  double work() const { return 10.0 * kTokens * kWidth; }
};
struct AdamW {
  static constexpr Unit kUnit = Unit::bytes;
  Values weight{kHidden, kWidth};
  Zeros master{kHidden, kWidth}, m{kHidden, kWidth}, v{kHidden, kWidth}, gradient{kHidden, kWidth};
  void operator()(Kernels& k) { k.adamw(weight, master, m, v, gradient, {}); }
  double work() const { return 30.0 * kHidden * kWidth; }
};

#define DFLOP_CUDA_BENCH(name, ...)      \
  BENCHMARK(time_operation<__VA_ARGS__>) \
      ->Name("cuda_" name)               \
      ->UseManualTime()                  \
      ->Iterations(1)                    \
      ->Unit(benchmark::kMicrosecond)

DFLOP_CUDA_BENCH("linear/4096_4096", LinearForward<kWidth, kWidth>);
DFLOP_CUDA_BENCH("linear/4096_11008", LinearForward<kWidth, kHidden>);
DFLOP_CUDA_BENCH("linear/11008_4096", LinearForward<kHidden, kWidth>);
DFLOP_CUDA_BENCH("linear_backward/4096_4096", LinearBackward<kWidth, kWidth>);
DFLOP_CUDA_BENCH("linear_backward/4096_11008", LinearBackward<kWidth, kHidden>);
DFLOP_CUDA_BENCH("attention/full", Attention<false, 32>);
DFLOP_CUDA_BENCH("attention/causal", Attention<true, 32>);
DFLOP_CUDA_BENCH("attention/causal_8_key_heads", Attention<true, 8>);
DFLOP_CUDA_BENCH("attention_backward/full", AttentionBackward<false, 32>);
DFLOP_CUDA_BENCH("attention_backward/causal", AttentionBackward<true, 32>);
DFLOP_CUDA_BENCH("attention_backward/causal_8_key_heads", AttentionBackward<true, 8>);
DFLOP_CUDA_BENCH("rms_norm", RmsNorm);
DFLOP_CUDA_BENCH("rms_norm_backward", RmsNormBackward);
DFLOP_CUDA_BENCH("rms_norm/added", AddRmsNorm);
DFLOP_CUDA_BENCH("rms_norm_backward/added", RmsNormBackwardAdd);
DFLOP_CUDA_BENCH("layer_norm", LayerNorm);
DFLOP_CUDA_BENCH("layer_norm_backward", LayerNormBackward);
DFLOP_CUDA_BENCH("gelu", Gelu);
DFLOP_CUDA_BENCH("swiglu", Swiglu);
DFLOP_CUDA_BENCH("swiglu_backward", SwigluBackward);
DFLOP_CUDA_BENCH("rope", Rope);
DFLOP_CUDA_BENCH("cross_entropy", CrossEntropy);
DFLOP_CUDA_BENCH("embedding_backward", EmbeddingBackward);
DFLOP_CUDA_BENCH("adamw", AdamW);

}  // namespace cuda_kernels_bench
}  // namespace dflop
