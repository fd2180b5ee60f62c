// TokenData is a Dataset of pre-tokenized text in Megatron's .idx and .bin files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "traces/dataset/dataset.hpp"
#include "traces/shards/megatron.hpp"

namespace dflop {

class TokenData final : public Dataset {
 public:
  /// Reads all .idx files but not the .bin files. A sample of n rows takes n + 1 tokens, because each row's
  /// target is the next token. A document is a sequence of the .idx, as in Megatron's GPTDataset.
  ///
  /// With a sequence length, the documents of a file are concatenated and each sample takes that many rows. A
  /// sample begins with the last target of the previous sample. Attention crosses document borders. The last
  /// sample of a file may be shorter. Without a sequence length, each document is a sample; a document that
  /// exceeds the model's longest sequence is split in the same way, and documents with fewer than two tokens
  /// are left out.
  /// @param shards           names for expand_prefixes()
  /// @param sequence_length  in rows; 0: none
  /// @throws Error (input) for two files with the same name; what MegatronFile throws
  TokenData(const ModelSpec& model, const std::string& shards, std::int64_t sequence_length);

  std::string fingerprint() const override;
  SampleContent read(const std::string& id, bool values) const override;
  std::int64_t trained_tokens(const Sample& sample) const override { return sample.llm_tokens; }

 private:
  /// A Place is the position of a sample's first token.
  struct Place {
    std::size_t sequence = 0;
    std::size_t token = 0;  ///< index within the sequence
  };
  struct File {
    File(const std::string& prefix, std::int64_t vocabulary, std::size_t first_sample);

    MegatronFile tokens;
    std::string name;    ///< file name without folders
    std::size_t number;  ///< index of its first sample
  };

  void add_packed(const File& file);
  void add_documents(const File& file);
  void add_sample(const File& file, const Place& place, std::size_t rows);

  ModelSpec model_;
  std::size_t longest_;  ///< max rows of a sample
  bool is_packed_;
  std::deque<File> files_;
  std::map<std::string, const File*, std::less<>> by_name_;
  std::vector<Place> places_;  ///< of all samples
};

}  // namespace dflop
