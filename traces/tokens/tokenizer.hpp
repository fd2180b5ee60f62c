// A Tokenizer turns texts into the token ids of a model, and back. It reads Hugging Face's tokenizer.json of
// byte-level BPE, as Qwen2, Qwen2.5 and Llama 3 have it, and gives the ids that Hugging Face's library gives.
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
#include "traces/tokens/text_pieces.hpp"

namespace dflop {

class JsonValue;

/// Many threads may use one Tokenizer at once, each with a WordCache of its own.
class Tokenizer {
 public:
  /// Reads a tokenizer.json. What it says of truncation, padding and tokens around a text (post_processor) is
  /// passed over: callers cut and frame texts themselves.
  /// @param json  the file's bytes
  /// @param file  its name, for errors
  /// @throws Error (input) with file and key for what is damaged or of another kind: models but BPE,
  /// normalizers but NFC, pre-tokenizers but a Split by an expression before ByteLevel, dropout, added tokens
  /// that are lstrip, rstrip or single_word
  Tokenizer(std::string_view json, const std::string& file);

  /// Reads a file. @throws Error (input) as read_text_file() and the other
  explicit Tokenizer(const std::string& file);

  /// Returns the tokens of a text, without any around it; added tokens in the text are found, special ones
  /// among them.
  /// @param place  of the text, for errors
  /// @throws Error (input) with `place` for a text that is not UTF-8, with the offset of the first wrong
  /// byte, and for one that is longer than kLongestText
  std::vector<std::int32_t> encode(std::string_view text, WordCache& cache,
                                   const std::string& place = "text") const;
  std::vector<std::int32_t> encode(std::string_view text) const;

  /// Returns the text of tokens, added ones among them. Bytes that are no UTF-8, as of a character of which a
  /// token is missing, become U+FFFD. @throws Error (input) for an id that no token has
  std::string decode(std::span<const std::int32_t> ids) const;

  /// Returns the bytes that a token stands for. @throws Error (input) for an id that no token has
  std::string_view bytes_of(std::int32_t id) const;

  /// Returns the id of a token as it is written in the vocabulary or among the added tokens, or nothing.
  std::optional<std::int32_t> id_of(std::string_view token) const;

  /// Returns the largest id and one: so many rows of an embedding are in use.
  std::int32_t vocabulary_size() const;

  const std::string& file() const { return file_; }

 private:
  void read_model(const JsonValue& model);
  void read_merges(const JsonValue& merges);
  void read_added(const JsonValue& tokens);
  void add_name(const std::string& content, std::int32_t id, const JsonValue& place);
  void encode_words(std::string_view text, WordCache& cache, std::vector<std::int32_t>& ids) const;

  std::string file_;
  bool is_nfc_ = false;
  std::optional<WordSplitter> splitter_;
  BytePairs pairs_;
  AddedTokens added_;         // found in texts as they are
  AddedTokens added_normal_;  // found in normalised texts
  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
  std::vector<std::pair<std::int32_t, std::string>> bytes_;  // of each token, by id
};

}  // namespace dflop
