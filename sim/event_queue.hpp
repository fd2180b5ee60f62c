// An EventQueue returns events in order of virtual time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "core/units.hpp"

namespace dflop {

/// An Event happens at `time`. Events at the same time happen in insertion order.
struct Event {
  Nanoseconds time{0};
  std::uint64_t number = 0;  ///< insertion number
  std::int32_t what = 0;     ///< as numbered by the user of the queue

  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : number > other.number;
  }
};

/// An EventQueue is a binary heap of events, earliest first. It does not allocate while it holds at most
/// `capacity` events.
class EventQueue {
 public:
  explicit EventQueue(std::size_t capacity) { heap_.reserve(capacity); }

  bool empty() const { return heap_.empty(); }

  /// Returns the time of the earliest event. The queue must not be empty.
  Nanoseconds next_time() const { return heap_.front().time; }

  void push(Nanoseconds time, std::int32_t what) {
    heap_.push_back({time, inserted_++, what});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  /// Removes and returns the earliest event. The queue must not be empty.
  Event pop() {
    std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
    const Event earliest = heap_.back();
    heap_.pop_back();
    return earliest;
  }

 private:
  std::vector<Event> heap_;
  std::uint64_t inserted_ = 0;
};

}  // namespace dflop
