// A FlatTable is a hash table with open addressing that caches values by key. Finding an existing value does
// not allocate memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace dflop::cuda {

/// A PackedKey packs the sizes and flags that identify a value. It must not be all zeros.
struct PackedKey {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  bool operator==(const PackedKey&) const = default;
};

template <typename Value>
class FlatTable {
 public:
  /// Returns the value of a key. If there is none yet, make() creates it and returns it as a std::unique_ptr.
  /// The address of a value stays the same for the table's lifetime.
  template <typename Make>
  Value& get(const PackedKey& key, Make make) {
    const std::size_t known = place_of(key);
    if (slots_[known].value != nullptr) return *slots_[known].value;
    std::unique_ptr<Value> value = make();
    if (2 * (size_ + 1) > slots_.size()) grow();
    ++size_;
    Slot& slot = slots_[place_of(key)];
    slot = {key, std::move(value)};
    return *slot.value;
  }

  std::size_t size() const { return size_; }

 private:
  struct Slot {
    PackedKey key;
    std::unique_ptr<Value> value;
  };

  /// Returns the slot of the key, or the free slot where it belongs. At least half of the slots are free.
  std::size_t place_of(const PackedKey& key) const {
    // Both words are multiplied by large odd numbers, so the upper bits depend on all bits.
    const std::uint64_t mixed = key.low * 0x9e3779b97f4a7c15U ^ (key.high + 1) * 0xc2b2ae3d27d4eb4fU;
    std::size_t place = (mixed ^ mixed >> 32U) % slots_.size();
    while (slots_[place].value != nullptr && !(slots_[place].key == key)) place = (place + 1) % slots_.size();
    return place;
  }
  void grow() {
    std::vector<Slot> old(2 * slots_.size());
    old.swap(slots_);
    for (Slot& slot : old) {
      if (slot.value != nullptr) slots_[place_of(slot.key)] = std::move(slot);
    }
  }

  std::vector<Slot> slots_ = std::vector<Slot>(64);
  std::size_t size_ = 0;
};

}  // namespace dflop::cuda
