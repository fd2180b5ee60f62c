// A KernelKey describes a call by the properties that determine its fastest variant. They all follow from a
// stage and a Workload, so the simulator and a live run use the same keys.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// A KernelOperation is an operation that may have variants.
enum class KernelOperation : std::uint8_t {
  linear,
  linear_backward_input,
  linear_backward_weight,
  attention,
  attention_backward,
  gelu,
  gelu_backward,
  swiglu,
  swiglu_backward,
};
inline constexpr std::size_t kKernelOperations = 9;

template <>
inline constexpr NameTable<KernelOperation, kKernelOperations> kNames<KernelOperation> = {
    {{KernelOperation::linear, "linear"},
     {KernelOperation::linear_backward_input, "linear_backward_input"},
     {KernelOperation::linear_backward_weight, "linear_backward_weight"},
     {KernelOperation::attention, "attention"},
     {KernelOperation::attention_backward, "attention_backward"},
     {KernelOperation::gelu, "gelu"},
     {KernelOperation::gelu_backward, "gelu_backward"},
     {KernelOperation::swiglu, "swiglu"},
     {KernelOperation::swiglu_backward, "swiglu_backward"}}};

/// These are the names of precisions, indexed by DType (kernels/dtype.hpp).
inline constexpr std::array<std::string_view, 3> kDTypeNames = {"f32", "f64", "bf16"};

/// VariantNames list the variants of each operation, the default first; empty for an operation without
/// functions.
using VariantNames = std::array<std::vector<std::string>, kKernelOperations>;

/// Returns the bucket of a count. There are two for each power of two, [2^k, 1.5 2^k) and [1.5 2^k, 2^(k+1));
/// 0 has its own bucket. @pre 0 <= count < 2^31
constexpr int count_bucket(std::int64_t count) {
  if (count <= 0) return 0;
  const int power = std::bit_width(static_cast<std::uint64_t>(count)) - 1;
  const bool upper = 2 * count >= std::int64_t{3} << power;
  return 1 + 2 * power + (upper ? 1 : 0);
}

/// Returns a count in the middle of a bucket, which represents the bucket.
constexpr std::int64_t bucket_middle(int bucket) {
  if (bucket <= 0) return 0;
  const int power = (bucket - 1) / 2;
  const std::int64_t eighths = (bucket - 1) % 2 == 0 ? 10 : 14;  // of 2^power: 1.25 and 1.75
  return power < 2 ? std::int64_t{(bucket - 1) % 2 == 0 ? 1 << power : 3 << power >> 1}
                   : (eighths << power) / 8;
}

/// A KernelCall has the properties of a call that form its key.
struct KernelCall {
  KernelOperation operation = KernelOperation::linear;
  std::uint8_t dtype = 0;  ///< a DType
  /// Products: columns of the weight's input and output, on this rank. Attention: the head's width, and query
  /// heads x 512 + key heads. Activations and their backwards: 0, and columns of the output.
  std::int32_t inner = 0;
  std::int32_t outer = 0;
  bool causal = false;      ///< only for attention
  std::int64_t tokens = 0;  ///< rows
  /// Attention: the mean length that a token attends to, which is attention pairs over tokens, rounded. 0 for
  /// other operations.
  std::int64_t length = 0;

  bool operator==(const KernelCall&) const = default;
};

/// Returns the work that a call's time is assumed proportional to among calls of one key: tokens or, for
/// attention, pairs of tokens.
constexpr double work_of(const KernelCall& call) {
  return static_cast<double>(call.tokens) * (call.length > 0 ? static_cast<double>(call.length) : 1.0);
}

/// A KernelKey packs a call into 61 bits, with tokens and length reduced to their buckets. No key is 0.
class KernelKey {
 public:
  constexpr KernelKey() = default;
  /// @pre inner and outer are less than 2^21
  constexpr explicit KernelKey(const KernelCall& call)
      : bits_((std::uint64_t{1} + static_cast<std::uint64_t>(call.operation)) |
              std::uint64_t{call.dtype} << 4U | std::uint64_t{call.causal} << 6U |
              static_cast<std::uint64_t>(call.inner) << 7U | static_cast<std::uint64_t>(call.outer) << 28U |
              static_cast<std::uint64_t>(count_bucket(call.tokens)) << 49U |
              static_cast<std::uint64_t>(count_bucket(call.length)) << 55U) {}
  /// Returns the key with these bits, which must come from bits().
  static constexpr KernelKey of_bits(std::uint64_t bits) {
    KernelKey key;
    key.bits_ = bits;
    return key;
  }

  constexpr std::uint64_t bits() const { return bits_; }
  /// Returns the key of the same call in another precision (a DType).
  constexpr KernelKey with_dtype(std::uint8_t dtype) const {
    return of_bits((bits_ & ~(std::uint64_t{3} << 4U)) | std::uint64_t{dtype} << 4U);
  }
  /// Returns a call with this key. Its tokens and length are the middles of their buckets.
  constexpr KernelCall call() const {
    const auto field = [&](unsigned shift, unsigned width) {
      return static_cast<std::int32_t>(bits_ >> shift & ((std::uint64_t{1} << width) - 1));
    };
    return {static_cast<KernelOperation>(field(0, 4) - 1),
            static_cast<std::uint8_t>(field(4, 2)),
            field(7, 21),
            field(28, 21),
            field(6, 1) != 0,
            bucket_middle(field(49, 6)),
            bucket_middle(field(55, 6))};
  }

  constexpr KernelOperation operation() const { return static_cast<KernelOperation>((bits_ & 15U) - 1); }
  constexpr int tokens_bucket() const { return static_cast<int>(bits_ >> 49U & 63U); }
  constexpr int length_bucket() const { return static_cast<int>(bits_ >> 55U & 63U); }
  /// Returns a value that is equal for all keys that differ only in tokens and length.
  constexpr std::uint64_t without_buckets() const { return bits_ & ((std::uint64_t{1} << 49U) - 1); }

  auto operator<=>(const KernelKey&) const = default;

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace dflop
