// A ListSource finds samples in JSON lists whose media are files of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "traces/dataset/sample_source.hpp"
#include "traces/shards/json_list.hpp"

namespace dflop {

/// A sample of a ListSource has a form that parse_listed_conversation() reads. Its key is the number of its
/// line or, in a JSON array, of its element. Media are found when they are read, and the contents of a file
/// decide its format.
class ListSource final : public SampleSource {
 public:
  /// Finds the samples of all lists.
  /// @param media_root  the folder of relative paths; empty: for each list, its own folder
  /// @throws Error (input) if media_root is not a folder; what JsonList throws
  ListSource(const std::vector<std::string>& names, const std::string& media_root);

  std::size_t size() const override { return places_.size(); }
  const std::string& file(std::size_t sample) const override { return list_of(sample).path(); }
  std::string key(std::size_t sample) const override;
  std::string place(std::size_t sample) const override;
  StoredSample read(std::size_t sample) const override;
  /// Returns a fingerprint of the lists, without their media. The shapes of samples are part of a run's
  /// identity, so a run notices if a picture is replaced by one of another size.
  std::string fingerprint() const override;

 private:
  struct Place {
    std::uint32_t list = 0;
    std::uint32_t sample = 0;
  };

  const JsonList& list_of(std::size_t sample) const { return lists_[places_[sample].list]; }

  std::vector<JsonList> lists_;
  std::vector<std::string> roots_;  ///< the folder of each list's media
  std::vector<Place> places_;       ///< of all samples
};

}  // namespace dflop
