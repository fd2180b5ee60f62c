// This file reads whole files into memory, packs and unpacks gzip, writes outputs that are either complete or
// absent, and locks folders so that one process at a time writes there.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "traces/text/staged_file.hpp"

namespace dflop {

/// Packs bytes as gzip without a time stamp, so that equal inputs give equal outputs.
std::string gzip(std::string_view bytes);

/// The unpacked text of one file has at most this many bytes, far more than any real one. The limit protects
/// against a small file that unpacks to fill the memory; data structures that are read from the text take
/// about as much memory in addition.
inline constexpr std::int64_t kLongestUnpacked = std::int64_t{1} << 30;

/// Unpacks `bytes` if they begin like gzip, else returns them unchanged. `file` is named in errors.
/// @throws Error (input) for a truncated or corrupt stream, or one that unpacks to more than `longest` bytes.
std::string gunzip_if_needed(std::string bytes, const std::string& file,
                             std::int64_t longest = kLongestUnpacked);

/// read_text_file() reads at most this many bytes, far more than any real file has. It checks the size of a
/// file before reading.
inline constexpr std::int64_t kLongestFile = std::int64_t{1} << 30;
/// At most this many bytes are read from a pipe or device. It may have no end, like /dev/zero, and all bytes
/// up to the limit are in memory before it is rejected.
inline constexpr std::int64_t kLongestStream = std::int64_t{512} << 20;

/// Makes read_text_file() accept only regular files from now on, for a process that must not wait for the
/// writer of a pipe.
void refuse_pipes_and_devices();

/// Returns the bytes of a file, pipe or device, unpacked if they are gzip. Opens and reads the file once.
/// @throws Error (input) if it is missing, is a directory, has more than `longest` bytes (or kLongestStream,
/// if it is not a regular file), or cannot be read or unpacked.
std::string read_text_file(const std::string& path, std::int64_t longest = kLongestFile);

/// Reads a file; returns nullopt if the path does not exist. A broken link is an error, because it indicates
/// an incomplete copy.
/// @throws Error (input) for a broken link and for anything but a regular file; what read_text_file() throws
std::optional<std::string> read_file_if_there(const std::string& path);

/// Returns the place of an error in a file's bytes: "file: offset 17".
std::string offset_place(const std::string& file, std::uint64_t offset);

/// StagedOutputs are several outputs that appear together or not at all:
///
///     StagedOutputs outputs;
///     outputs.add("a.json", a);
///     outputs.add("b.csv.gz", b);  // if this throws, there is no a.json either
///     outputs.commit();
///
/// Files are compressed if their path ends in ".gz". A new file takes over the permissions of the file it
/// replaces. Symbolic links stay, and the files they point to are replaced or made.
class StagedOutputs {
 public:
  StagedOutputs();
  /// Removes outputs that were not committed.
  ~StagedOutputs();
  StagedOutputs(const StagedOutputs&) = delete;
  StagedOutputs& operator=(const StagedOutputs&) = delete;

  /// Writes all bytes to a temporary file next to `path`. For a pipe or device, such as /dev/stdout, it keeps
  /// the bytes until commit(). Threads may add at the same time.
  /// @throws Error (output) with the path and the system's reason; outputs that were added earlier remain.
  void add(const std::string& path, std::string_view bytes);

  /// Writes to the pipes and devices, then gives all files their final names.
  /// @throws Error (output) with the path and the system's reason. Only a failure of the last step, renaming,
  /// can leave some files with their final names and others without.
  void commit();

 private:
  struct Stream {
    std::string path;
    std::string bytes;
  };

  std::mutex adding_;
  std::vector<std::unique_ptr<StagedFile>> files_;
  std::vector<Stream> streams_;
};

/// Writes one file like StagedOutputs; on failure the previous file stays.
/// @throws Error (output)
void write_file_atomically(const std::string& path, std::string_view bytes);

/// Checks that write_file_atomically(path) can succeed: that the folder exists, that a file can be made in
/// it, and that the path is not a folder. Call it before long work. It leaves nothing behind.
/// @throws what write_file_atomically() throws
void check_output(const std::string& path);

/// A FolderLock locks a folder by a system lock on the empty file ".lock" in it. The system releases the lock
/// whenever the process ends. The file stays, because removing it would let two other processes each lock a
/// file of that name.
class FolderLock {
 public:
  /// Returns the lock; nullopt if another process holds it. On a file system without locks, every caller gets
  /// a lock.
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
