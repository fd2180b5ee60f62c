// This header has random numbers and hashes that are the same on every compiler and library. The C++ standard
// specifies std::mt19937_64 but neither the distributions nor std::hash, so the few that dflop needs are
// implemented here.
#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string_view>
#include <utility>

namespace dflop {

/// A Random is a generator of pseudo-random numbers. Equal seeds and streams give equal numbers.
class Random {
 public:
  /// Each `stream` of a seed gives other, unrelated numbers. Independent users of one seed, for example
  /// iterations or compared systems, have one stream each.
  explicit Random(std::uint64_t seed, std::uint64_t stream = 0) : engine_(mix(mix(seed) + stream)) {}

  /// Returns 64 random bits.
  std::uint64_t bits() { return engine_(); }

  /// Returns a number uniform in [0, bound), without modulo bias. @pre bound > 0
  std::uint64_t below(std::uint64_t bound) {
    const std::uint64_t unbiased = ~std::uint64_t{0} - ~std::uint64_t{0} % bound;
    std::uint64_t value = bits();
    while (value >= unbiased) value = bits();
    return value % bound;
  }

  /// Returns a number uniform in [0, 1).
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1.0p-53; }

  /// Shuffles with the Fisher-Yates algorithm.
  template <typename T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  /// Turns neighboring seeds and streams into unrelated numbers, like the finalizer of SplitMix64 (Steele,
  /// Lea, Flood 2014).
  static constexpr std::uint64_t mix(std::uint64_t x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
  }

  std::mt19937_64 engine_;
};

inline constexpr std::uint64_t kHashOfNothing = 0xCBF29CE484222325ull;

/// Returns the 64-bit FNV-1a hash (Fowler, Noll, Vo) of a text. Given the `hash` of a preceding text, returns
/// the hash of both texts joined.
constexpr std::uint64_t stable_hash(std::string_view text, std::uint64_t hash = kHashOfNothing) {
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

}  // namespace dflop
