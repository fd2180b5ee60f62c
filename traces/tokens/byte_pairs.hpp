// Byte-pair encoding turns a word into tokens. It starts with a token for each byte and repeatedly joins two
// neighbors, always the pair that was learned first in training (Sennrich, Haddow, Birch 2016).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dflop {

/// A TextHash lets tables of texts be searched with string views, without a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A WordCache belongs to one encoding thread and keeps recently seen words and working memory between calls.
/// It must be used with one tokenizer only.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

 private:
  friend class BytePairs;

  /// Longer words, or words with more tokens, are not cached.
  static constexpr std::size_t kLongestWord = 26;
  static constexpr std::size_t kMaxIds = 8;
  static constexpr std::size_t kSlots = std::size_t{1} << 15;

  /// A Slot holds a word and its tokens. A later word for the same slot replaces it.
  struct Slot {
    std::uint8_t length = 0;  ///< 0: empty
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word;
    std::array<std::int32_t, kMaxIds> ids;
  };

  /// A Part is a token within a word, in a linked list of neighbors; -1 means no neighbor.
  struct Part {
    std::int32_t id;
    std::int32_t before;
    std::int32_t after;
  };

  /// A Join is a pair of neighbors that can be joined. It becomes stale when either neighbor has become part
  /// of a longer token.
  struct Join {
    std::int32_t rank;
    std::int32_t at;  ///< index of the left part
    std::int32_t left;
    std::int32_t right;
    std::int32_t joined;
  };

  std::vector<Slot> slots_;
  std::vector<Part> parts_;
  std::vector<Join> joins_;  // a heap, the first join on top
};

/// BytePairs holds tokens as bytes, and the pairs to join. Many threads may encode at once, each with its own
/// WordCache.
class BytePairs {
 public:
  /// Adds a token: a single byte or character, which encode() starts from, or a token that is taken whole.
  /// @return false if there already is a token with these bytes
  bool add_token(std::string bytes, std::int32_t id) { return ids_.emplace(std::move(bytes), id).second; }

  /// Returns the token with these bytes, or -1.
  std::int32_t find(std::string_view bytes) const;

  /// Adds the rule that `left` and `right` are joined to `joined`, before all pairs of higher rank. If a pair
  /// is added twice, the later rank counts, as in Hugging Face's library.
  void add_merge(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t joined);

  /// Looks up the tokens of all single bytes. @return the first byte without a token; -1 if all have one
  int set_bytes();

  /// Lets encode() start from the tokens of characters. A character without a token becomes the tokens of its
  /// bytes. @param byte_ids  the token of each byte
  void start_from_characters(const std::array<std::int32_t, 256>& byte_ids);

  std::int32_t byte_id(unsigned char byte) const { return byte_ids_[byte]; }

  /// If `takes`, a word that is a token itself becomes that token, regardless of the merges.
  void take_whole_words(bool takes) { takes_whole_ = takes; }

  /// Appends the tokens of a word of any length, in time n log n. @pre set_bytes() found all, or
  /// start_from_characters() was called, and the word is UTF-8 and has less than 2^31 bytes
  void encode(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const;

 private:
  struct Merge {
    std::uint64_t pair = kNone;
    std::int32_t rank = 0;
    std::int32_t joined = 0;
  };
  static constexpr std::uint64_t kNone = ~std::uint64_t{0};

  static std::uint64_t pair_of(std::int32_t left, std::int32_t right);
  Merge& slot_of(std::uint64_t pair);
  const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  void grow();
  void add_characters(std::string_view word, WordCache& cache) const;
  void merge(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void add_join(WordCache& cache, std::int32_t at) const;

  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::array<std::int32_t, 128> ascii_ids_{};  // tokens of these characters, or -1
  bool by_characters_ = false;
  std::vector<Merge> merges_;  // a hash table with open addressing, at most half full
  std::size_t merge_count_ = 0;
  bool takes_whole_ = false;
};

}  // namespace dflop
