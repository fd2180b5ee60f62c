// ItemHeap says which of many items has the earliest event, and lets events move.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflop {

/// An ItemHeap is a binary heap of items, which its user keeps in a vector and names by index: earliest
/// Item::event first, of one instant the lowest Item::number. Item::heap_place is the heap's own.
template <typename Item>
class ItemHeap {
 public:
  /// `items` must outlive it.
  explicit ItemHeap(std::vector<Item>& items) : items_(items) {}

  bool empty() const { return places_.empty(); }
  std::int32_t top() const { return places_.front(); }

  void push(std::int32_t item) {
    places_.push_back(item);
    put(places_.size() - 1, item);
    up(places_.size() - 1);
  }

  /// Takes out the top.
  void pop() {
    const std::int32_t last = places_.back();
    places_.pop_back();
    if (places_.empty()) return;
    put(0, last);
    down(0);
  }

  /// Moves an item whose event has changed.
  void update(std::int32_t item) {
    up(items_[item].heap_place);
    down(items_[item].heap_place);
  }

 private:
  bool earlier(std::int32_t a, std::int32_t b) const {
    const Item& first = items_[a];
    const Item& second = items_[b];
    return first.event != second.event ? first.event < second.event : first.number < second.number;
  }

  void put(std::size_t place, std::int32_t item) {
    places_[place] = item;
    items_[item].heap_place = place;
  }

  void up(std::size_t place) {
    const std::int32_t item = places_[place];
    while (place > 0 && earlier(item, places_[(place - 1) / 2])) {
      put(place, places_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    put(place, item);
  }

  void down(std::size_t place) {
    const std::int32_t item = places_[place];
    while (2 * place + 1 < places_.size()) {
      std::size_t child = 2 * place + 1;
      if (child + 1 < places_.size() && earlier(places_[child + 1], places_[child])) ++child;
      if (!earlier(places_[child], item)) break;
      put(place, places_[child]);
      place = child;
    }
    put(place, item);
  }

  std::vector<Item>& items_;
  std::vector<std::int32_t> places_;
};

}  // namespace dflop
