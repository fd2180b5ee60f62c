#include "experiments/checks/paper/run.hpp"

#include <chrono>
#include <utility>

#include "experiments/cli/say.hpp"

namespace dflop {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<FigureRow> find_or_run(const StudyCell& cell, const Setting& setting, const CellStore& store,
                                   const std::string& data) {
  try {
    if (std::optional<std::vector<FigureRow>> kept = store.find(cell, setting)) {
      say("kept\n");
      return *std::move(kept);
    }
    const auto start = Clock::now();
    std::vector<FigureRow> rows = run_cell(cell, setting, data);
    store.keep(cell, setting, rows);
    say("{:.1f} s\n", Seconds(Clock::now() - start).count());
    return rows;
  } catch (...) {
    say("\n");  // puts the error on its own line
    throw;
  }
}

}  // namespace

std::vector<StudyResult> run_studies(std::span<const StudyKind* const> studies, const CellStore& store,
                                     const std::string& data) {
  std::vector<StudyResult> results;
  for (const StudyKind* study : studies) {
    const std::vector<StudyCell> cells = study->cells();
    for (const Setting& setting : settings()) {
      StudyResult result{study, &setting, {}, {}};
      for (const StudyCell& cell : cells) {
        say("dflop: study {}, {}, cell {} of {}, {}: ", study->name, setting.name, result.cells.size() + 1,
            cells.size(), cell.label);
        result.cells.push_back({cell, find_or_run(cell, setting, store, data)});
      }
      result.claims = study->claims(result.cells);
      results.push_back(std::move(result));
    }
  }
  return results;
}

}  // namespace dflop
