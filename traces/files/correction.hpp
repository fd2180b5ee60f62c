// What Adaptive Correction has learned, as plain values and as a file.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/program.hpp"

namespace dflop {

/// Which modules a stage holds.
enum class StageKind : std::uint8_t { encoder, llm, both };
inline constexpr int kStageKinds = 3;

std::string_view to_string(StageKind kind);

/// Samples of one module that are alike. A sixteenth of an octave is 4.4 % wide: fine enough to tell one
/// percent of real samples from the others, coarse enough that each iteration shows most buckets.
struct ShapeBucket {
  bool encoder = false;  ///< else of the LLM
  int tokens = 0;        ///< floor(16 log2(tokens))
  int length = 0;        ///< floor(2 log2(attention pairs / tokens)), of the mean attended sequence length

  auto operator<=>(const ShapeBucket&) const = default;
};

/// Running least squares of one kind of stage and op. Column 0 is the level, which goes with the predicted
/// time; column c + 1 counts the samples of buckets[c].
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

struct CorrectionFile {
  std::string model;
  std::string cluster;
  std::vector<CorrectionFit> fits;  ///< one at most of each kind and op

  bool operator==(const CorrectionFile&) const = default;
};

/// "dflop.correction", version 1. Reads back as the same, so that learning goes on as if it had never
/// stopped.
std::string to_json(const CorrectionFile& correction);

/// `file` is the text's place for errors. @throws Error (input) naming the key, what was expected and found.
CorrectionFile parse_correction(std::string_view json, const std::string& file);

}  // namespace dflop
