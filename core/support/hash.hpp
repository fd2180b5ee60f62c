// stable_hash() is the same on every library, which std::hash is not.
#pragma once

#include <cstdint>
#include <string_view>

namespace dflop {

/// Returns the FNV-1a hash of 64 bits (Fowler, Noll, Vo).
constexpr std::uint64_t stable_hash(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ull;
  return hash;
}

}  // namespace dflop
