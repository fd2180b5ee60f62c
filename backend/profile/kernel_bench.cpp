#include "backend/profile/kernel_bench.hpp"

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <utility>

#include "backend/profile/bench_values.hpp"
#include "core/error.hpp"
#include "core/kernel_choice/kernel_planner.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

/// Returns the offsets of sequences of `length` tokens; the last one has the remaining tokens.
std::vector<std::int32_t> offsets_of(std::int64_t tokens, std::int64_t length) {
  std::vector<std::int32_t> offsets{0};
  while (offsets.back() < tokens) {
    offsets.push_back(
        static_cast<std::int32_t>(std::min(tokens, offsets.back() + std::max<std::int64_t>(1, length))));
  }
  return offsets;
}

}  // namespace

KernelBench::KernelBench(const RankContext& rank, std::uint64_t seed)
    : rank_(rank),
      values_(random_values(seed)),
      other_(rank, 1, kColdValues),
      begin_(rank.device.make_event()),
      end_(rank.device.make_event()) {}

Tensor KernelBench::random_tensor(std::int64_t rows, std::int64_t columns) {
  Tensor tensor(rank_, rows, columns);
  const DType dtype = rank_.kernels.dtype();
  const auto count = static_cast<std::size_t>(rows * columns);
  for (std::size_t done = 0; done < count; done += values_.size()) {  // a full copy may not fit in memory
    const auto piece = std::span<const float>(values_).first(std::min(values_.size(), count - done));
    upload(rank_, static_cast<std::byte*>(tensor.view().data) + done * bytes_of(dtype), dtype, piece);
  }
  return tensor;
}

void KernelBench::prepare(const KernelCall& call) {
  run_ = nullptr;  // frees its memory for the next call
  switch (call.operation) {
    case KernelOperation::linear:
    case KernelOperation::linear_backward_input:
    case KernelOperation::linear_backward_weight:
      return prepare_product(call);
    case KernelOperation::attention:
    case KernelOperation::attention_backward:
      return prepare_attention(call);
    case KernelOperation::gelu:
    case KernelOperation::swiglu:
      return prepare_activation(call);
    case KernelOperation::gelu_backward:
    case KernelOperation::swiglu_backward:
      return prepare_activation_backward(call);
  }
  throw Error(ErrorKind::internal, "unknown operation");
}

void KernelBench::prepare_product(const KernelCall& call) {
  const auto x = std::make_shared<Tensor>(random_tensor(call.tokens, call.inner));
  const auto y = std::make_shared<Tensor>(random_tensor(call.tokens, call.outer));
  Kernels& kernels = rank_.kernels;
  if (call.operation == KernelOperation::linear_backward_weight) {
    const auto sums = std::make_shared<SumTensor>(rank_, call.outer, call.inner);
    kernels.zero(Sums(*sums));
    variants_ = kernels.linear_backward_weight.variants();
    run_ = [&kernels, x, y, sums](std::size_t variant) {
      kernels.linear_backward_weight.run_variant(variant, *sums, Sums{}, std::as_const(*y), std::as_const(*x),
                                                 Beta::one);
    };
    return;
  }
  const auto weight = std::make_shared<Tensor>(random_tensor(call.outer, call.inner));
  if (call.operation == KernelOperation::linear) {
    variants_ = kernels.linear.variants();
    run_ = [&kernels, x, y, weight](std::size_t variant) {
      kernels.linear.run_variant(variant, *y, std::as_const(*x), std::as_const(*weight), ConstMatrix{});
    };
  } else {
    variants_ = kernels.linear_backward_input.variants();
    run_ = [&kernels, x, y, weight](std::size_t variant) {
      kernels.linear_backward_input.run_variant(variant, *x, std::as_const(*y), std::as_const(*weight));
    };
  }
}

void KernelBench::prepare_attention(const KernelCall& call) {
  const AttentionShape shape{call.outer / 512, call.outer % 512, call.inner, call.causal};
  const auto offsets = std::make_shared<IndexTensor>(rank_, offsets_of(call.tokens, call.length));
  const auto qkv = std::make_shared<Tensor>(random_tensor(call.tokens, shape.qkv_columns()));
  const auto out = std::make_shared<Tensor>(rank_, call.tokens, shape.out_columns());
  const auto statistics = std::make_shared<SumTensor>(rank_, call.tokens, shape.heads);
  Kernels& kernels = rank_.kernels;
  if (call.operation == KernelOperation::attention) {
    variants_ = kernels.attention.variants();
    run_ = [&kernels, shape, offsets, qkv, out, statistics](std::size_t variant) {
      kernels.attention.run_variant(variant, *out, *statistics, std::as_const(*qkv), shape, *offsets);
    };
    return;
  }
  kernels.attention.run_variant(0, *out, *statistics, std::as_const(*qkv), shape, *offsets);
  const auto d_out = std::make_shared<Tensor>(random_tensor(call.tokens, shape.out_columns()));
  const auto d_qkv = std::make_shared<Tensor>(rank_, call.tokens, shape.qkv_columns());
  variants_ = kernels.attention_backward.variants();
  run_ = [&kernels, shape, offsets, qkv, out, statistics, d_out, d_qkv](std::size_t variant) {
    kernels.attention_backward.run_variant(variant, *d_qkv, std::as_const(*d_out), std::as_const(*out),
                                           std::as_const(*statistics), std::as_const(*qkv), shape, *offsets);
  };
}

void KernelBench::prepare_activation(const KernelCall& call) {
  const bool gated = call.operation == KernelOperation::swiglu;
  const auto x = std::make_shared<Tensor>(random_tensor(call.tokens, (gated ? 2 : 1) * call.outer));
  const auto y = std::make_shared<Tensor>(rank_, call.tokens, call.outer);
  const auto& activation = gated ? rank_.kernels.swiglu : rank_.kernels.gelu;
  variants_ = activation.variants();
  run_ = [&activation, x, y](std::size_t variant) { activation.run_variant(variant, *y, std::as_const(*x)); };
}

void KernelBench::prepare_activation_backward(const KernelCall& call) {
  const bool gated = call.operation == KernelOperation::swiglu_backward;
  const auto x = std::make_shared<Tensor>(random_tensor(call.tokens, call.outer));
  const auto dy = std::make_shared<Tensor>(random_tensor(call.tokens, call.outer / (gated ? 2 : 1)));
  const auto dx = std::make_shared<Tensor>(rank_, call.tokens, call.outer);
  const auto& backward = gated ? rank_.kernels.swiglu_backward : rank_.kernels.gelu_backward;
  variants_ = backward.variants();
  run_ = [&backward, x, dy, dx](std::size_t variant) {
    backward.run_variant(variant, *dx, std::as_const(*dy), std::as_const(*x));
  };
}

double KernelBench::run_ns(std::size_t variant) {
  rank_.kernels.zero(Sums(other_));  // evicts the arguments from the caches
  rank_.compute.synchronize();
  rank_.compute.record(*begin_);
  run_(variant);
  rank_.compute.record(*end_);
  rank_.compute.synchronize();
  return static_cast<double>((end_->time() - begin_->time()).count());
}

namespace {

constexpr std::int64_t kFirstRuns = 2;
constexpr std::int64_t kSecondRuns = 6;
constexpr std::int64_t kMaxRuns = 30;
constexpr double kProbe = double{1 << 28};  // multiplications of the call that predicts others' times

/// Returns the approximate number of multiplications of a call. Activations have no inner size and come last.
double multiplications(const KernelCall& call) {
  return work_of(call) * std::max(call.inner, 1) * (call.length > 0 ? call.outer / 512 : call.outer);
}

/// Returns the expected time of a call in a step, in arbitrary units.
double expected(const TunedCall& tuned) {
  return tuned.weight * multiplications(tuned.call);
}

/// Returns the calls in order of decreasing expected time, except that a short call comes first.
std::vector<TunedCall> in_order(std::vector<TunedCall> calls) {
  const auto size = [](const TunedCall& tuned) { return multiplications(tuned.call); };
  std::ranges::stable_sort(calls, std::greater{}, expected);
  auto probe = std::ranges::find_if(
      calls, [](double n) { return n <= kProbe; }, size);
  if (probe == calls.end()) probe = std::ranges::min_element(calls, {}, size);
  if (probe != calls.end()) std::rotate(calls.begin(), probe, probe + 1);
  return calls;
}

/// Measures the variants of one call, each at least twice, until over() returns true; it is called before
/// each round. Returns the time of the fastest variant's first run. @throws OutOfMemory, and the exceptions
/// of over()
template <typename Over>
double measure(KernelBench& bench, const KernelCall& call, KernelTable& table, const Over& over) {
  bench.prepare(call);
  std::vector<std::size_t> left;  // remaining variants, including the default
  std::vector<double> least;      // shortest run of each variant
  for (std::size_t v = 0; v < bench.variants(); ++v) {
    left.push_back(v);
    least.push_back(bench.run_ns(v));
  }
  const double first_ns = *std::ranges::min_element(least);
  over();
  KernelTable::Entry& entry = table.entry(KernelKey(call));
  // Drops variants whose time exceeds `limit` times the best one's.
  const auto drop = [&](double limit, const auto& time) {
    const double best = time(std::ranges::min(left, {}, time));
    std::erase_if(left, [&](std::size_t v) { return v != 0 && time(v) > limit * best; });
  };
  for (std::int64_t runs = 0; runs < kFirstRuns || (left.size() > 1 && runs < kMaxRuns && !over()); ++runs) {
    for (const std::size_t v : left) {
      const double ns = bench.run_ns(v);
      entry[v].add(ns);
      least[v] = std::min(least[v], ns);
    }
    if (runs + 1 == kFirstRuns) drop(kFirstRoundLimit, [&](std::size_t v) { return least[v]; });
    if (runs + 1 == kSecondRuns) drop(kSecondRoundLimit, [&](std::size_t v) { return entry[v].mean; });
  }
  return first_ns;
}

}  // namespace

LeftOut tune_kernels(const RankContext& rank, const std::vector<TunedCall>& calls,
                     const TuningOptions& options, KernelTable& table) {
  KernelBench bench(rank, options.seed);
  const std::vector<TunedCall> order = in_order(calls);
  double left_share = 0;
  for (const TunedCall& tuned : order) left_share += expected(tuned);
  LeftOut left_out;
  double least_ns = 0;  // shortest time per multiplication so far
  const Stopwatch watch;
  const auto tell = [&] {
    if (!options.progress) return;
    const double done = std::min(1.0, watch.elapsed() / options.budget);
    options.progress(static_cast<std::int64_t>(100 * done), 100);
  };
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Seconds left = options.budget - watch.elapsed();
    const double variants = static_cast<double>(table.names(order[i].call.operation).size());
    const Seconds least{multiplications(order[i].call) * least_ns * 1e-9 * variants * (1 + kFirstRuns)};
    if (i > 0 && (left <= Seconds(0) || least >= left)) {
      ++left_out.too_long;
      left_share -= expected(order[i]);
      continue;
    }
    tell();
    // Half of the remaining budget is shared equally, so that short calls get some time too.
    const double share = expected(order[i]) / left_share;
    const Seconds own = left * (0.5 * share + 0.5 / static_cast<double>(order.size() - i));
    left_share -= expected(order[i]);
    const Seconds end = watch.elapsed() + own;
    try {
      const double ns = measure(bench, order[i].call, table, [&] {
        tell();
        return watch.elapsed() >= end;
      });
      const double each = ns / multiplications(order[i].call);
      least_ns = least_ns > 0 ? std::min(least_ns, each) : each;
    } catch (const OutOfMemory&) {
      ++left_out.without_memory;
    }
  }
  return left_out;
}

}  // namespace dflop
