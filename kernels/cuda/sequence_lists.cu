#include "kernels/cuda/sequence_lists.hpp"

namespace dflop::cuda {
namespace {

struct ListWidths {
  std::int64_t of[SequenceLists::kMatrices];
};

__global__ void sequence_lists_kernel(std::int32_t* starts, std::int32_t* lengths, std::int64_t count,
                                      const std::int32_t* offsets, std::int64_t sequences,
                                      ListWidths widths) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i > count) return;
  const std::int64_t first = offsets[i < sequences ? i : sequences];
#pragma unroll
  for (int matrix = 0; matrix < SequenceLists::kMatrices; ++matrix) {
    starts[matrix * (count + 1) + i] = static_cast<std::int32_t>(first * widths.of[matrix]);
  }
  if (i < count) lengths[i] = i < sequences ? offsets[i + 1] - offsets[i] : 0;
}

}  // namespace

void fill_sequence_lists(const CudaTarget& target, const char* operation, const SequenceLists& lists,
                         const std::int32_t* offsets, std::int64_t sequences,
                         const std::int64_t (&widths)[SequenceLists::kMatrices]) {
  constexpr unsigned kListThreads = 128;
  launch(target, operation, sequence_lists_kernel,
         grid_size(operation, pieces(lists.count + 1, kListThreads)), kListThreads, 0, lists.starts(0),
         lists.lengths(), lists.count, offsets, sequences, ListWidths{{widths[0], widths[1], widths[2]}});
}

}  // namespace dflop::cuda
