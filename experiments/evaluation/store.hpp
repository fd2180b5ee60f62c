// Figures of finished cells are kept in a folder, so that a study that was stopped goes on where it was, and
// studies that have cells in common run them once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/evaluation/cell.hpp"

namespace dflop {

class CellStore {
 public:
  /// Keeps cells in `folder`/cells, which it makes; `data` is the folder of data sets.
  /// @throws Error (output)
  CellStore(const std::string& folder, std::string data);

  /// Returns what is kept of a cell; nothing where there is nothing, or where the data, the model, the
  /// cluster or the program's version was another then. Says where a file is damaged.
  /// @throws Error (input) for a file that cannot be read; Error (output) where its place is taken by a
  /// folder or a link
  std::optional<std::vector<FigureRow>> find(const StudyCell& cell, const Setting& setting) const;

  /// Keeps a cell. @throws Error (output)
  void keep(const StudyCell& cell, const Setting& setting, const std::vector<FigureRow>& rows) const;

 private:
  std::string file_of(const std::string& key) const;
  std::string key_of(const StudyCell& cell, const Setting& setting) const;

  std::string folder_;
  std::string data_;
};

}  // namespace dflop
