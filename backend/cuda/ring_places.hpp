// RingPlaces deals out places in a ring of memory, for what is given back in the order in which it was taken.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace dflop {

/// RingPlaces deals out places in a ring.
class RingPlaces {
 public:
  /// `capacity` is in bytes, a multiple of kAlignment.
  explicit RingPlaces(std::size_t capacity) : capacity_(capacity) {}

  /// Returns the offset of so many bytes, which are at least one, in one piece; none where there is no room
  /// until older places are given back.
  std::optional<std::size_t> take(std::size_t bytes) {
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::size_t begin = 0;
    std::size_t end = capacity_;  // of the room
    if (!taken_.empty()) {
      const std::size_t oldest = taken_.front().begin;
      const std::size_t head = taken_.back().end;
      const bool wrapped = head <= oldest;
      begin = head;
      if (wrapped) end = oldest;
      if (!wrapped && size > end - begin) {  // what is left at the end of the ring stays unused
        begin = 0;
        end = oldest;
      }
    }
    if (size > end - begin) return std::nullopt;
    taken_.push_back({begin, begin + size});
    return begin;
  }

  /// Gives back the oldest place that is taken; there is one.
  void give_back_oldest() { taken_.pop_front(); }
  std::size_t taken() const { return taken_.size(); }

  static constexpr std::size_t kAlignment = 256;

 private:
  struct Place {
    std::size_t begin;
    std::size_t end;
  };

  std::size_t capacity_;
  std::deque<Place> taken_;  // oldest first
};

}  // namespace dflop
