// A TarFile is a shard of a WebDataset: a tar whose files are samples, "000123.jpg" and "000123.json" the
// members of one. Its headers are read once; members are then read in any order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

/// A member's bytes are those of one file in the tar.
struct TarMember {
  std::string extension;     ///< all behind the first dot of the file's name, in lower case: "jpg", "seg.png"
  std::uint64_t offset = 0;  ///< of the bytes, in the tar
  std::uint64_t size = 0;    ///< in bytes

  bool operator==(const TarMember&) const = default;
};

/// A sample's members are the files of one name up to its first dot.
struct TarSample {
  std::string key;  ///< the path up to the first dot of the file's name: "train/000123"
  std::vector<TarMember> members;

  /// Returns the member of an extension, or null.
  const TarMember* find(std::string_view extension) const;

  bool operator==(const TarSample&) const = default;
};

/// TarFiles may be read by several threads at once. They hold no file open: there may be thousands of them.
class TarFile {
 public:
  /// Reads all headers: ustar, with GNU's long names, pax's paths and sizes, and sizes of base 256. As
  /// WebDataset does, it passes over folders and over files that begin with a dot or have none in their name.
  /// @throws Error (input) with file and offset for damaged headers, an end that is missing, links, sparse
  /// files and devices, a member that stands twice, and a sample whose members stand apart
  explicit TarFile(const std::string& path);

  const std::string& path() const { return path_; }
  /// Returns all samples, as they come in the tar.
  const std::vector<TarSample>& samples() const { return samples_; }

  /// Returns the bytes of a member of this file. @throws Error (input) if the file cannot be read so far
  std::string read(const TarMember& member) const;

 private:
  std::string path_;
  std::vector<TarSample> samples_;
};

}  // namespace dflop
