// attention_way() is the default rule that chooses the implementation of an attention call. A kernel table
// overrides it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace dflop::cuda {

/// An AttentionWay is an implementation of attention: a library, or the project's own kernels with blocks of
/// 128 or 64 queries (or keys, in the pass over keys). With blocks of 64, more blocks fit on the device at
/// once, and blocks have fewer unused rows past the end of a sequence. But each row that a block reads serves
/// half as many products.
enum class AttentionWay : std::uint8_t { library, tiles_128, tiles_64 };

/// Returns the length of the longest sequence. Sequence i begins at row offsets[i].
inline std::int64_t longest_sequence(std::span<const std::int32_t> offsets) {
  std::int64_t longest = 0;
  for (std::size_t i = 1; i < offsets.size(); ++i) {
    longest = std::max<std::int64_t>(longest, offsets[i] - offsets[i - 1]);
  }
  return longest;
}

/// Returns the implementation for a call whose longest sequence has `longest` tokens. `library` says whether
/// a library supports the call. Libraries are faster for long sequences and slower for short ones;
/// docs/kernel-notes.md has the figures.
constexpr AttentionWay attention_way(std::int64_t longest, bool library) {
  constexpr std::int64_t kLibraryFrom = 512;
  constexpr std::int64_t kLargeTilesFrom = 96;  // three quarters of a tile of 128
  if (library && longest >= kLibraryFrom) return AttentionWay::library;
  return longest >= kLargeTilesFrom ? AttentionWay::tiles_128 : AttentionWay::tiles_64;
}

}  // namespace dflop::cuda
