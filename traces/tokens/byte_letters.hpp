// Byte-level vocabularies write each byte as one letter that can be printed, so that tokens are texts in JSON
// even where they end within a character: 'Ġ' is a space. The alphabet is that of GPT-2's encoder.py
// (bytes_to_unicode).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dflop {

/// Returns the bytes that a token's letters stand for, or nothing where one of them is not in the alphabet.
/// @param token  valid UTF-8
std::optional<std::string> bytes_of_letters(std::string_view token);

}  // namespace dflop
