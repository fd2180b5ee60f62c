// A StagedFile is an output file, written piece by piece, that is either complete or absent.
#pragma once

#include <string>
#include <string_view>

namespace dflop {

struct PendingPath;  // a path that the signal handler removes

/// A StagedFile holds the new content of a file under a temporary name in the same folder. The temporary file
/// is removed if the StagedFile is destroyed before it takes the final name, or if a signal ends the process
/// (remove_temporaries_on_signals()).
///
///     StagedFile file("model.safetensors");
///     for (...) file.append(bytes);
///     file.take_final_name();
///
/// The new file takes over the permissions of a replaced file; a read-only file is not replaced. Symbolic
/// links stay, and the files they point to are replaced or made. Nothing is compressed.
///
/// The temporary name, such as "model.safetensors.part-4711-0123abcd", contains the process id and is
/// shortened to the max length of file names. If a process is killed, its temporary file stays. The next
/// StagedFile with the same final name removes it if no process is writing it, and prints a note on standard
/// error.
class StagedFile {
 public:
  /// Makes an empty file next to `path`.
  /// @throws Error (output) with the path and the system's reason, or if the path is a folder or a read-only
  /// file.
  explicit StagedFile(const std::string& path);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Returns the temporary path.
  const std::string& part() const { return name_; }

  /// Appends bytes with a system call. Callers should collect small pieces in a buffer first.
  /// @throws Error (output)
  void append(std::string_view bytes);

  /// Waits until all appended bytes are on disk. After sync(), take_final_name() also waits until the final
  /// name is on disk.
  /// @throws Error (output)
  void sync();
  /// Starts writing the appended bytes to disk in the background. @see sync()
  void start_sync();

  /// Closes the file for writing.
  /// @throws Error (output), because some file systems report a full disk only then.
  void close();

  /// Closes the file and gives it its final name. @throws Error (output)
  void take_final_name();

 private:
  void open();
  void remove_leftovers() const;
  void remove();

  const std::string path_;    // as the user gave it
  const std::string target_;  // path_ with links followed
  const std::string name_;
  PendingPath* pending_;  // null if the table of pending paths is full
  int file_ = -1;
  bool is_there_ = false;
  bool is_synced_ = false;
};

/// Makes SIGINT, SIGTERM, SIGHUP and SIGPIPE, unless they are ignored (as under nohup), remove the temporary
/// files of all StagedFiles before they end the process. If `says_so`, a signal other than SIGPIPE also
/// prints a line to standard error. A file that grows too large (SIGXFSZ) becomes an Error (output) like
/// other failures. Call it in main().
void remove_temporaries_on_signals(bool says_so = false);

/// Waits until the names in a folder are on disk. Returns false on failure, and errno says why. Returns true
/// on a file system that does not support this wait.
bool sync_folder(const std::string& folder);

/// Throws an Error (output): "cannot write: " and the reason.
[[noreturn]] void refuse_output(const std::string& path, const std::string& reason);

/// Tells whether a path exists and is a pipe or device, not a regular file.
/// @throws Error (output) for a folder, and if the system cannot tell
bool is_pipe_or_device(const std::string& path);

}  // namespace dflop
