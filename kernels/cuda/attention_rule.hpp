// Where no table of kernels has chosen, this rule says what computes a call of attention.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dflop::cuda {

/// An AttentionWay is what computes a call: a library, or own kernels whose blocks have 128 or 64 queries,
/// and keys in the pass over keys. With 64 more blocks have room at once and fewer rows lie behind
/// the end of a sequence, but each row that is read serves half as many products.
enum class AttentionWay : std::uint8_t { library, tiles_128, tiles_64 };

/// Returns the tokens of the longest sequence, of which offsets[i] is the first row.
inline std::int64_t longest_sequence(std::span<const std::int32_t> offsets) {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    longest = std::max<std::int64_t>(longest, offsets[i] - offsets[i - 1]);
  }
  return longest;
}

/// Returns what computes a call whose longest sequence has so many tokens. `library`: there is one that takes
/// the call. Its lead is in long sequences, and it loses in short ones; docs/kernel-notes.md has the figures.
constexpr AttentionWay attention_way(std::int64_t longest, bool library) {
  constexpr std::int64_t kLibraryFrom = 512;
  constexpr std::int64_t kLargeTilesFrom = 96;  // three quarters of a tile of 128
  if (library && longest >= kLibraryFrom) return AttentionWay::library;
  return longest >= kLargeTilesFrom ? AttentionWay::tiles_128 : AttentionWay::tiles_64;
}

}  // namespace dflop::cuda
