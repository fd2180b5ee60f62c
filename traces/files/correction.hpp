// Files keep what Adaptive Correction has learned of a model on a cluster.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/measured/correction_fit.hpp"

namespace dflop {

/// A CorrectionFile has what Adaptive Correction has learned of one model on one cluster.
struct CorrectionFile {
  std::string model;
  std::string cluster;
  std::vector<CorrectionFit> fits;  ///< one at most of each kind and op

  bool operator==(const CorrectionFile&) const = default;
};

/// Returns a file of schema "dflop.correction", version 1. It reads back as the same, so that learning goes
/// on as if it had never stopped.
std::string to_json(const CorrectionFile& correction);

/// Reads a correction. `file` is the text's place for errors.
/// @throws Error (input) naming the key, what was expected and found.
CorrectionFile parse_correction(std::string_view json, const std::string& file);

}  // namespace dflop
