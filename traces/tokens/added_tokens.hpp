// AddedTokens finds a tokenizer's added tokens in a text before it is split into words: <|im_start|> is one
// token wherever it occurs.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dflop {

class AddedTokens {
 public:
  /// A Found is a token in a text; its size is 0 if there is none.
  struct Found {
    std::size_t begin = 0;
    std::size_t size = 0;
    std::int32_t id = -1;
  };

  /// Adds a token. @pre the content is not empty
  void add(std::string content, std::int32_t id);

  /// Returns the first token at or after `from`; if several begin at the same place, the longest.
  Found find(std::string_view text, std::size_t from) const;

 private:
  struct Token {
    std::string content;
    std::int32_t id;
  };

  std::array<std::vector<Token>, 256> by_first_byte_;  // longest first in each
};

}  // namespace dflop
