// These studies reproduce the published evaluation (arXiv 2603.25120, section 5): the cells to run, and the
// published claims to check.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/names.hpp"
#include "experiments/checks/paper/cell.hpp"

namespace dflop {

/// A Verdict says how well the figures of a study match a published statement.
enum class Verdict : std::uint8_t { reproduced, partly, not_reproduced };
template <>
inline constexpr NameTable<Verdict, 3> kNames<Verdict> = {{{Verdict::reproduced, "reproduced"},
                                                           {Verdict::partly, "partly"},
                                                           {Verdict::not_reproduced, "not reproduced"}}};

/// Returns the verdict for a statement that holds, holds in part, or does not hold.
constexpr Verdict verdict(bool holds, bool holds_in_part) {
  return holds ? Verdict::reproduced : holds_in_part ? Verdict::partly : Verdict::not_reproduced;
}

/// A Claim is a published statement next to our figures for it.
struct Claim {
  std::string statement;
  std::string published;
  std::string ours;
  Verdict verdict = Verdict::not_reproduced;
  std::string reason;  ///< the causes, from the time breakdown
};

/// A CellResult is a cell of a study with its figures under one setting.
struct CellResult {
  StudyCell cell;
  std::vector<FigureRow> rows;

  /// Returns the named row; null if there is none.
  const FigureRow* find(std::string_view name) const;
};

/// A StudyPicture says what the picture of a study shows.
enum class StudyPicture : std::uint8_t {
  speedups,     ///< throughput relative to the better baseline
  idle,         ///< idle seconds per iteration
  throughputs,  ///< throughput of tp groups, with a box plot for each system
  gaps,         ///< max distance of schedules from the optimum
  corrections,  ///< gain of Adaptive Correction
};

struct StudyKind {
  std::string_view name;
  std::string_view title;
  std::string_view what;  ///< describes the setup in one sentence
  StudyPicture picture = StudyPicture::speedups;
  std::vector<StudyCell> (*cells)() = nullptr;
  /// Returns the study's claims, with the published figures next to ours. `cells` must be in the study's
  /// order.
  std::vector<Claim> (*claims)(std::span<const CellResult> cells) = nullptr;
};

/// Returns all studies.
std::span<const StudyKind> study_kinds();

/// A MethodGain is the throughput of the published method divided by the best baseline's. The method is taken
/// in its better reading.
struct MethodGain {
  double factor = 0;
  const FigureRow* method = nullptr;
  const FigureRow* baseline = nullptr;
};

/// Returns the gain in a cell over the named baselines; nullopt if no reading of the method or no baseline
/// fits.
std::optional<MethodGain> gain_of(const CellResult& cell, std::span<const std::string_view> baselines);

/// Returns Kendall's rank correlation (tau-a) of pairs: 1 if y always rises with x, -1 if it always falls.
double rank_correlation(std::span<const std::pair<double, double>> points);

}  // namespace dflop
