// SequenceLists describe packed sequences in the form that attention libraries need.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.hpp"

namespace dflop::cuda {

/// SequenceLists hold, in device memory, the start of each of `count` sequences and the end of the last one,
/// counted in values of three matrices of different widths, and the sequences' lengths.
struct SequenceLists {
  static constexpr int kMatrices = 3;

  std::int32_t* memory = nullptr;
  std::int64_t count = 0;

  static std::int64_t numbers(std::int64_t count) { return kMatrices * (count + 1) + count; }
  std::int32_t* starts(int matrix) const { return memory + matrix * (count + 1); }
  std::int32_t* lengths() const { return memory + kMatrices * (count + 1); }
};

/// Fills the lists from offsets[0, sequences]. The remaining sequences are empty. All starts must be less
/// than 2^31.
void fill_sequence_lists(const CudaTarget& target, const char* operation, const SequenceLists& lists,
                         const std::int32_t* offsets, std::int64_t sequences,
                         const std::int64_t (&widths)[SequenceLists::kMatrices]);

}  // namespace dflop::cuda
