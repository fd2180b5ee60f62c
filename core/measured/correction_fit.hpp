// A CorrectionFit is what runs have taught about prediction errors, stored as plain sums that learning can
// continue from. costmodel/correction/correction.hpp says how fits are made and used.
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

/// A ShapeBucket is a range of token counts and lengths of samples in one module. The range of tokens is a
/// sixteenth of an octave, or 4.4 %. It is narrow enough to separate one percent of real samples from the
/// others, and wide enough that most buckets occur in each iteration.
struct ShapeBucket {
  bool encoder = false;  ///< true: the encoder's work; false: the LLM's
  int tokens = 0;        ///< floor(16 log2(tokens))
  int length = 0;  ///< floor(2 log2(mean attended length)), where the length is attention pairs / tokens

  auto operator<=>(const ShapeBucket&) const = default;
};

/// A CorrectionFit is the running least-squares fit of one kind of stage and op. Each column of its equations
/// has a coefficient. Column 0 has the predicted time; its coefficient is the level minus 1. Column c + 1 has
/// the number of samples of buckets[c] times the duration of the reference work; its coefficient is the
/// penalty of one such sample.
struct CorrectionFit {
  StageKind kind = StageKind::llm;
  Op op = Op::forward;
  Work reference;  ///< work whose duration is the unit of penalties: the first iteration's mean microbatch
  std::int64_t iterations = 0;
  double variance = 0;  ///< robust variance of relative residuals; 0 before the first iteration
  std::vector<ShapeBucket> buckets;
  std::vector<double> information;  ///< matrix of the normal equations: lower triangle by rows
  std::vector<double> moment;       ///< right side of the normal equations, per column
  std::vector<double> rise;         ///< per column: CUSUM that detects a rise of the coefficient
  std::vector<double> fall;         ///< per column: CUSUM that detects a fall of the coefficient

  std::size_t columns() const { return buckets.size() + 1; }
  bool operator==(const CorrectionFit&) const = default;
};

}  // namespace dflop
