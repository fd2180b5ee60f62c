// A StagedFile is one output that is complete or not there, and is written piece by piece.
#pragma once

#include <string>
#include <string_view>

namespace dflop {

struct PendingPath;  // a path that signals remove

/// A StagedFile is the new content of a file under another name beside it. It goes unless it takes the final
/// name: when it is destroyed, or when a signal ends the process (remove_temporaries_on_signals()).
///
///     StagedFile file("model.safetensors");
///     for (...) file.append(bytes);
///     file.take_final_name();
///
/// A file that is replaced gives its permissions to the new one; one that nobody may write is refused.
/// Symbolic links stay; the files they name are replaced or made. Nothing is compressed.
///
/// The other name is "model.safetensors.part-4711-0123abcd", with the number of the process, and shorter
/// where a file's name may be no longer. Of a process that was killed it stays, until a file of the same
/// final name is made in a process: what no process has under work is removed then, with a note on standard
/// error.
class StagedFile {
 public:
  /// Makes an empty file beside `path`.
  /// @throws Error (output) with the path and the system's reason, or where the path is a folder, or a file
  /// that is read-only.
  explicit StagedFile(const std::string& path);
  ~StagedFile();
  StagedFile(const StagedFile&) = delete;
  StagedFile& operator=(const StagedFile&) = delete;

  /// Returns the path that the file has until it gets its name.
  const std::string& part() const { return name_; }

  /// Writes bytes behind those that are there, by a call of the system: small pieces want a buffer before it.
  /// @throws Error (output)
  void append(std::string_view bytes);

  /// Returns when all bytes are on the disk; take_final_name() then does so when the name is.
  /// @throws Error (output)
  void sync();
  /// Has the disk begin with what was appended, while more is made. @see sync()
  void start_sync();

  /// Writes no more.
  /// @throws Error (output), as some file systems say only then that they had no space.
  void close();

  /// Closes the file and gives it its name. @throws Error (output)
  void take_final_name();

 private:
  void open();
  void remove_leftovers() const;
  void remove();

  const std::string path_;    // as the user gave it
  const std::string target_;  // links followed
  const std::string name_;
  PendingPath* pending_;  // null where the table of these is full
  int file_ = -1;
  bool is_there_ = false;
  bool is_synced_ = false;
};

/// Lets SIGINT, SIGTERM, SIGHUP and SIGPIPE remove the temporary files of all StagedFiles before they end the
/// process, except those that are ignored, as under nohup. A file that grows too large (SIGXFSZ) becomes an
/// Error (output) as other failures. For main().
void remove_temporaries_on_signals();

/// Returns when the names in a folder are on the disk, and whether they are; errno says why not. A file
/// system that knows no such wait counts as one where they are.
bool sync_folder(const std::string& folder);

/// Refuses an output: "cannot write: " and the reason. @throws Error (output)
[[noreturn]] void refuse_output(const std::string& path, const std::string& reason);

/// Tells whether a path is there and no file, as a pipe or device. @throws Error (output) for a folder, and
/// where the system does not tell.
bool is_pipe_or_device(const std::string& path);

}  // namespace dflop
