#include "traces/text/staged_folder.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace dflop {
namespace {

namespace fs = std::filesystem;

/// This file, by which a FolderLock locks a folder, also shows that a StagedFolder made it.
constexpr const char* kLockFile = ".lock";

/// Returns the path of the folder itself, with links followed and without a slash at its end.
fs::path folder_of(const std::string& path) {
  std::error_code problem;
  if (fs::exists(path, problem)) {
    const fs::path folder = fs::canonical(path, problem);
    if (!problem) return folder;
  }
  const fs::path folder(path);
  return folder.has_filename() ? folder : folder.parent_path();
}

fs::path part_of(const fs::path& folder) {
  return fs::path(folder.string() + ".part");
}

bool is_empty_or_missing(const fs::path& folder) {
  std::error_code problem;
  if (!fs::exists(fs::symlink_status(folder, problem))) return true;
  const bool is_empty = fs::is_directory(folder, problem) && fs::is_empty(folder, problem);
  return is_empty && !problem;
}

}  // namespace

void check_output_folder(const std::string& path) {
  if (path.empty()) refuse_output(path, "expected the name of a folder, found none");
  const fs::path folder = folder_of(path);
  std::error_code none;
  if (fs::equivalent(folder, ".", none))
    refuse_output(path, "the working folder would be replaced; name another folder");
  if (!is_empty_or_missing(folder)) {
    refuse_output(path, "something else already has this name; remove it, or name another folder");
  }
  const fs::path part = part_of(folder);
  std::error_code ignored;
  if (!is_empty_or_missing(part) && !fs::exists(part / kLockFile, ignored)) {
    refuse_output(part.string(),
                  "something else has this name, which the folder needs until it is complete; remove it, "
                  "or name another folder");
  }
}

StagedFolder::StagedFolder(const std::string& path) {
  check_output_folder(path);
  path_ = folder_of(path).string();
  part_ = part_of(path_).string();
  std::error_code problem;
  fs::create_directories(part_, problem);
  if (problem) refuse_output(part_, problem.message());
  std::optional<FolderLock> lock = FolderLock::try_hold(part_);
  if (!lock)
    refuse_output(path_,
                  "another process is writing it; wait until it ends, or name another "
                  "folder");
  lock_.emplace(std::move(*lock));
  for (const fs::directory_entry& entry : fs::directory_iterator(part_, problem)) {
    if (entry.path().filename() != kLockFile) fs::remove_all(entry.path(), problem);
    if (problem) refuse_output(entry.path().string(), "cannot be removed: " + problem.message());
  }
}

StagedFolder::~StagedFolder() {
  std::error_code ignored;
  if (lock_) fs::remove_all(part_, ignored);
}

void StagedFolder::take_final_name() {
  if (!sync_folder(part_)) refuse_output(part_, std::strerror(errno));
  if (std::rename(part_.c_str(), path_.c_str()) != 0) refuse_output(path_, std::strerror(errno));
  lock_.reset();
  std::error_code ignored;
  fs::remove(fs::path(path_) / kLockFile, ignored);
  if (!sync_folder(fs::path(path_).parent_path().string())) refuse_output(path_, std::strerror(errno));
}

}  // namespace dflop
