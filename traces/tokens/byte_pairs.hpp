// Byte-pair encoding makes tokens of a word: it begins with a token for each byte and joins two neighbours at
// a time, the pair that training joined first before all others (Sennrich, Haddow, Birch 2016).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace dflop {

/// A TextHash finds texts in tables by parts of others, without a copy.
struct TextHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// A WordCache is what one encoding thread keeps between calls: words it has seen lately, and memory to work
/// in. It belongs to the tokenizer that it was first used with.
class WordCache {
 public:
  WordCache() : slots_(kSlots) {}

 private:
  friend class BytePairs;

  /// Words that are longer, or have more tokens, are not kept.
  static constexpr std::size_t kLongestWord = 26;
  static constexpr std::size_t kMostIds = 8;
  static constexpr std::size_t kSlots = std::size_t{1} << 15;

  /// A word and its tokens. A later word of the same slot takes its place.
  struct Slot {
    std::uint8_t length = 0;  ///< 0: none
    std::uint8_t count = 0;
    std::array<char, kLongestWord> word;
    std::array<std::int32_t, kMostIds> ids;
  };

  /// A part of a word that is a token, in a list of neighbours; -1 is no neighbour.
  struct Part {
    std::int32_t id;
    std::int32_t before;
    std::int32_t after;
  };

  /// A pair of neighbours that can be joined. It is stale once one of them is another token.
  struct Join {
    std::int32_t rank;
    std::int32_t at;  ///< the left one
    std::int32_t left;
    std::int32_t right;
    std::int32_t joined;
  };

  std::vector<Slot> slots_;
  std::vector<Part> parts_;
  std::vector<Join> joins_;  // a heap, the first join on top
};

/// BytePairs are tokens of bytes, and which pairs of them are joined. Many threads may encode
/// at once, each with its own WordCache.
class BytePairs {
 public:
  /// Adds a token that encode() begins with, of a single byte, or that is taken whole. @return false if its
  /// bytes are there already
  bool add_token(std::string bytes, std::int32_t id) { return ids_.emplace(std::move(bytes), id).second; }

  /// Returns the token of these bytes, or -1.
  std::int32_t find(std::string_view bytes) const;

  /// Says that `left` and `right` are joined to `joined`, before all pairs of higher rank. Of two ranks of a
  /// pair the later call's counts, as in Hugging Face's library.
  void add_merge(std::int32_t left, std::int32_t right, std::int32_t rank, std::int32_t joined);

  /// Sets the tokens of single bytes. @return the first byte that has none, or -1
  int set_bytes();

  /// Takes words that are tokens themselves as such, whatever merges would make of them.
  void take_whole_words(bool takes) { takes_whole_ = takes; }

  /// Appends the tokens of a word of any length, in time n log n. @pre set_bytes() found all, and the word
  /// has less than 2^31 bytes
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
  void merge(std::string_view word, WordCache& cache, std::vector<std::int32_t>& ids) const;
  void add_join(WordCache& cache, std::int32_t at) const;

  std::unordered_map<std::string, std::int32_t, TextHash, std::equal_to<>> ids_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<Merge> merges_;  // a hash table with open addressing, half full at most
  std::size_t merge_count_ = 0;
  bool takes_whole_ = false;
};

}  // namespace dflop
