// SequenceLists describe packed sequences in the form that attention libraries need.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.hpp"

namespace dflop::cuda {

/// SequenceLists hold lists in device memory: the lengths of `count` sequences and, for each of three
/// matrices, the start of each sequence and the end of the last one. Starts are counted in values of the
/// matrix, because the matrices have different widths.
struct SequenceLists {
  static constexpr int kMatrices = 3;

  std::int32_t* memory = nullptr;
  std::int64_t count = 0;

  static std::int64_t numbers(std::int64_t count) { return kMatrices * (count + 1) + count; }
  std::int32_t* starts(int matrix) const { return memory + matrix * (count + 1); }
  std::int32_t* lengths() const { return memory + kMatrices * (count + 1); }
};

/// Fills the lists from offsets[0, sequences]; the sequences from `sequences` to lists.count are empty.
/// `widths` are the row widths of the matrices. All starts must be less than 2^31.
void fill_sequence_lists(const CudaTarget& target, const char* operation, const SequenceLists& lists,
                         const std::int32_t* offsets, std::int64_t sequences,
                         const std::int64_t (&widths)[SequenceLists::kMatrices]);

}  // namespace dflop::cuda
