// A CellStore stores the figures of finished cells in a folder, so that an interrupted study can resume, and
// studies with common cells run them only once.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiments/checks/paper/cell.hpp"

namespace dflop {

class CellStore {
 public:
  /// Creates the folder `folder`/cells and stores cells there. `data` is the folder of data sets.
  /// @throws Error (output)
  CellStore(const std::string& folder, std::string data);

  /// Returns the stored figures of a cell. Returns nullopt if there are none, or if the data, the model, the
  /// cluster or the program's version has changed since they were stored. Prints a note about a damaged file.
  /// @throws Error (input) for a file that cannot be read; Error (output) if a folder or a link has the name
  /// of the cell's file
  std::optional<std::vector<FigureRow>> find(const StudyCell& cell, const Setting& setting) const;

  /// Stores a cell. @throws Error (output)
  void keep(const StudyCell& cell, const Setting& setting, const std::vector<FigureRow>& rows) const;

 private:
  std::string file_of(const std::string& key) const;
  std::string key_of(const StudyCell& cell, const Setting& setting) const;

  std::string folder_;
  std::string data_;
};

}  // namespace dflop
