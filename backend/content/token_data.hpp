// TokenData are a data set of token ids as Megatron has them: words alone, encoded before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "backend/content/dataset.hpp"
#include "traces/shards/megatron.hpp"

namespace dflop {

class TokenData final : public Dataset {
 public:
  /// Reads all .idx and nothing of the .bin. A sample of n rows takes n + 1 tokens, as each row's target is
  /// the token behind it. A document is a sequence of the .idx, as for Megatron's GPTDataset.
  ///
  /// With a sequence length the documents of a file are one text, in their order, of which each sample takes
  /// so many rows and begins with the last target of the sample before; attention goes over the borders of
  /// documents. The last of a file may be shorter. Without it each document is a sample, and one that is
  /// longer than the model's longest is cut in the same way; documents with fewer than two tokens are left
  /// out.
  /// @param shards           as expand_prefixes() takes them
  /// @param sequence_length  in rows; 0: none
  /// @throws Error (input) as MegatronFile, and for two files of one name
  TokenData(const ModelSpec& model, const std::string& shards, std::int64_t sequence_length);

  std::string fingerprint() const override;
  SampleContent read(const std::string& id, bool values) const override;
  std::int64_t trained_tokens(const Sample& sample) const override { return sample.llm_tokens; }

 private:
  /// A Place is where a sample's first token is.
  struct Place {
    std::size_t sequence = 0;
    std::size_t token = 0;  ///< of the sequence
  };
  struct File {
    File(const std::string& prefix, std::int64_t vocabulary, std::size_t first_sample);

    MegatronFile tokens;
    std::string name;    ///< without folders
    std::size_t number;  ///< of its first sample
  };

  void add_packed(const File& file);
  void add_documents(const File& file);
  void add_sample(const File& file, const Place& place, std::size_t rows);

  ModelSpec model_;
  std::size_t longest_;  ///< sample, in rows
  bool is_packed_;
  std::deque<File> files_;
  std::map<std::string, const File*, std::less<>> by_name_;
  std::vector<Place> places_;  ///< of all samples
};

}  // namespace dflop
