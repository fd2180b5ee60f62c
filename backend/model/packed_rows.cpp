#include "backend/model/packed_rows.hpp"

namespace dflop {

void PackedRows::add_sequence(std::int64_t rows) {
  for (std::int64_t r = 0; r < rows; ++r) positions.push_back(static_cast<std::int32_t>(r));
  offsets.push_back(static_cast<std::int32_t>(offsets.back() + rows));
}

void PackedRows::add_sequence(std::int64_t rows, const std::vector<std::int32_t>& its_positions,
                              const std::vector<std::int32_t>& its_windows) {
  positions.insert(positions.end(), its_positions.begin(), its_positions.end());
  if (!its_windows.empty()) {
    if (windows.empty()) windows.push_back(0);
    for (std::size_t w = 1; w < its_windows.size(); ++w) windows.push_back(offsets.back() + its_windows[w]);
  }
  offsets.push_back(static_cast<std::int32_t>(offsets.back() + rows));
}

}  // namespace dflop
