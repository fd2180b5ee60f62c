// A checkpoint is the state of a live training run, from which it goes on: of which run, and of what kinds
// its tensors are.
#pragma once

#include <cstdint>
#include <string>

#include "core/names.hpp"

namespace dflop {

/// A TensorKind says what a tensor is to the optimizer: a weight, or Adam's running mean of its gradient or
/// of the square of it.
enum class TensorKind : std::uint8_t { weight, moment1, moment2 };

template <>
inline constexpr NameTable<TensorKind, 3> kNames<TensorKind> = {
    {{TensorKind::weight, "weight"}, {TensorKind::moment1, "moment1"}, {TensorKind::moment2, "moment2"}}};

/// A RunIdentity is what makes a run that run, whatever plan it has at the moment.
struct RunIdentity {
  std::string model;       ///< name
  std::string model_spec;  ///< what makes it that model: its sizes
  std::string data_file;
  std::string data_fingerprint;  ///< of its samples
  std::uint64_t seed = 0;
  int gbs = 1;  ///< global batch size, samples a step

  bool operator==(const RunIdentity&) const = default;
};

}  // namespace dflop
