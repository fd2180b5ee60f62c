// Whole tensors are put together from the parts that ranks hold, in whatever process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "backend/model/parameter_list.hpp"
#include "core/support/bytes.hpp"

namespace dflop {

/// A WholeTensor is a tensor as no rank holds it, whatever the plan: [rows, columns], row after row.
struct WholeTensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<double> values;
};
using WholeTensors = std::map<std::string, WholeTensor>;

/// Appends those of a rank's values of a parameter that are in `held`.
void add_part(ByteWriter& writer, const Parameter& parameter, Range held, const std::vector<double>& values);
/// Puts all parts that add_part() has appended in their places; a tensor's values that are in none are zero.
void merge_parts(const std::string& parts, WholeTensors& tensors);

/// Returns a rank's part of a whole tensor. @throws Error (input) naming it where it has another shape.
std::vector<double> part_of(const WholeTensor& whole, const Parameter& parameter);

/// These return whole tensors as bytes, and read them back.
std::string to_bytes(const WholeTensors& tensors);
WholeTensors whole_tensors(const std::string& bytes);

}  // namespace dflop
