// A TarSource finds samples in WebDataset tars.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "traces/dataset/sample_source.hpp"
#include "traces/shards/tar.hpp"

namespace dflop {

/// A sample of a TarSource has one .json member, in a form that parse_conversation() reads, and its media:
/// .jpg, .jpeg, .png, .webp or .wav. Several media follow the order of their placeholders: by the numbers in
/// 000123.0.jpg and 000123.10.jpg or, without numbers, in tar order. Other members are ignored.
class TarSource final : public SampleSource {
 public:
  /// Reads the headers of all tars. @throws what TarFile throws
  explicit TarSource(const std::vector<std::string>& names);

  std::size_t size() const override { return places_.size(); }
  const std::string& file(std::size_t sample) const override { return tar_of(sample).path(); }
  std::string key(std::size_t sample) const override { return sample_of(sample).key; }
  std::string place(std::size_t sample) const override;
  StoredSample read(std::size_t sample) const override;
  std::string fingerprint() const override;

 private:
  struct Place {
    std::size_t tar = 0;
    std::size_t sample = 0;
  };

  const TarFile& tar_of(std::size_t sample) const { return tars_[places_[sample].tar]; }
  const TarSample& sample_of(std::size_t sample) const {
    return tar_of(sample).samples()[places_[sample].sample];
  }

  std::vector<TarFile> tars_;
  std::vector<Place> places_;  ///< of all samples
};

}  // namespace dflop
