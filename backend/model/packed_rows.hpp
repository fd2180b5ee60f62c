// PackedRows describe sequences whose rows follow each other in one matrix.
#pragma once

#include <cstdint>
#include <vector>

namespace dflop {

/// PackedRows hold sequences whose rows are stored back to back, without padding.
struct PackedRows {
  std::vector<std::int32_t> offsets{0};  ///< first row of each sequence, then the end
  std::vector<std::int32_t> windows =
      {};  ///< first row of each attention window, then the end; empty: no windows
  std::vector<std::int32_t> positions;  ///< position of each row within its sequence, one number per axis

  std::int64_t rows() const { return offsets.back(); }
  /// Adds a sequence whose rows have positions 0, 1, 2 and so on.
  void add_sequence(std::int64_t rows);
  /// Adds a sequence with these positions and windows. `its_windows` holds offsets from 0 to the number of
  /// rows; it is empty if the sequence has no windows.
  void add_sequence(std::int64_t rows, const std::vector<std::int32_t>& its_positions,
                    const std::vector<std::int32_t>& its_windows);
};

}  // namespace dflop
