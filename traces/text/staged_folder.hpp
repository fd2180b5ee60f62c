// A StagedFolder is one output folder that is complete or not there.
#pragma once

#include <optional>
#include <string>

#include "traces/text/text_file.hpp"

namespace dflop {

/// A StagedFolder is a folder for files under another name beside its own, "<path>.part". It goes unless it
/// takes the final name. What a killed process has left of one is removed by the next that writes there.
///
///     StagedFolder folder("model");
///     ... write files into folder.part() ...
///     folder.take_final_name();
class StagedFolder {
 public:
  /// Makes the empty folder, and those above it.
  /// @throws Error (output) as check_output_folder(), and where another process is writing there
  explicit StagedFolder(const std::string& path);
  ~StagedFolder();
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;

  const std::string& part() const { return part_; }

  /// Gives the folder its name. Returns when the name is on the disk. @throws Error (output)
  void take_final_name();

 private:
  std::string path_;
  std::string part_;
  std::optional<FolderLock> lock_;  // while the folder is there under the other name
};

/// Says early that a StagedFolder could not be made: something of the name is there that is no empty folder,
/// or "<path>.part" is, and was not made by a StagedFolder.
/// @throws Error (output) with the path, what was found and what to do
void check_output_folder(const std::string& path);

}  // namespace dflop
