// RingPlaces allocates places in a ring buffer. Places are freed in the order in which they were allocated.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

namespace dflop {

/// RingPlaces allocates places in a ring buffer.
class RingPlaces {
 public:
  /// `capacity` is the size of the ring in bytes, a multiple of kAlignment.
  explicit RingPlaces(std::size_t capacity) : capacity_(capacity) {}

  /// Allocates a contiguous place of `bytes` bytes, at least 1, and returns its offset; nullopt if older
  /// places must be freed first, or if it is larger than the ring.
  std::optional<std::size_t> take(std::size_t bytes) {
    const std::size_t size = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    std::size_t begin = 0;
    std::size_t end = capacity_;  // of the free range
    if (!taken_.empty()) {
      const std::size_t oldest = taken_.front().begin;
      const std::size_t head = taken_.back().end;
      const bool wrapped = head <= oldest;
      begin = head;
      if (wrapped) end = oldest;
      if (!wrapped && size > end - begin) {  // the remainder at the end of the ring stays unused
        begin = 0;
        end = oldest;
      }
    }
    if (size > end - begin) return std::nullopt;
    taken_.push_back({begin, begin + size});
    return begin;
  }

  /// Frees the oldest place. @pre taken() > 0
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
