// A Checkpoint is the state of a live training run, from which it goes on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/names.hpp"

namespace dflop {

/// A TensorKind says what a tensor is to the optimizer: a weight, or Adam's running mean of its gradient or
/// of the square of it.
enum class TensorKind : std::uint8_t { weight, moment1, moment2 };

template <>
inline constexpr NameTable<TensorKind, 3> kNames<TensorKind> = {
    {{TensorKind::weight, "weight"}, {TensorKind::moment1, "moment1"}, {TensorKind::moment2, "moment2"}}};

/// An ElementType says how a number is stored.
enum class ElementType : std::uint8_t { f32, f64 };

template <>
inline constexpr NameTable<ElementType, 2> kNames<ElementType> = {
    {{ElementType::f32, "f32"}, {ElementType::f64, "f64"}}};

/// A NamedTensor is a whole tensor, gathered from the ranks that hold parts of it.
struct NamedTensor {
  std::string name;
  TensorKind kind = TensorKind::weight;
  ElementType element = ElementType::f32;  ///< as stored; `values` of f32 each hold a float
  std::int64_t rows = 0;                   ///< at least 1, as columns
  std::int64_t columns = 0;
  std::vector<double> values;  ///< rows x columns, row by row; NaN and infinity are allowed

  bool operator==(const NamedTensor&) const = default;
};

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

/// A checkpoint has all that training needs to go on as if it had never stopped, and to notice that it would
/// not.
struct Checkpoint : RunIdentity {
  std::int64_t step = 0;                 ///< optimizer steps that are done
  ElementType dtype = ElementType::f32;  ///< that training computes in
  std::string scheduler;
  std::int64_t samples_drawn = 0;
  std::string plan;                  ///< a description
  std::string kernels;               ///< what choosing kernels has learned, as JSON text; empty for nothing
  std::vector<NamedTensor> tensors;  ///< one at most of each kind and name

  bool operator==(const Checkpoint&) const = default;
};

}  // namespace dflop
