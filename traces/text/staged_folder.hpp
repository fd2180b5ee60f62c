// A StagedFolder is an output folder that is either complete or absent.
#pragma once

#include <optional>
#include <string>

#include "traces/text/text_file.hpp"

namespace dflop {

/// A StagedFolder holds files in a folder with a temporary name, "<path>.part", next to the final name. The
/// temporary folder is removed unless it takes the final name. If a process is killed, the next StagedFolder
/// with the same path removes what that process left.
///
///     StagedFolder folder("model");
///     ... write files into folder.part() ...
///     folder.take_final_name();
class StagedFolder {
 public:
  /// Makes the empty folder and missing parent folders.
  /// @throws what check_output_folder() throws; Error (output) if another process is writing this folder
  explicit StagedFolder(const std::string& path);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& part() const { return part_; }

  /// Gives the folder its final name. Returns when the name is on disk. @throws Error (output)
  void take_final_name();

 private:
  std::string path_;
  std::string part_;
  std::optional<FolderLock> lock_;  // held while the folder has its temporary name
};

/// Checks early that a StagedFolder can be made: fails if `path` exists and is not an empty folder, or if
/// "<path>.part" exists and no StagedFolder made it.
/// @throws Error (output) with the path, what was found and what to do
void check_output_folder(const std::string& path);

}  // namespace dflop
