#include "backend/profile/kernel_bench.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "backend/profile/bench_values.hpp"
#include "core/error.hpp"
#include "core/kernel_choice/kernel_planner.hpp"
#include "core/support/clock.hpp"

namespace dflop {
namespace {

/// Returns the offsets of sequences of `length`, the last of what is left.
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
  std::vector<float> all(static_cast<std::size_t>(rows * columns));
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = values_[i % values_.size()];
  upload(rank_, tensor.view().data, rank_.kernels.dtype(), std::span<const float>(all));
  return tensor;
}

void KernelBench::prepare(const KernelCall& call) {
  run_ = nullptr;  // its memory is free for the next
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
  throw Error(ErrorKind::internal, "an operation that is none");
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
      kernels.linear_backward_weight.run_variant(variant, *sums, Sums{}, std::as_const(*y),
                                                 std::as_const(*x));
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
  rank_.kernels.zero(Sums(other_));  // caches hold it, and not the arguments
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
constexpr std::int64_t kMostRuns = 30;

/// A Contest is that of the variants of one call.
class Contest {
 public:
  Contest(KernelBench& bench, KernelTable::Entry& entry)
      : bench_(bench), entry_(entry), least_(entry.size(), std::numeric_limits<double>::infinity()) {
    for (std::size_t v = 0; v < entry.size(); ++v) left_.push_back(v);
  }

  bool over() const { return left_.size() < 2; }

  /// Runs each of those that are left so often, in turns.
  void run(std::int64_t times) {
    for (std::int64_t i = 0; i < times; ++i) {
      for (const std::size_t v : left_) {
        const double ns = bench_.run_ns(v);
        entry_[v].add(ns);
        least_[v] = std::min(least_[v], ns);
      }
    }
  }
  /// Drops those over a limit of the best's shortest run, or mean.
  void drop(double limit, bool by_least) {
    const auto time = [&](std::size_t v) { return by_least ? least_[v] : entry_[v].mean; };
    double best = std::numeric_limits<double>::infinity();
    for (const std::size_t v : left_) best = std::min(best, time(v));
    std::erase_if(left_, [&](std::size_t v) { return v != 0 && time(v) > limit * best; });
  }

 private:
  KernelBench& bench_;
  KernelTable::Entry& entry_;
  std::vector<double> least_;
  std::vector<std::size_t> left_;  // the default among them
};

/// Returns what a call is expected to take until its default has run, in units of its own. Activations have
/// no inner size and come after all else.
double expected(const TunedCall& tuned) {
  return tuned.weight * work_of(tuned.call) * std::max(tuned.call.inner, 1) *
         (tuned.call.length > 0 ? tuned.call.outer / 512 : tuned.call.outer);
}

/// Measures the variants of one call until `over()`, but each of them twice. @throws OutOfMemory
template <typename Over>
void measure(KernelBench& bench, const KernelCall& call, KernelTable& table, const Over& over) {
  bench.prepare(call);
  for (std::size_t v = 0; v < bench.variants(); ++v) bench.run_ns(v);  // warms up
  Contest contest(bench, table.entry(KernelKey(call)));
  contest.run(kFirstRuns);
  contest.drop(kFirstRoundLimit, true);
  for (std::int64_t runs = kFirstRuns; !contest.over() && runs < kMostRuns && !over(); ++runs) {
    if (runs == kSecondRuns) contest.drop(kSecondRoundLimit, false);
    contest.run(1);
  }
}

}  // namespace

std::size_t tune_kernels(const RankContext& rank, const std::vector<TunedCall>& calls,
                         const TuningOptions& options, KernelTable& table) {
  KernelBench bench(rank, options.seed);
  std::vector<TunedCall> order = calls;
  std::stable_sort(order.begin(), order.end(),
                   [](const TunedCall& a, const TunedCall& b) { return expected(a) > expected(b); });
  double left_share = 0;
  for (const TunedCall& tuned : order) left_share += expected(tuned);
  std::size_t too_large = 0;
  const Stopwatch watch;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Seconds left = options.budget - watch.elapsed();
    if (i > 0 && left <= Seconds(0)) break;
    if (options.progress) {
      const double done = std::min(1.0, watch.elapsed() / options.budget);
      options.progress(static_cast<std::int64_t>(100 * done), 100);
    }
    // A floor keeps calls of little time from having none: half of what is left is shared out evenly.
    const double share = expected(order[i]) / left_share;
    const Seconds own = left * (0.5 * share + 0.5 / static_cast<double>(order.size() - i));
    left_share -= expected(order[i]);
    const Seconds end = watch.elapsed() + own;
    try {
      measure(bench, order[i].call, table, [&] { return watch.elapsed() >= end; });
    } catch (const OutOfMemory&) {
      ++too_large;
    }
  }
  return too_large;
}

}  // namespace dflop
