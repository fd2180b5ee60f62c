// A kernel variant is one of several implementations of an operation. A KernelKey describes a call by the
// properties that determine its fastest variant. They all follow from a stage and a Workload, so the
// simulator and a live run use the same keys.
#pragma once

#include <array>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/dtype.hpp"
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

/// VariantNames list the variants of each operation, the default first. The list of an operation without
/// functions is empty.
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
  DType dtype = DType::f32;
  /// `inner` and `outer` are the sizes of the operation on this rank. Matrix products: the widths of the
  /// weight's input and output. Attention: the width of a head, and 512 times the query heads plus the key
  /// heads. Activations and their backwards: 0, and the width of the output.
  std::int32_t inner = 0;
  std::int32_t outer = 0;
  bool causal = false;      ///< only for attention
  std::int64_t tokens = 0;  ///< rows
  /// For attention, this is the mean length that a token attends to: attention pairs divided by tokens,
  /// rounded. 0 for other operations.
  std::int64_t length = 0;

  auto operator<=>(const KernelCall&) const = default;
};

/// Returns a call's amount of work: tokens or, for attention, pairs of tokens. Among calls of one key, times
/// are assumed to be proportional to it.
constexpr double work_of(const KernelCall& call) {
  return static_cast<double>(call.tokens) * (call.length > 0 ? static_cast<double>(call.length) : 1.0);
}

/// A KernelKey is a call whose tokens and length are the middles of their buckets.
struct KernelKey : KernelCall {
  constexpr KernelKey() = default;
  constexpr explicit KernelKey(const KernelCall& call) : KernelCall(call) {
    tokens = bucket_middle(count_bucket(tokens));
    length = bucket_middle(count_bucket(length));
  }
  auto operator<=>(const KernelKey&) const = default;
};

struct KernelKeyHash {
  std::size_t operator()(const KernelKey& key) const {
    std::uint64_t hash =
        static_cast<std::uint64_t>(key.operation) << 8U | static_cast<std::uint64_t>(key.dtype);
    for (const std::int64_t field :
         {std::int64_t{key.inner}, std::int64_t{key.outer}, key.tokens, key.length})
      hash = (hash ^ static_cast<std::uint64_t>(field)) * 0x9E3779B97F4A7C15ull;
    return hash ^ hash >> 32U;
  }
};

/// A key may use the data of another key up to this distance in buckets, which is two octaves.
inline constexpr int kFarthestBucket = 4;

/// Returns the entry of the key or, if it is absent, of the nearest key with the same operation, precision
/// and sizes. The distance is the sum of the bucket distances in tokens and length; ties go to the smaller
/// key. Null if the nearest is farther than kFarthestBucket. Only entries with `holds(value)` count.
template <typename Value, typename Holds>
const std::pair<const KernelKey, Value>* nearest(const std::map<KernelKey, Value>& map, const KernelKey& key,
                                                 const Holds& holds) {
  const std::pair<const KernelKey, Value>* found = nullptr;
  int least = kFarthestBucket + 1;
  for (const auto& entry : map) {
    KernelCall same_size = entry.first;
    same_size.tokens = key.tokens;
    same_size.length = key.length;
    if (same_size != key || !holds(entry.second)) continue;
    const int distance = std::abs(count_bucket(entry.first.tokens) - count_bucket(key.tokens)) +
                         std::abs(count_bucket(entry.first.length) - count_bucket(key.length));
    if (distance >= least) continue;
    least = distance;
    found = &entry;
  }
  return found;
}

}  // namespace dflop
