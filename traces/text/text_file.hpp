// Whole files are read into memory here, and packed and unpacked as gzip. Outputs are either complete or not
// there, and one process at a time writes in a folder.
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

/// Packs bytes as gzip without a time stamp: the same bytes in give the same bytes out.
std::string gzip(std::string_view bytes);

/// The unpacked text of one file has at most so many bytes, far beyond any real one; the limit guards against
/// a small file that unpacks to fill the memory, of which what is read from the text takes as much again.
inline constexpr std::int64_t kLongestUnpacked = std::int64_t{1} << 30;

/// Returns `bytes` unpacked if they begin as gzip does, else as they are. `file` is for the error.
/// @throws Error (input) for a truncated or corrupt stream, or one of more than `longest` bytes.
std::string gunzip_if_needed(std::string bytes, const std::string& file,
                             std::int64_t longest = kLongestUnpacked);

/// A file has at most so many bytes, far beyond any real one. The size of a file is known before it is read.
inline constexpr std::int64_t kLongestFile = std::int64_t{1} << 30;
/// A pipe or device, which may have no end, as /dev/zero, gives at most so many: all up to the limit is held
/// in memory before it is refused.
inline constexpr std::int64_t kLongestStream = std::int64_t{512} << 20;

/// From now on read_text_file() takes regular files alone, for a process that must not wait for whoever
/// writes to a pipe.
void refuse_pipes_and_devices();

/// Returns the bytes of a file, pipe or device, unpacked if it is a gzip one. It is opened and read once.
/// @throws Error (input) if it is missing, a directory, longer than `longest` bytes (and kLongestStream,
/// where it is no regular file), or cannot be read or unpacked.
std::string read_text_file(const std::string& path, std::int64_t longest = kLongestFile);

/// Reads a file, or returns nothing where there is none of this name. A link that leads nowhere is no missing
/// file, but one of a copy that is not complete.
/// @throws Error (input) for such a link, for what is no regular file, and as read_text_file()
std::optional<std::string> read_file_if_there(const std::string& path);

/// Returns the place of an error in a file's bytes: "file: offset 17".
std::string offset_place(const std::string& file, std::uint64_t offset);

/// StagedOutputs are several outputs of which either all appear or none:
///
///     StagedOutputs outputs;
///     outputs.add("a.json", a);
///     outputs.add("b.csv.gz", b);  // if this throws, there is no a.json either
///     outputs.commit();
///
/// Files are compressed if their path ends in ".gz". A file that is replaced gives its permissions to the new
/// one. Symbolic links stay; the files they name are replaced or made.
class StagedOutputs {
 public:
  StagedOutputs();
  /// Removes what was not committed.
  ~StagedOutputs();
  StagedOutputs(const StagedOutputs&) = delete;
  StagedOutputs& operator=(const StagedOutputs&) = delete;

  /// Writes all bytes to a temporary file beside `path`. For a pipe or device, as /dev/stdout, the bytes are
  /// kept until commit(). Threads may add at the same time.
  /// @throws Error (output) with the path and the system's reason; what was added before stays added.
  void add(const std::string& path, std::string_view bytes);

  /// Writes to the pipes and devices, then gives all files their names.
  /// @throws Error (output) as add(). Only the last step, renaming, can leave some files done and others not.
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

/// Writes one file as StagedOutputs do: a failure leaves what was there before.
/// @throws Error (output)
void write_file_atomically(const std::string& path, std::string_view bytes);

/// Says early that write_file_atomically(path) would fail: the folder is not there or no file can be made in
/// it, or the path is a folder. For work that takes long before it has something to write. Leaves nothing.
/// @throws Error (output) as write_file_atomically.
void check_output(const std::string& path);

/// A FolderLock holds a folder by a lock of the system on the empty file ".lock" in it. The system lets go of
/// it when the process ends, however it does; the file stays, as removing it would let two others hold a file
/// of that name each.
class FolderLock {
 public:
  /// Returns the lock, or nothing where another process holds the folder. Where the file system knows no
  /// locks, all get one.
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
