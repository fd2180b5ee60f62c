// A checkpoint is the state from which a live training run resumes. This header has the identity of its run
// and the kinds of its tensors.
#pragma once

#include <cstdint>
#include <string>

#include "core/names.hpp"

namespace dflop {

/// A TensorKind says whether a tensor is a weight, or Adam's running mean of its gradient or of its squared
/// gradient.
enum class TensorKind : std::uint8_t { weight, moment1, moment2 };

template <>
inline constexpr NameTable<TensorKind, 3> kNames<TensorKind> = {
    {{TensorKind::weight, "weight"}, {TensorKind::moment1, "moment1"}, {TensorKind::moment2, "moment2"}}};

/// A RunIdentity identifies a run independently of its current plan.
struct RunIdentity {
  std::string model;       ///< name
  std::string model_spec;  ///< the model's sizes
  std::string data_file;
  std::string data_fingerprint;  ///< of the data's samples
  std::uint64_t seed = 0;
  int gbs = 1;  ///< global batch size: samples per step

  bool operator==(const RunIdentity&) const = default;
};

}  // namespace dflop
