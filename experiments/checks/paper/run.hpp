// This file runs studies cell by cell, under each setting.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "experiments/checks/paper/store.hpp"
#include "experiments/checks/paper/studies.hpp"

namespace dflop {

/// A StudyResult is the result of a study under one setting.
struct StudyResult {
  const StudyKind* study = nullptr;
  const Setting* setting = nullptr;
  std::vector<CellResult> cells;
  std::vector<Claim> claims;
};

/// Runs studies under all settings, one setting of a study after the other. Does not run cells that are in
/// `store`, and adds newly run cells to it. Prints one line per cell to standard error. `data` is the folder
/// of data sets.
/// @throws Error (input) for data that cannot be read, Error (output) for a cell that cannot be stored
std::vector<StudyResult> run_studies(std::span<const StudyKind* const> studies, const CellStore& store,
                                     const std::string& data);

}  // namespace dflop
