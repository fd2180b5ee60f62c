// A ChatTokenizer turns conversations into what a model is trained on: token ids, which of them it learns to
// say, and where the tokens of its images, videos and sounds are.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "traces/tokens/conversation.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {

/// A MediumPlace says which tokens stand for one medium: its encoder's outputs take their rows.
struct MediumPlace {
  ChatMedium medium = ChatMedium::image;
  std::size_t begin = 0;
  std::size_t count = 0;

  bool operator==(const MediumPlace&) const = default;
};

struct ChatTokens {
  std::vector<std::int32_t> ids;
  std::vector<std::uint8_t> is_trained;  ///< of each id, 1 where the loss counts it as a prediction's target
  std::vector<MediumPlace> media;        ///< as they come

  /// Keeps the first `longest` tokens.
  /// @param sample  its name, for errors
  /// @throws Error (input) naming `sample`, where the cut would take tokens of a medium, or all that are
  /// trained
  void cut(std::size_t longest, const std::string& sample);
};

/// Returns the names of chat forms:
///   chatml   <|im_start|>role, a line's end, the words, <|im_end|>, a line's end
///   qwen2    chatml with "You are a helpful assistant." as the system's turn where there is none
///            (Qwen2, Qwen2-VL, Qwen2.5-VL, Qwen2-Audio, LLaVA-OneVision with Qwen2)
///   qwen2.5  the same with "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
///   llama3   <|begin_of_text|>, then <|start_header_id|>role<|end_header_id|>, two line's ends, the words
///            without the spaces around them, <|eot_id|>
///   plain    the words alone
std::vector<std::string_view> chat_forms();

/// Returns the names of the families whose media have tokens: each medium is a token repeated, between tokens
/// for its begin and end but for llava-ov.
std::vector<std::string_view> media_families();

/// MediumIds are the tokens of one kind of media.
struct MediumIds {
  ChatMedium medium = ChatMedium::image;
  std::int32_t begin = -1;  ///< -1: none
  std::int32_t token = -1;  ///< repeated for each output of the encoder; -1: the tokenizer lacks it
  std::int32_t end = -1;    ///< -1: none
};

/// Many threads may use one ChatTokenizer at once, each with a WordCache of its own.
class ChatTokenizer {
 public:
  /// @param tokenizer  outlives this
  /// @param form       one of chat_forms()
  /// @param family     one of media_families(), or empty: texts alone
  /// @throws Error (input) for other names, and with the tokenizer's file for a token of the form that it
  /// lacks, or that is to stand around media of which it has the token
  ChatTokenizer(const Tokenizer& tokenizer, std::string_view form, std::string_view family);

  /// Returns the tokens of a conversation. Trained are the assistant's words and the token that ends its
  /// turn; media never are. Of a text as for pretraining all is trained but what the form puts before it.
  /// Words up to an answer are encoded as one text, as the families' chat templates are, and answers each by
  /// itself: what is trained begins where a model that is asked begins.
  /// @param counts  how many tokens each medium has, as conversation.media() lists them
  /// @param place   of the sample, for errors
  /// @throws Error (input) with `place` for another number of counts or one below 1, media of which the
  /// family or the tokenizer has no token, words that are a medium's token, and as Tokenizer::encode()
  ChatTokens encode(const Conversation& conversation, std::span<const std::int64_t> counts, WordCache& cache,
                    const std::string& place) const;

  /// A form is a row of the table of chat forms.
  struct Form;

 private:
  std::int32_t require_id(std::string_view token) const;

  const Tokenizer* tokenizer_;
  const Form* form_;
  std::vector<MediumIds> media_;
};

}  // namespace dflop
