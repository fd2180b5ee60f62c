// The host's kernels at the shapes of a small model, width 512. Items are FLOP, so items/s is FLOP/s of one
// core. avx2:0 runs on every x86-64; avx2:1 is the fastest target of this processor. `kernels_product` is
// only Eigen's product on the linear layer's shape, compiled like avx2:0: the ceiling of all avx2:0.
// `kernels_peak` is the ceiling of the processor.
//
// `kernels_variant` compares all variants of an operation at shapes of tiny-vlm and small-vlm, 512 tokens:
// --benchmark_filter='kernels_variant/linear/' --benchmark_enable_random_interleaving=true.
#include <benchmark/benchmark.h>

#include <Eigen/Core>
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/support/random.hpp"
#include "kernels/host/host_kernels.hpp"

namespace dflop {
namespace kernels_bench {

constexpr std::int64_t kRows = 1024;  ///< tokens of a microbatch
constexpr std::int64_t kWidth = 512;
constexpr std::int64_t kHidden = 4 * kWidth;

/// rows x columns of random f32.
struct Floats {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<float> data;

  Floats(std::int64_t r, std::int64_t c) : rows(r), columns(c), data(static_cast<std::size_t>(r * c)) {
    static Random random(1);
    for (float& x : data) x = static_cast<float>(2.0 * random.uniform() - 1.0);
  }
  operator Matrix() { return {data.data(), rows, columns}; }
  operator ConstMatrix() const { return {data.data(), rows, columns}; }
  operator Sums() { return {data.data(), rows, columns}; }
  operator ConstSums() const { return {data.data(), rows, columns}; }
};

std::unique_ptr<Kernels> make_kernels(const benchmark::State& state) {
  return make_host_kernels(DType::f32,
                           std::min(static_cast<HostTarget>(state.range(0)), fastest_host_target()));
}

void set_flop(benchmark::State& state, double flop) {
  state.SetItemsProcessed(static_cast<std::int64_t>(flop * static_cast<double>(state.iterations())));
}

#if defined(__x86_64__)

/// Multiplies and adds only in registers: the ceiling of every f32 product. There are enough chains to hide
/// the latency of an instruction, and they fit into the 16 registers of AVX2.
__attribute__((target("avx2,fma"))) void kernels_peak(benchmark::State& state) {
  if (!has_host_target(HostTarget::avx2)) return state.SkipWithError("this processor has no AVX2");
  using Vector [[gnu::vector_size(32)]] = float;
  constexpr int kRounds = 10'000;
  constexpr int kChains = 12;
  Vector sums[kChains] = {};
  Vector factor = Vector{} + 0.999F;
  for (auto _ : state) {
    benchmark::DoNotOptimize(factor);
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 12
      for (int chain = 0; chain < kChains; ++chain) sums[chain] = sums[chain] * factor + factor;
    }
    for (Vector& sum : sums) benchmark::DoNotOptimize(sum);
  }
  set_flop(state, 2.0 * 8 * kChains * kRounds);
}
BENCHMARK(kernels_peak)->Unit(benchmark::kMicrosecond);

#endif

constexpr double kLinearFlop = 2.0 * kRows * kWidth * kHidden;

void kernels_product(benchmark::State& state) {
  using Product = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Product x = Product::Random(kRows, kWidth);
  const Product weight = Product::Random(kHidden, kWidth);
  Product y(kRows, kHidden);
  for (auto _ : state) {
    y.noalias() = x * weight.transpose();
    benchmark::DoNotOptimize(y.data());
  }
  set_flop(state, kLinearFlop);
}
BENCHMARK(kernels_product)->Unit(benchmark::kMillisecond);

void kernels_linear(benchmark::State& state) {
  const auto kernels = make_kernels(state);
  const Floats x(kRows, kWidth), weight(kHidden, kWidth), bias(1, kHidden);
  Floats y(kRows, kHidden);
  for (auto _ : state) kernels->linear(y, x, weight, bias);
  set_flop(state, kLinearFlop);
}
BENCHMARK(kernels_linear)->ArgName("avx2")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

void kernels_linear_backward(benchmark::State& state) {
  const auto kernels = make_kernels(state);
  const Floats x(kRows, kWidth), weight(kHidden, kWidth), dy(kRows, kHidden);
  Floats dx(kRows, kWidth), dweight(kHidden, kWidth), dbias(1, kHidden);
  for (auto _ : state) {
    kernels->linear_backward_input(dx, dy, weight);
    kernels->linear_backward_weight(dweight, dbias, dy, x, Beta::one);
  }
  set_flop(state, 2.0 * kLinearFlop);
}
BENCHMARK(kernels_linear_backward)->ArgName("avx2")->Arg(0)->Arg(1)->Unit(benchmark::kMillisecond);

/// kRows tokens in sequences of range(1), 8 heads of 64 with 4 key heads; causal if range(2) is 1.
struct AttentionInput {
  AttentionShape shape{8, 4, 64, false};
  std::vector<std::int32_t> offset_list;
  Floats qkv{kRows, shape.qkv_columns()};
  Floats out{kRows, shape.out_columns()};
  Floats statistics{kRows, shape.heads};
  double pairs = 0.0;  ///< of query and key

  explicit AttentionInput(const benchmark::State& state) {
    const std::int64_t length = state.range(1);
    shape.causal = state.range(2) == 1;
    for (std::int64_t row = 0; row <= kRows; row += length) {
      offset_list.push_back(static_cast<std::int32_t>(row));
    }
    const auto keys = static_cast<double>(length);
    pairs = kRows * (shape.causal ? (keys + 1.0) / 2.0 : keys);
  }
  Indices offsets() const { return {offset_list, offset_list.data()}; }
  /// Counts the FLOP of `products` matrix products over all heads; masked keys do not count.
  double flop(int products) const {
    return 2.0 * products * pairs * static_cast<double>(shape.out_columns());
  }
};

void kernels_attention(benchmark::State& state) {
  const auto kernels = make_kernels(state);
  AttentionInput input(state);
  for (auto _ : state) {
    kernels->attention(input.out, input.statistics, input.qkv, input.shape, input.offsets());
  }
  set_flop(state, input.flop(2));
}
BENCHMARK(kernels_attention)
    ->ArgNames({"avx2", "length", "causal"})
    ->ArgsProduct({{0, 1}, {128, 1024}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

void kernels_attention_backward(benchmark::State& state) {
  const auto kernels = make_kernels(state);
  AttentionInput input(state);
  kernels->attention(input.out, input.statistics, input.qkv, input.shape, input.offsets());
  const Floats dout(kRows, input.shape.out_columns());
  Floats dqkv(kRows, input.shape.qkv_columns());
  for (auto _ : state) {
    kernels->attention_backward(dqkv, dout, input.out, input.statistics, input.qkv, input.shape,
                                input.offsets());
  }
  set_flop(state, input.flop(5));
}
BENCHMARK(kernels_attention_backward)
    ->ArgNames({"avx2", "length", "causal"})
    ->ArgsProduct({{0, 1}, {128, 1024}, {0, 1}})
    ->Unit(benchmark::kMillisecond);

/// Operations bound by memory or exponentials; items are values.
void kernels_rows(benchmark::State& state, void (*call)(Kernels&, Floats& y, Floats& x)) {
  const auto kernels = make_kernels(state);
  Floats x(kRows, kHidden), y(kRows, kHidden);
  for (auto _ : state) call(*kernels, y, x);
  state.SetItemsProcessed(state.iterations() * kRows * kHidden);
}
void call_gelu(Kernels& kernels, Floats& y, Floats& x) {
  kernels.gelu(y, x);
}
void call_norm(Kernels& kernels, Floats& y, Floats& x) {
  static const Floats gamma(1, kHidden);
  static Floats statistics(kRows, 2);
  kernels.layer_norm(y, statistics, x, {}, gamma, gamma, 1e-5);
}
void call_add(Kernels& kernels, Floats& y, Floats& x) {
  kernels.add(y, x);
}
BENCHMARK_CAPTURE(kernels_rows, gelu, call_gelu)
    ->ArgName("avx2")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(kernels_rows, layer_norm, call_norm)
    ->ArgName("avx2")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(kernels_rows, add, call_add)
    ->ArgName("avx2")
    ->Arg(0)
    ->Arg(1)
    ->Unit(benchmark::kMillisecond);

constexpr std::int64_t kTokens = 512;

/// Registers a row for each variant; `make` returns a function that computes the operation with one variant.
template <typename Member>
void register_variants(Member operation, const std::string& shape, double flop,
                       const std::function<std::function<void(std::size_t)>(const Kernels&)>& make) {
  static const std::unique_ptr<Kernels> kernels = make_host_kernels(DType::f32);
  for (std::size_t i = 0; i < ((*kernels).*operation).variants(); ++i) {
    const std::string name = "kernels_variant/" + std::string(((*kernels).*operation).name()) + "/" + shape +
                             "/" + std::string(((*kernels).*operation).variant_name(i));
    benchmark::RegisterBenchmark(name.c_str(), [=](benchmark::State& state) {
      const std::function<void(std::size_t)> compute = make(*kernels);
      for (auto _ : state) compute(i);
      set_flop(state, flop);
    })->Unit(benchmark::kMicrosecond);
  }
}

/// The three products of a linear layer.
void register_linear(std::int64_t in, std::int64_t out) {
  const auto x = std::make_shared<Floats>(kTokens, in), y = std::make_shared<Floats>(kTokens, out),
             weight = std::make_shared<Floats>(out, in);
  const std::string shape = std::to_string(in) + "x" + std::to_string(out);
  const double flop = 2.0 * kTokens * static_cast<double>(in * out);
  register_variants(&Kernels::linear, shape, flop, [=](const Kernels& k) {
    return [=, &k](std::size_t i) { k.linear.run_variant(i, *y, *x, *weight, ConstMatrix()); };
  });
  register_variants(&Kernels::linear_backward_input, shape, flop, [=](const Kernels& k) {
    return [=, &k](std::size_t i) { k.linear_backward_input.run_variant(i, *x, *y, *weight); };
  });
  register_variants(&Kernels::linear_backward_weight, shape, flop, [=](const Kernels& k) {
    return [=, &k](std::size_t i) {
      k.linear_backward_weight.run_variant(i, *weight, Sums(), *y, *x, Beta::one);
    };
  });
}

/// Registers the activation functions with this many output columns.
void register_activations(std::int64_t columns) {
  const auto x = std::make_shared<Floats>(kTokens, columns),
             wide = std::make_shared<Floats>(kTokens, 2 * columns),
             y = std::make_shared<Floats>(kTokens, columns);
  register_variants(&Kernels::swiglu, std::to_string(columns), 0.0, [=](const Kernels& k) {
    return [=, &k](std::size_t i) { k.swiglu.run_variant(i, *y, *wide); };
  });
  register_variants(&Kernels::gelu, std::to_string(columns), 0.0, [=](const Kernels& k) {
    return [=, &k](std::size_t i) { k.gelu.run_variant(i, *y, *x); };
  });
}

/// Attention over the tokens in sequences of one length.
void register_attention(AttentionShape heads, std::int64_t length) {
  struct Input {
    AttentionShape shape;
    std::vector<std::int32_t> offsets;
    Floats qkv{kTokens, shape.qkv_columns()}, dqkv{kTokens, shape.qkv_columns()};
    Floats out{kTokens, shape.out_columns()}, dout{kTokens, shape.out_columns()};
    Floats statistics{kTokens, shape.heads};
    Indices ends() const { return {offsets, offsets.data()}; }
  };
  const auto input = std::make_shared<Input>(Input{heads, {}});
  for (std::int64_t row = 0; row <= kTokens; row += length) {
    input->offsets.push_back(static_cast<std::int32_t>(row));
  }
  const std::string shape = std::to_string(heads.heads) + "of" + std::to_string(heads.head_dim) + "x" +
                            std::to_string(length) + (heads.causal ? "causal" : "");
  const double keys = static_cast<double>(length);
  const double flop =
      2.0 * kTokens * (heads.causal ? (keys + 1.0) / 2.0 : keys) * static_cast<double>(heads.out_columns());
  register_variants(&Kernels::attention, shape, 2.0 * flop, [=](const Kernels& k) {
    return [=, &k](std::size_t i) {
      k.attention.run_variant(i, input->out, input->statistics, input->qkv, input->shape, input->ends());
    };
  });
  register_variants(&Kernels::attention_backward, shape, 5.0 * flop, [=](const Kernels& k) {
    k.attention(input->out, input->statistics, input->qkv, input->shape, input->ends());
    return [=, &k](std::size_t i) {
      k.attention_backward.run_variant(i, input->dqkv, input->dout, input->out, input->statistics, input->qkv,
                                       input->shape, input->ends());
    };
  });
}

const bool kVariantsAreRegistered = [] {
  for (const auto& [in, out] :
       {std::pair(64, 192), {64, 256}, {192, 768}, {384, 640}, {384, 2048}, {1024, 384}}) {
    register_linear(in, out);
  }
  register_activations(64);
  register_activations(384);
  register_attention({4, 4, 16, false}, 16);
  register_attention({4, 2, 16, true}, 128);
  register_attention({3, 3, 64, false}, 16);
  register_attention({6, 2, 64, true}, 128);
  register_attention({8, 8, 80, false}, 512);
  return true;
}();

}  // namespace kernels_bench
}  // namespace dflop
