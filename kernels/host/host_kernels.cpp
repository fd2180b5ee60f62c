#include "kernels/host/host_kernels.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <new>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include "core/error.hpp"
#include "kernels/host/onednn.hpp"
#include "kernels/host/scratch.hpp"
#include "kernels/host/team_kernels.hpp"
#include "kernels/host/variants.hpp"

namespace dflop {

// kernels/host/operations.cpp defines these, compiled for each target.
namespace portable {
void add_operations(Kernels& kernels, bool own);
}
namespace avx2 {
void add_operations(Kernels& kernels, bool own);
}
namespace avx512 {
void add_operations(Kernels& kernels, bool own);
}

namespace {

/// A Widened converts an argument of a bf16 operation into an argument of the f32 operation. Most arguments
/// stay unchanged.
template <typename Argument>
class Widened {
 public:
  explicit Widened(Argument argument) : argument_(argument) {}
  operator Argument() const { return argument_; }  // NOLINT: it is one
  void round_back() const {}

 private:
  Argument argument_;
};

/// A widened matrix is a copy in f32. A matrix without data stays without data.
template <typename AnyMatrix>
requires std::is_convertible_v<AnyMatrix, ConstMatrix>
class Widened<AnyMatrix> {
 public:
  explicit Widened(AnyMatrix matrix) : matrix_(matrix) {
    if (matrix.data == nullptr) return;
    const auto bytes = static_cast<std::size_t>(matrix.size()) * sizeof(float);
    values_.reset(static_cast<float*>(::operator new(bytes, host::kAlignment)));
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
  struct Free {
    void operator()(float* values) const { ::operator delete(values, host::kAlignment); }
  };

  AnyMatrix matrix_;
  std::unique_ptr<float[], Free> values_;
};

/// Computes a bf16 operation with a variant of the f32 operation on widened inputs, and rounds the outputs to
/// nearest.
template <typename... Args>
void compute_rounded(const host::VariantOf<Args...>& wide, Args... args) {
  const std::tuple<Widened<Args>...> widened(args...);
  std::apply(
      [&](const auto&... each) {
        wide(each...);
        (each.round_back(), ...);
      },
      widened);
}

/// Computes a norm that adds first: the sum is rounded before it is normalized.
template <auto norm, typename... Rest>
void norm_rounded(Kernels& wide, Matrix y, Sums statistics, InOutMatrix x, ConstMatrix added, Rest... rest) {
  if (added.data != nullptr) compute_rounded({wide.add, 0}, x, added);
  compute_rounded({wide.*norm, 0}, y, statistics, x, ConstMatrix(), rest...);
}

/// Copies bf16 numbers and detects infinities and NaNs, which have all exponent bits set.
void copy_bf16(Matrix y, Sums not_finite, const StoredNumbers& x) {
  constexpr std::uint16_t kExponent = 0x7F80;
  const auto* numbers = static_cast<const std::uint16_t*>(x.data);
  auto* values = static_cast<std::uint16_t*>(y.data);
  std::uint16_t found = 0;
  for (std::int64_t i = 0; i < x.count; ++i) {
    found |= static_cast<std::uint16_t>((numbers[i] & kExponent) == kExponent);
    values[i] = numbers[i];
  }
  if (found != 0) *static_cast<float*>(not_finite.data) = 1;
}

/// Unpacks some numbers at a time, because a copy of all of a folder's values would be large.
void unpack_rounded(Kernels& wide, Matrix y, Sums not_finite, const StoredNumbers& x) {
  if (x.type == NumberType::bf16) return copy_bf16(y, not_finite, x);
  std::array<float, 4096> values;
  auto* rounded = static_cast<BFloat16*>(y.data);
  for (std::int64_t first = 0; first < x.count; first += std::ssize(values)) {
    const std::int64_t count = std::min(std::ssize(values), x.count - first);
    wide.unpack_values(Matrix{values.data(), 1, count}, not_finite, part_of(x, first, count));
    rounded = std::transform(values.begin(), values.begin() + count, rounded, to_bfloat16);
  }
}

/// Bf16Kernels compute bf16 operations on a processor in f32. They are slow and serve to test GPUs. Sums are
/// f32 in both kinds of kernels.
class Bf16Kernels final : public Kernels {
 public:
  explicit Bf16Kernels(std::unique_ptr<Kernels> wide) : Kernels(DType::bf16), wide_(std::move(wide)) {
    for_each_operation([this](auto operation) { add_rounded(this->*operation, (*wide_).*operation); });
    layer_norm.set<norm_rounded<&Kernels::layer_norm, ConstMatrix, ConstMatrix, double>>(*wide_);
    rms_norm.set<norm_rounded<&Kernels::rms_norm, ConstMatrix, double>>(*wide_);
    unpack_values.set<unpack_rounded>(*wide_);
  }

 private:
  /// Adds a variant for each variant of the wide operation.
  template <typename... Args>
  void add_rounded(Operation<void(Args...)>& rounded, const Operation<void(Args...)>& wide) {
    for (std::size_t i = 0; i < wide.variants(); ++i) {
      auto& variant = states_.keep(host::VariantOf<Args...>{wide, i});
      rounded.template add<compute_rounded<Args...>>(wide.variant_name(i), variant);
    }
  }

  std::unique_ptr<Kernels> wide_;
  host::KeptStates states_;
};

/// A CompiledTarget is a target that the build includes. The list is ordered from narrow vectors to wide
/// ones: a target's kernels get the wider targets' operations as variants.
struct CompiledTarget {
  HostTarget target;
  void (*add_operations)(Kernels& kernels, bool own);
};

constexpr CompiledTarget kTargets[] = {
    {HostTarget::portable, portable::add_operations},
#ifdef DFLOP_HAVE_HOST_AVX2
    {HostTarget::avx2, avx2::add_operations},
#endif
#ifdef DFLOP_HAVE_HOST_AVX512
    {HostTarget::avx512, avx512::add_operations},
#endif
};

}  // namespace

bool has_host_target(HostTarget target) {
  switch (target) {
    case HostTarget::portable:
      return true;
    case HostTarget::avx2:
#ifdef DFLOP_HAVE_HOST_AVX2
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#else
      return false;
#endif
    case HostTarget::avx512:
#ifdef DFLOP_HAVE_HOST_AVX512
      return has_host_target(HostTarget::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl");
#else
      return false;
#endif
  }
  return false;
}

HostTarget fastest_host_target() {
  return has_host_target(HostTarget::avx2) ? HostTarget::avx2 : HostTarget::portable;
}

std::unique_ptr<Kernels> make_host_kernels(DType dtype, HostTarget target, Team* team) {
  if (!has_host_target(target)) {
    throw Error(ErrorKind::no_device, "this processor has no " + std::string(to_string(target)));
  }
  if (dtype == DType::bf16) return std::make_unique<Bf16Kernels>(make_host_kernels(DType::f32, target, team));
  auto kernels = std::make_unique<Kernels>(dtype);
  bool has_own = false;
  for (const CompiledTarget& compiled : kTargets) {
    const bool own = compiled.target == target;
    has_own = has_own || own;
    if (has_own && has_host_target(compiled.target)) compiled.add_operations(*kernels, own);
  }
  host::add_onednn(*kernels);
  if (team != nullptr) return team::make_team_kernels(std::move(kernels), *team);
  return kernels;
}

}  // namespace dflop
