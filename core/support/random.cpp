#include "core/support/random.hpp"

namespace dflop {
namespace {

/// Makes unrelated numbers of neighbouring seeds and streams, as the finaliser of SplitMix64 does (Steele,
/// Lea, Flood 2014).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

}  // namespace

Random::Random(std::uint64_t seed, std::uint64_t stream) : engine_(mix(mix(seed) + stream)) {}

std::uint64_t Random::below(std::uint64_t bound) {
  const std::uint64_t unbiased = ~std::uint64_t{0} - ~std::uint64_t{0} % bound;
  std::uint64_t value = bits();
  while (value >= unbiased) value = bits();
  return value % bound;
}

}  // namespace dflop
