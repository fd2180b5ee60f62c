// One process at a time works in a folder.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace dflop {

/// Holds a folder by a lock of the system on the empty file ".lock" in it. The system lets go of it when the
/// process ends, however it does; the file stays, as removing it would let two others hold a file of that
/// name each.
class FolderLock {
 public:
  /// Nothing where another process holds the folder. Where the file system knows no locks, all get one.
  /// @throws Error (output) if the file cannot be made.
  static std::optional<FolderLock> try_hold(const std::string& folder);

  ~FolderLock();
  FolderLock(FolderLock&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  explicit FolderLock(int file) : file_(file) {}

  int file_;  // open while the lock is held
};

}  // namespace dflop
