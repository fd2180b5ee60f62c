// A KernelMap is a hash table by KernelKey with open addressing. It is fast enough for one lookup per kernel
// call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/kernel_choice/kernel_key.hpp"

namespace dflop {

/// A KernelMap has values by key, in insertion order. Lookups do not allocate.
template <typename Value>
class KernelMap {
 public:
  std::size_t size() const { return keys_.size(); }
  std::span<const KernelKey> keys() const { return keys_; }
  Value& value(std::size_t index) { return values_[index]; }
  const Value& value(std::size_t index) const { return values_[index]; }

  /// Returns the index of a key in insertion order; size() if it is absent.
  std::size_t index_of(KernelKey key) const {
    if (cells_.empty()) return size();
    const std::size_t mask = cells_.size() - 1;
    for (std::size_t cell = home_of(key);; cell = (cell + 1) & mask) {
      const Cell& found = cells_[cell];
      if (found.bits == key.bits()) return found.index;
      if (found.bits == 0) return size();
    }
  }
  Value* find(KernelKey key) {
    const std::size_t index = index_of(key);
    return index == size() ? nullptr : &values_[index];
  }
  const Value* find(KernelKey key) const {
    const std::size_t index = index_of(key);
    return index == size() ? nullptr : &values_[index];
  }

  /// Returns the index of a key. If it is absent, adds it with `value`.
  std::size_t add(KernelKey key, Value value) {
    const std::size_t found = index_of(key);
    if (found < size()) return found;
    if (2 * (size() + 1) > cells_.size()) grow();
    keys_.push_back(key);
    values_.push_back(std::move(value));
    put(key, size() - 1);
    return size() - 1;
  }

  bool operator==(const KernelMap& other) const { return keys_ == other.keys_ && values_ == other.values_; }

 private:
  struct Cell {
    std::uint64_t bits = 0;
    std::uint32_t index = 0;
  };

  std::size_t home_of(KernelKey key) const {
    return static_cast<std::size_t>(key.bits() * 0x9E3779B97F4A7C15ull >> shift_);
  }
  void put(KernelKey key, std::size_t index) {
    std::size_t cell = home_of(key);
    while (cells_[cell].bits != 0) cell = (cell + 1) & (cells_.size() - 1);
    cells_[cell] = {key.bits(), static_cast<std::uint32_t>(index)};
  }
  void grow() {
    constexpr std::size_t kFirst = 64;
    const std::size_t cells = cells_.empty() ? kFirst : 2 * cells_.size();
    cells_.assign(cells, Cell{});
    shift_ = 64U - static_cast<unsigned>(std::bit_width(cells - 1));
    for (std::size_t i = 0; i < size(); ++i) put(keys_[i], i);
  }

  std::vector<Cell> cells_;  // the size is a power of two; at least half of the cells are empty
  unsigned shift_ = 63;
  std::vector<KernelKey> keys_;
  std::vector<Value> values_;
};

/// One key's data is used for another up to this distance in buckets: two octaves.
inline constexpr int kFarthestBucket = 4;

/// Returns the index of the key or, if it is absent, of the nearest key with the same operation, precision
/// and sizes. The distance is the sum of the bucket distances in tokens and length; ties go to the smaller
/// key. None if the nearest is farther than kFarthestBucket. Only indices with `holds(index)` count.
template <typename Value, typename Holds>
std::optional<std::size_t> nearest_index(const KernelMap<Value>& map, KernelKey key, const Holds& holds) {
  const std::size_t own = map.index_of(key);
  if (own < map.size() && holds(own)) return own;
  std::optional<std::size_t> nearest;
  int least = kFarthestBucket + 1;
  for (std::size_t i = 0; i < map.size(); ++i) {
    const KernelKey other = map.keys()[i];
    if (other.without_buckets() != key.without_buckets() || !holds(i)) continue;
    const int distance = std::abs(other.tokens_bucket() - key.tokens_bucket()) +
                         std::abs(other.length_bucket() - key.length_bucket());
    if (distance > least || distance > kFarthestBucket) continue;
    if (distance == least && map.keys()[*nearest] < other) continue;
    least = distance;
    nearest = i;
  }
  return nearest;
}

}  // namespace dflop
