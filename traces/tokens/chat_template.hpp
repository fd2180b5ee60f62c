// A model's folder has a template, a program in Jinja, of how its chats are written. It is not run: chat
// forms are (chat.hpp), and words of it tell which of them is meant.
#pragma once

#include <string>

namespace dflop {

/// Returns the text of a folder's chat template, of the file that transformers takes first:
/// chat_template.jinja, chat_template.json or tokenizer_config.json; of several templates in the last the one
/// that is called "default". It is empty where there is none.
/// @throws Error (input) with the file for one that is no JSON
std::string read_chat_template(const std::string& folder);

}  // namespace dflop
