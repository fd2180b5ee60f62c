// A SequenceTile is a tile of rows of one packed sequence. Packed sequences are cut into numbered tiles so
// that one grid of CUDA blocks covers them all, and a block finds its tile from the sequences' offsets.
// Sequence i, which begins at row o[i], gets the tile numbers from o[i] / tile_rows + i on. There are always
// enough numbers, because ceil(n / t) <= floor((o + n) / t) - floor(o / t) + 1; some stay unused.
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
  int first = 0;  ///< first row of the tile, counted from begin; `length` or more: the number is unused
};

/// Returns the number of tile numbers: they are in [0, tile_numbers()).
inline std::int64_t tile_numbers(std::int64_t rows, std::int64_t sequences, int tile_rows) {
  return rows / tile_rows + sequences;
}

/// Returns the tile with a number, in log(sequences) steps. offsets[0, sequences] go from 0 to the number of
/// rows. With `last_first`, a sequence's tiles are numbered from its end.
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
