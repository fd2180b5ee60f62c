// Random draws seeded numbers that are the same bytes on every compiler: the standard fixes std::mt19937_64
// but not the distributions, so those few that we need are written out.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <utility>

namespace dflop {

class Random {
 public:
  /// `stream` tells apart independent users of one seed, as iterations or systems compared.
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0);

  std::uint64_t bits() { return engine_(); }

  /// Returns a number that is uniform in [0, bound), without modulo bias. @pre bound > 0
  std::uint64_t below(std::uint64_t bound);

  /// Returns a number that is uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

  /// Shuffles by the algorithm of Fisher and Yates.
  template <typename T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::mt19937_64 engine_;
};

}  // namespace dflop
