// This file reads a model's chat template, a Jinja program that says how its chats are written. dflop does
// not run it; it searches the template for words that identify the chat form (chat.hpp).
#pragma once

#include <string>

namespace dflop {

/// Returns the text of a folder's chat template, from the first file that transformers would use:
/// chat_template.jinja, chat_template.json or tokenizer_config.json. If the last has several templates, it
/// takes the one called "default". Returns an empty text if there is none.
/// @throws Error (input) with the file if it is not JSON
std::string read_chat_template(const std::string& folder);

}  // namespace dflop
