// A ChatTokenizer turns conversations into training input: token ids, which of them the loss covers, and the
// positions of image, video and sound tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/tokens/conversation.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {

/// A MediumPlace says which tokens stand for one medium. The encoder's outputs replace the rows of these
/// tokens.
struct MediumPlace {
  ChatMedium medium = ChatMedium::image;
  std::size_t begin = 0;
  std::size_t count = 0;

  bool operator==(const MediumPlace&) const = default;
};

struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> is_trained;  ///< for each id, 1 if the loss covers it as a prediction target
  std::vector<MediumPlace> media;        ///< in the order of the text

  /// Keeps the first `longest` tokens.
  /// @param sample  its name, for errors
  /// @throws Error (input) naming `sample`, if the cut would remove tokens of a medium, or all trained tokens
  void cut(std::size_t longest, const std::string& sample);
};

/// Returns the names of chat forms:
///   chatml   <|im_start|>role, newline, the words, <|im_end|>, newline
///   qwen2    chatml with "You are a helpful assistant." as the system turn if there is none
///            (Qwen2, Qwen2-VL, Qwen2.5-VL, Qwen2-Audio, LLaVA-OneVision with Qwen2)
///   qwen2.5  like qwen2, but with "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
///   qwen2.5-omni  like qwen2, but with the sentence that Qwen2.5-Omni needs to speak ("a virtual human")
///   qwen3    chatml; the last answer begins with its thought or an empty one, which is not trained; answers
///            before the last question have none (the template of Qwen3 models that can think)
///   llama3   <|begin_of_text|>, then <|start_header_id|>role<|end_header_id|>, two newlines, the words
///            without surrounding spaces, <|eot_id|>
///   vicuna   <s>, then the system turn and a space, "USER: ", the words, " ASSISTANT:", a space and the
///            answer, </s> (LLaVA 1.5)
///   mistral  <s>, then "[INST] ", the words, " [/INST]", a space and the answer, </s> (LLaVA-NeXT with
///            Mistral); a system turn is enclosed by <<SYS>> and <</SYS>>
///   plain    only the words
std::vector<std::string_view> chat_forms();

/// Returns the names of the families whose media have tokens. Each medium is a repeated token; except in
/// llava and llava-ov, begin and end tokens enclose it.
std::vector<std::string_view> media_families();

/// MediumIds holds the token ids of one kind of media.
struct MediumIds {
  ChatMedium medium = ChatMedium::image;
  std::int32_t begin = -1;  ///< -1: none
  std::int32_t token = -1;  ///< repeated for each encoder output; -1: not in the tokenizer
  std::int32_t end = -1;    ///< -1: none
  std::string_view name;    ///< of the repeated token
};

/// A ChatTokenizer encodes conversations in one chat form. Many threads may use it at once, each with its own
/// WordCache.
class ChatTokenizer {
 public:
  /// @param tokenizer  must outlive this
  /// @param form       one of chat_forms()
  /// @param family     one of media_families(), or empty for text only
  /// @throws Error (input) for an unknown form or family; Error (input) with the tokenizer's file if the
  /// tokenizer lacks a token of the form, or has the token of a medium but not its begin or end token
  ChatTokenizer(const Tokenizer& tokenizer, std::string_view form, std::string_view family);

  /// Returns the tokens of a conversation. The loss covers the assistant's words and the token that ends its
  /// turn, but never media. A pretraining text is trained completely, except for the tokens that the form
  /// puts before it. All words up to an answer are encoded as one text, like the families' chat templates,
  /// and each answer separately, so training starts where a prompted model starts to answer.
  /// @param counts  how many tokens each medium has, in the order of conversation.media()
  /// @param place   of the sample, for errors
  /// @throws Error (input) with `place` for a wrong number of counts or one below 1, media whose token the
  /// family or the tokenizer lacks, and words that equal a medium's token; what Tokenizer::encode() throws
  ChatTokens encode(const Conversation& conversation, std::span<const std::int64_t> counts, WordCache& cache,
                    const std::string& place) const;

  /// Returns the name of the token that stands for a medium in the family, or nothing if it has none.
  std::string_view token_of(ChatMedium medium) const;

  /// A Form is a row of the table of chat forms.
  struct Form;

 private:
  std::int32_t require_id(std::string_view token) const;

  const Tokenizer* tokenizer_;
  const Form* form_;
  std::int32_t begin_ = -1;  // token that begins a conversation, or -1
  std::int32_t end_ = -1;    // token that ends an answer, or -1
  std::vector<MediumIds> media_;
};

}  // namespace dflop
