#include "kernels/host/host_kernels.hpp"

#include <algorithm>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/error.hpp"

namespace dflop {

// kernels/host/operations.cpp defines these, compiled for each target.
namespace portable {
void set_operations(Kernels& kernels);
}
namespace avx2 {
void set_operations(Kernels& kernels);
}

namespace {

/// A Widened is an argument of a bf16 operation as the f32 operation takes it. Most are the same for both.
template <typename Argument>
class Widened {
 public:
  explicit Widened(Argument argument) : argument_(argument) {}
  operator Argument() const { return argument_; }  // NOLINT: it is one
  void round_back() const {}

 private:
  Argument argument_;
};

/// A widened matrix is a copy in f32. One without data stays so.
template <typename AnyMatrix>
requires std::is_convertible_v<AnyMatrix, ConstMatrix>
class Widened<AnyMatrix> {
 public:
  explicit Widened(AnyMatrix matrix) : matrix_(matrix) {
    if (matrix.data == nullptr) return;
    const auto bytes = static_cast<std::size_t>(matrix.size()) * sizeof(float);
    values_.reset(static_cast<float*>(::operator new(bytes, kAlignment)));
    if constexpr (kRead) {
      const auto* from = static_cast<const BFloat16*>(matrix.data);
      std::transform(from, from + matrix.size(), values_.get(), to_float);
    }
  }

  operator AnyMatrix() const { return AnyMatrix(values_.get(), matrix_.rows, matrix_.columns); }  // NOLINT

  void round_back() const {
    if constexpr (kWritten) {
      if (matrix_.data == nullptr) return;
      std::transform(values_.get(), values_.get() + matrix_.size(), static_cast<BFloat16*>(matrix_.data),
                     to_bfloat16);
    }
  }

 private:
  static constexpr bool kRead = !std::is_same_v<AnyMatrix, Matrix>;
  static constexpr bool kWritten = !std::is_same_v<AnyMatrix, ConstMatrix>;
  static constexpr std::align_val_t kAlignment{64};  // at which results have the same bits
  struct Free {
    void operator()(float* values) const { ::operator delete(values, kAlignment); }
  };

  AnyMatrix matrix_;
  std::unique_ptr<float[], Free> values_;
};

/// Computes an operation of bf16 with that of f32, on widened inputs, and rounds its outputs to the nearest.
template <typename... Args>
void compute_rounded(const Operation<void(Args...)>& wide, Args... args) {
  const std::tuple<Widened<Args>...> widened(args...);
  std::apply(
      [&](const auto&... each) {
        wide(each...);
        (each.round_back(), ...);
      },
      widened);
}

/// Bf16Kernels are for a processor that computes in f32: for tests of what GPUs do, and slow. Sums are f32 in
/// both.
class Bf16Kernels final : public Kernels {
 public:
  explicit Bf16Kernels(std::unique_ptr<Kernels> wide) : Kernels(DType::bf16), wide_(std::move(wide)) {
    for_each_operation([this](auto operation) { set_rounded(this->*operation, (*wide_).*operation); });
  }

  void guide(KernelGuide* guide) override { wide_->guide(guide); }

 private:
  template <typename... Args>
  static void set_rounded(Operation<void(Args...)>& rounded, const Operation<void(Args...)>& wide) {
    rounded.template set<compute_rounded<Args...>>(wide);
  }

  std::unique_ptr<Kernels> wide_;
};

}  // namespace

HostTarget fastest_host_target() {
#ifdef DFLOP_HAVE_HOST_AVX2
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return HostTarget::avx2;
#endif
  return HostTarget::portable;
}

std::unique_ptr<Kernels> make_host_kernels(DType dtype, HostTarget target) {
  if (dtype == DType::bf16) return std::make_unique<Bf16Kernels>(make_host_kernels(DType::f32, target));
  auto kernels = std::make_unique<Kernels>(dtype);
  if (target == HostTarget::portable) {
    portable::set_operations(*kernels);
    return kernels;
  }
#ifdef DFLOP_HAVE_HOST_AVX2
  if (fastest_host_target() == HostTarget::avx2) {
    avx2::set_operations(*kernels);
    return kernels;
  }
#endif
  throw Error(ErrorKind::no_device, "this processor has no AVX2 with fused multiply-add");
}

}  // namespace dflop
