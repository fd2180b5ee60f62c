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

  /// Returns the row with this name; null if there is none.
  const FigureRow* find(std::string_view name) const;
};

/// A StudyPicture is the kind of a study's picture.
enum class StudyPicture : std::uint8_t {
  speedups,     ///< throughput relative to the better baseline
  idle,         ///< idle seconds of an iteration
  throughputs,  ///< a box for the tp groups of each system
  gaps,         ///< how far schedules may be from the optimum
  corrections,  ///< gain of Adaptive Correction
};

struct StudyKind {
  std::string_view name;
  std::string_view title;
  std::string_view what;  ///< describes the setup in one sentence
  StudyPicture picture = StudyPicture::speedups;
  std::vector<StudyCell> (*cells)() = nullptr;
  /// Compares the figures of all cells with the published ones. `cells` are in the order of the study.
  std::vector<Claim> (*claims)(std::span<const CellResult> cells) = nullptr;
};

/// Returns all studies.
std::span<const StudyKind> study_kinds();

/// A MethodGain is the throughput of the published method, in its better reading, relative to the better of
/// two baselines.
struct MethodGain {
  double factor = 0;
  const FigureRow* method = nullptr;
  const FigureRow* baseline = nullptr;
};

/// Returns the gain in a cell; nullopt if no method or no baseline fits.
std::optional<MethodGain> gain_of(const CellResult& cell, std::span<const std::string_view> baselines);

/// Returns Kendall's rank correlation (tau-a) of pairs: 1 if y always rises with x, -1 if it always falls.
double rank_correlation(std::span<const std::pair<double, double>> points);

}  // namespace dflop
