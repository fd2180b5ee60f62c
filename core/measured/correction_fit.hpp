// A CorrectionFit is what runs have taught about durations, as plain sums from which learning goes on.
// costmodel/correction/correction.hpp says how they are made and used.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/names.hpp"
#include "core/program.hpp"

namespace dflop {

/// A StageKind says which modules a stage holds.
enum class StageKind : std::uint8_t { encoder, llm, both };

template <>
inline constexpr NameTable<StageKind, 3> kNames<StageKind> = {
    {{StageKind::encoder, "encoder"}, {StageKind::llm, "llm"}, {StageKind::both, "both"}}};

/// A ShapeBucket holds samples of one module that are alike. A sixteenth of an octave is 4.4 % wide: fine
/// enough to tell a percent of real samples from others, coarse enough that each iteration shows most
/// buckets.
struct ShapeBucket {
  bool encoder = false;  ///< else of the LLM
  int tokens = 0;        ///< floor(16 log2(tokens))
  int length = 0;        ///< floor(2 log2(attention pairs / tokens)), of the mean attended sequence length

  auto operator<=>(const ShapeBucket&) const = default;
};

/// A CorrectionFit is the running least squares of one kind of stage and op. Column 0 is the level, which
/// goes with the predicted time; column c + 1 counts the samples of buckets[c].
struct CorrectionFit {
  StageKind kind = StageKind::llm;
  Op op = Op::forward;
  Work reference;  ///< what one unit of penalty is the duration of: the first iteration's mean microbatch
  std::int64_t iterations = 0;
  double variance = 0;  ///< of relative residuals, robust; 0 before the first iteration
  std::vector<ShapeBucket> buckets;
  std::vector<double> information;  ///< lower triangle by rows
  std::vector<double> moment;       ///< per column
  std::vector<double> rise;         ///< per column: sums of the change detector
  std::vector<double> fall;

  std::size_t columns() const { return buckets.size() + 1; }
  bool operator==(const CorrectionFit&) const = default;
};

}  // namespace dflop
