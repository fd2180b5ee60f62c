// A checkpoint is the state from which a live training run resumes. This header defines RunIdentity, which
// identifies that run, and TensorKind, the kinds of tensors in a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "core/names.hpp"

namespace dflop {

/// A TensorKind says what a tensor of a checkpoint holds: weights (`weight`), Adam's running mean of their
/// gradients (`moment1`), or Adam's running mean of the squared gradients (`moment2`).
enum class TensorKind : std::uint8_t { weight, moment1, moment2 };

template <>
inline constexpr NameTable<TensorKind, 3> kNames<TensorKind> = {
    {{TensorKind::weight, "weight"}, {TensorKind::moment1, "moment1"}, {TensorKind::moment2, "moment2"}}};

/// A RunIdentity identifies a training run. It does not depend on the plan, so a run may resume under another
/// plan.
struct RunIdentity {
  std::string model;       ///< name
  std::string model_spec;  ///< the model's sizes
  std::string data_file;
  std::string data_fingerprint;  ///< hash of the data's samples, and options that change the data
  std::uint64_t seed = 0;
  int gbs = 1;  ///< global batch size: samples per step

  bool operator==(const RunIdentity&) const = default;
};

}  // namespace dflop
