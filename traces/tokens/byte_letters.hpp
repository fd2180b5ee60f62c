// Byte-level vocabularies write each byte as one printable letter, so that tokens are valid JSON strings even
// if they end inside a character: 'Ġ' is a space. The alphabet is the one in GPT-2's encoder.py
// (bytes_to_unicode).
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dflop {

/// Returns the bytes that a token's letters encode; nullopt if a letter is not in the alphabet.
/// @param token  valid UTF-8
std::optional<std::string> bytes_of_letters(std::string_view token);

}  // namespace dflop
