// A SampleSource is where a data set's conversations and media are stored: tars, or lists of samples in JSON.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "traces/tokens/conversation.hpp"

namespace dflop {

/// A StoredMedium says where the bytes of a picture, sound or video file, or of a video's frames, are stored.
struct StoredMedium {
  static constexpr std::uint64_t kToEnd = ~std::uint64_t{0};

  std::string place;         ///< for errors: the sample and the medium
  std::string file;          ///< which has the bytes
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t size = kToEnd;
  std::string hint;                       ///< for the error if the file cannot be opened; may be empty
  std::vector<StoredMedium> frames = {};  ///< a video's frames as pictures; then there is no file
  FrameRate rate = {};                    ///< of a video's frames as pictures
};

/// A StoredSample is a conversation with its media.
struct StoredSample {
  Conversation conversation;
  std::vector<StoredMedium> media;  ///< one for each of conversation.media()
};

/// A SampleSource may be read by several threads at once.
class SampleSource {
 public:
  virtual ~SampleSource() = default;

  virtual std::size_t size() const = 0;
  /// Returns the tar or list that has a sample.
  virtual const std::string& file(std::size_t sample) const = 0;
  /// Returns the name of a sample in its file, which is unique there.
  virtual std::string key(std::size_t sample) const = 0;
  /// Returns the place of a sample for errors.
  virtual std::string place(std::size_t sample) const = 0;
  /// Reads a sample's conversation, and finds its media.
  /// @throws Error (input) with place() for damaged JSON, and if media do not match the placeholders
  virtual StoredSample read(std::size_t sample) const = 0;
  /// Returns a fingerprint of the files and of the samples' places in them.
  virtual std::string fingerprint() const = 0;
};

/// Opens the tars or lists that a data set's name denotes. @pre kind_of_shards() knows the name
/// @param media_root  the folder of the media of a list; empty: the folder of the list
/// @throws what expand_shards(), TarFile and JsonList throw
std::unique_ptr<const SampleSource> open_source(const std::string& name, const std::string& media_root);

}  // namespace dflop
