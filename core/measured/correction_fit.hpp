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

/// A ShapeBucket holds similar samples of one module. A sixteenth of an octave is 4.4 % wide: narrow enough
/// to separate a percent of real samples from the others, wide enough that most buckets occur in each
/// iteration.
struct ShapeBucket {
  bool encoder = false;  ///< otherwise of the LLM
  int tokens = 0;        ///< floor(16 log2(tokens))
  int length = 0;        ///< floor(2 log2(attention pairs / tokens)), of the mean attended sequence length

  auto operator<=>(const ShapeBucket&) const = default;
};

/// A CorrectionFit is the running least-squares fit of one kind of stage and op. Column 0 is the level, which
/// scales with the predicted time; column c + 1 counts the samples of buckets[c].
struct CorrectionFit {
  StageKind kind = StageKind::llm;
  Op op = Op::forward;
  Work reference;  ///< work whose duration is one unit of penalty: the first iteration's mean microbatch
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
