// A Tokenizer converts texts to a model's token ids and back. It reads Hugging Face's tokenizer.json for
// byte-level BPE, as in Qwen2 and Llama 3, and for SentencePiece's BPE with byte fallback, as in Llama 2,
// Vicuna and Mistral. It gives the same ids as Hugging Face's library.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "traces/tokens/added_tokens.hpp"
#include "traces/tokens/byte_pairs.hpp"
#include "traces/tokens/space_marks.hpp"
#include "traces/tokens/text_pieces.hpp"

namespace dflop {

class JsonValue;

/// A Tokenizer may be used by many threads at once, each with its own WordCache.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. Its settings for truncation, padding and surrounding tokens (post_processor) are
  /// ignored: callers cut and frame texts themselves.
  /// @param json  the file's bytes
  /// @param file  its name, for errors
  /// @throws Error (input) with file and key for a damaged or unsupported file: models other than BPE,
  /// dropout, added tokens that are lstrip, rstrip or single_word. Byte-level BPE may have the normalizer
  /// NFC, and has a Split by an expression before ByteLevel; BPE with byte fallback has the normalizers
  /// Prepend and Replace, or the pre-tokenizer Metaspace. Others are rejected.
  Tokenizer(std::string_view json, const std::string& file);

  /// Reads a tokenizer.json from a file. If there is none but its folder has vocab.json and merges.txt, reads
  /// these in Qwen2's form, with the added tokens of tokenizer_config.json and added_tokens.json, as
  /// transformers' Qwen2Tokenizer does.
  /// @throws what read_text_file() and the other constructor throw; Error (input) for a tokenizer_config.json
  /// of another class of tokenizers
  explicit Tokenizer(const std::string& file);

  /// Returns the tokens of a text, without surrounding tokens; added tokens in the text are recognized,
  /// including special ones.
  /// @param place  of the text, for errors
  /// @throws Error (input) with `place` for a text that is not UTF-8, with the offset of the first wrong
  /// byte, and for one that is longer than kLongestText
  std::vector<std::int32_t> encode(std::string_view text, WordCache& cache,
                                   const std::string& place = "text") const;
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// Returns the tokens of a text like encode(), but the text may follow a token or words.
  /// @param at  what precedes the text; is set to what precedes the next one
  std::vector<std::int32_t> encode_next(std::string_view text, TextPlace& at, WordCache& cache,
                                        const std::string& place) const;

  /// Returns the text of tokens, including added ones. Bytes that are not UTF-8, such as an incomplete
  /// character, become U+FFFD: with byte fallback, each byte of a run of byte tokens. @throws Error (input)
  /// for an unknown id
  std::string decode(std::span<const std::int32_t> ids) const;

  /// Returns the bytes of a token. @throws Error (input) for an unknown id
  std::string_view bytes_of(std::int32_t id) const;

  /// Returns the id of a token, given as it is written in the vocabulary or among the added tokens; nullopt
  /// if there is no such token.
  std::optional<std::int32_t> id_of(std::string_view token) const;

  /// Returns the largest id plus one: the number of embedding rows in use.
  std::int32_t vocabulary_size() const;

  const std::string& file() const { return file_; }

 private:
  void read_json(std::string_view json);
  void read_files(const std::string& folder);
  void read_model(const JsonValue& model);
  void read_vocabulary(const JsonValue& vocabulary, bool takes_whole_words);
  void read_merges(const JsonValue& merges);
  void read_merges(std::string_view lines, const std::string& file);
  template <typename Refuse>
  void add_merge(std::string_view left, std::string_view right, const Refuse& refuse);
  void read_config(const JsonValue& config);
  void finish();
  void read_added(const JsonValue& tokens);
  std::optional<std::string> read_added_token(const JsonValue& token, std::int32_t id,
                                              const JsonValue& place);
  void add_name(const std::string& content, std::int32_t id, const JsonValue& place);
  void read_byte_tokens(const JsonValue& vocabulary);
  void encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;
  /// Returns a text as it is searched for normalized added tokens.
  std::string normalized(std::string_view text, TextPlace at) const;

  std::string file_;
  bool is_nfc_ = false;
  std::optional<WordSplitter> splitter_;  // of byte-level BPE
  std::optional<SpaceMarks> marks_;       // of BPE with byte fallback
  BytePairs pairs_;
  std::int32_t merges_ = 0;
  AddedTokens added_;         // found in unnormalized texts
  AddedTokens added_normal_;  // found in normalized texts
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
  std::vector<std::pair<std::int32_t, std::string>> bytes_;  // for each token, by id
};

}  // namespace dflop
