// This file stores the state of Adaptive Correction for a model on a cluster.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/measured/correction_fit.hpp"

namespace dflop {

/// A CorrectionFile holds the corrections learned for one model on one cluster.
struct CorrectionFile {
  std::string model;
  std::string cluster;
  std::vector<CorrectionFit> fits;  ///< at most one for each kind and op

  bool operator==(const CorrectionFile&) const = default;
};

/// Returns a file of schema "dflop.correction", version 1. It reads back unchanged, so that learning resumes
/// exactly.
std::string to_json(const CorrectionFile& correction);

/// Reads a correction. `file` names the text in errors.
/// @throws Error (input) naming the key, the expected and the found value.
CorrectionFile parse_correction(std::string_view json, const std::string& file);

}  // namespace dflop
