#include "traces/tokens/added_tokens.hpp"

#include <algorithm>
#include <utility>

namespace dflop {

void AddedTokens::add(std::string content, std::int32_t id) {
  std::vector<Token>& tokens = by_first_byte_[static_cast<unsigned char>(content.front())];
  const auto shorter = std::find_if(tokens.begin(), tokens.end(), [&](const Token& token) {
    return token.content.size() < content.size();
  });
  tokens.insert(shorter, {std::move(content), id});
}

AddedTokens::Found AddedTokens::find(std::string_view text, std::size_t from) const {
  for (std::size_t at = from; at < text.size(); ++at) {
    for (const Token& token : by_first_byte_[static_cast<unsigned char>(text[at])]) {
      if (text.substr(at).starts_with(token.content)) return {at, token.content.size(), token.id};
    }
  }
  return {text.size(), 0, -1};
}

}  // namespace dflop
