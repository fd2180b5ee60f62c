// Whole tensors from the parts that ranks hold, in whatever process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/byte_text.hpp"
#include "backend/model/parameters.hpp"

namespace dflop {

/// A whole tensor, whatever the plan: [rows, columns], row after row.
struct WholeTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;
};
using WholeTensors = std::map<std::string, WholeTensor>;

/// Of a rank's values of a parameter, those in `held`.
void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values);
/// Puts all parts in their places; a tensor's values that are in none are zero.
void merge_parts(const std::string& parts, WholeTensors& tensors);

/// A rank's part of a whole tensor. @throws Error (input) naming it where it has another shape.
std::vector<double> part_of(const WholeTensor& whole, const Parameter& parameter);

std::string to_bytes(const WholeTensors& tensors);
WholeTensors whole_tensors(const std::string& bytes);

}  // namespace dflop
