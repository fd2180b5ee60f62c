// An ItemHeap is a priority queue in which the times of queued items may change.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dflop {

/// An ItemHeap is a binary heap of indexes into its user's vector of items. The top is the item with the
/// earliest Item::event and, among equals, the lowest Item::number. Only the heap writes Item::heap_place.
/// The heap has copies of both keys, because items are large and it compares many of them.
template <typename Item>
class ItemHeap {
 public:
  /// `items` must outlive the heap.
  explicit ItemHeap(std::vector<Item>& items) : items_(items) {}

  bool empty() const { return places_.empty(); }
  std::int32_t top() const { return places_.front().item; }

  void push(std::int32_t item) {
    places_.push_back(place_of(item));
    up(places_.size() - 1);
  }

  /// Removes the top. @pre not empty
  void pop() {
    places_.front() = places_.back();
    places_.pop_back();
    if (!places_.empty()) down(0);
  }

  /// Moves an item whose event has changed. @pre it is in the heap
  void update(std::int32_t item) {
    const std::size_t place = items_[item].heap_place;
    places_[place] = place_of(item);
    up(place);
    down(items_[item].heap_place);
  }

 private:
  struct Place {
    decltype(Item::event) event;
    decltype(Item::number) number;
    std::int32_t item;
  };

  Place place_of(std::int32_t item) const { return {items_[item].event, items_[item].number, item}; }

  static bool earlier(const Place& first, const Place& second) {
    return first.event != second.event ? first.event < second.event : first.number < second.number;
  }

  void put(std::size_t place, const Place& one) {
    places_[place] = one;
    items_[one.item].heap_place = place;
  }

  void up(std::size_t place) {
    const Place item = places_[place];
    while (place > 0 && earlier(item, places_[(place - 1) / 2])) {
      put(place, places_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    put(place, item);
  }

  void down(std::size_t place) {
    const Place item = places_[place];
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
  std::vector<Place> places_;
};

}  // namespace dflop
