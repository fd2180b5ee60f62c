#include "tests/cuda_on_host/emulation/instructions.hpp"

#include <cstring>

#include "core/dtype.hpp"
#include "tests/cuda_on_host/emulation/block.hpp"

namespace dflop::emulation {
namespace {

/// Returns the value of the lower or the upper half of a register.
float half_of(unsigned word, int which) {
  return to_float(BFloat16{static_cast<std::uint16_t>(word >> 16 * which)});
}

}  // namespace

void load_matrices(unsigned (&to)[4], unsigned row, bool transposed) {
  struct Lane {
    unsigned (&to)[4];
    const char* row;
    bool transposed;
  } mine{to, block().shared_at(row, 16), transposed};
  block().with_warp(mine, [](const auto& lanes) {
    for (std::size_t matrix = 0; matrix < 4; ++matrix) {
      std::uint16_t values[8][8];
      for (std::size_t r = 0; r < 8; ++r) std::memcpy(values[r], lanes[8 * matrix + r]->row, 16);
      for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
        const std::size_t group = lane / 4;
        const std::size_t pair = lane % 4 * 2;
        const bool across = lanes[lane]->transposed;
        const unsigned low = across ? values[pair][group] : values[group][pair];
        const unsigned high = across ? values[pair + 1][group] : values[group][pair + 1];
        lanes[lane]->to[matrix] = low | high << 16;
      }
    }
  });
}

void multiply_add(float (&sum)[4], const unsigned (&left)[4], unsigned right0, unsigned right1) {
  struct Lane {
    float (&sum)[4];
    const unsigned (&left)[4];
    unsigned right[2];
  } mine{sum, left, {right0, right1}};
  block().with_warp(mine, [](const auto& lanes) {
    float a[16][16];
    float b[16][8];
    float c[16][8];
    // PTX ISA, with group = lane / 4 and pair = 2 (lane % 4): registers 0 to 3 of A hold rows group and group
    // + 8 in the two columns from pair on, then the same rows in the two columns from pair + 8 on. The
    // registers of B hold the two rows from pair on and from pair + 8 on in column group. The registers of C
    // hold rows group and group + 8 in the two columns from pair on.
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      const std::size_t group = lane / 4;
      const std::size_t pair = lane % 4 * 2;
      for (int i = 0; i < 2; ++i) {
        const auto half = static_cast<std::size_t>(i);
        for (std::size_t j = 0; j < 4; ++j) {
          a[group + j % 2 * 8][pair + j / 2 * 8 + half] = half_of(lanes[lane]->left[j], i);
        }
        for (std::size_t j = 0; j < 2; ++j) b[pair + j * 8 + half][group] = half_of(lanes[lane]->right[j], i);
        for (std::size_t j = 0; j < 2; ++j) c[group + j * 8][pair + half] = lanes[lane]->sum[2 * j + half];
      }
    }
    for (std::size_t row = 0; row < 16; ++row) {
      for (std::size_t k = 0; k < 16; ++k) {
        for (std::size_t column = 0; column < 8; ++column) c[row][column] += a[row][k] * b[k][column];
      }
    }
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      for (std::size_t i = 0; i < 4; ++i) lanes[lane]->sum[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
  });
}

}  // namespace dflop::emulation
