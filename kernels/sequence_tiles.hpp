// A SequenceTile is a tile of rows of one packed sequence. Packed sequences are cut into numbered tiles, so
// that one grid of CUDA blocks covers all of them. A block finds its tile from the offsets of the sequences.
// Sequence i, which begins at row o[i], gets the tile numbers from o[i] / tile_rows + i on. A sequence of n
// rows always has enough numbers, because ceil(n / t) <= floor((o + n) / t) - floor(o / t) + 1 for tiles of t
// rows. Some numbers stay unused.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define DFLOP_HOST_DEVICE __host__ __device__
#else
#define DFLOP_HOST_DEVICE
#endif

namespace dflop {

struct SequenceTile {
  std::int64_t begin = 0;  ///< first row of the sequence
  int length = 0;          ///< rows of the sequence
  /// This is the first row of the tile, counted from `begin`. If it is `length` or more, the tile's number is
  /// unused.
  int first = 0;
};

/// Returns an upper bound on the number of tiles. Tiles are numbered from 0, and some numbers may be unused.
inline std::int64_t tile_numbers(std::int64_t rows, std::int64_t sequences, int tile_rows) {
  return rows / tile_rows + sequences;
}

/// Returns tile number `number`, in log(sequences) steps. offsets[0, sequences] go from 0 to the number of
/// rows. With `last_first`, the tiles of a sequence are numbered from its end.
DFLOP_HOST_DEVICE inline SequenceTile find_tile(const std::int32_t* offsets, int sequences,
                                                std::int64_t number, int tile_rows, bool last_first) {
  int low = 0;  // the sequence is in [low, high)
  int high = sequences;
  while (high - low > 1) {
    const int middle = low + (high - low) / 2;
    if (offsets[middle] / tile_rows + middle <= number) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const std::int64_t begin = offsets[low];
  const int length = static_cast<int>(offsets[low + 1] - begin);
  const int tiles = (length + tile_rows - 1) / tile_rows;
  const int tile = static_cast<int>(number - (begin / tile_rows + low));
  if (tile >= tiles) return {begin, length, length};
  return {begin, length, (last_first ? tiles - 1 - tile : tile) * tile_rows};
}

}  // namespace dflop
