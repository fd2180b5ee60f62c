// ShardData is a Dataset of WebDataset tar files that hold conversations with pictures or sounds, as one
// model reads them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "core/model.hpp"
#include "core/sample.hpp"
#include "traces/dataset/dataset.hpp"
#include "traces/dataset/media_reader.hpp"
#include "traces/shards/tar.hpp"
#include "traces/tokens/chat.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {

/// A UsualChatForm is the default chat form of a model: one of chat_forms().
struct UsualChatForm {
  std::string_view name;
  std::string note = "";  ///< why the choice is doubtful; empty if it is certain
};

/// Returns the chat form of a model's family. Qwen2 and Qwen2.5 have the same architecture but different
/// system prompts. `chat_template`, from read_chat_template(), tells them apart. If it is empty, the form is
/// Qwen2.5's; if it has neither system prompt, the form is chatml.
UsualChatForm usual_chat_form(const ModelSpec& model, std::string_view chat_template);

class ShardData final : public Dataset {
 public:
  /// Reads the headers of all tars and pictures, and all conversations. This gives all sample shapes; nothing
  /// is decoded. A sample has one .json member, in a form that parse_conversation() reads, and its media:
  /// .jpg, .jpeg, .png or .wav. Several media follow the order of their placeholders: by the numbers in
  /// 000123.0.jpg and 000123.10.jpg or, without numbers, in tar order. Other members are ignored. A
  /// conversation longer than the model's longest sequence is cut. A conversation is left out if its media
  /// would be cut, if it has a sound of more than 30 s, or if none of its tokens is trained. A sample's id is
  /// the tar's file name and the sample's key.
  /// @param folder  a transformers folder. Reads tokenizer.json, the processor's settings with
  ///                read_model_processor() and, for Qwen2's family, the chat template
  /// @param shards  names for expand_shards()
  /// @param form    one of chat_forms(); empty: usual_chat_form()
  /// @throws Error (input) that names the tar, and the member if there is one, for damaged or missing data
  ShardData(const ModelSpec& model, const std::string& folder, const std::string& shards,
            std::string_view form = "");

  std::string fingerprint() const override;
  SampleContent read(const std::string& id, bool values) const override;
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  struct Place {
    std::size_t tar = 0;
    std::size_t sample = 0;
    std::int64_t trained = 0;  ///< tokens
    std::int64_t length = 0;   ///< tokens before a cut
  };
  using Places = std::map<std::string, Place, std::less<>>;

  /// Makes a sample. `length`, if not null, receives its number of tokens before a cut.
  SampleContent make(const Place& place, bool values, WordCache& cache, std::int64_t* length = nullptr) const;
  /// Reads a member. For a picture without values it reads only the first bytes, enough to find the picture's
  /// size. `medium` has everything except the bytes.
  MediumContent read_medium(const TarFile& tar, TarMember member, MediumFile medium, bool values) const;
  /// Takes an idle cache or makes one. @see give_back()
  std::unique_ptr<WordCache> take_cache() const;
  void give_back(std::unique_ptr<WordCache> cache) const;
  const Place& place_of(const std::string& id) const;
  void check_tokens() const;

  ModelSpec model_;
  MediaReader media_;
  Tokenizer tokenizer_;
  ChatTokenizer chat_;
  std::vector<TarFile> tars_;
  Places places_;  ///< all samples, by id
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> caches_;  ///< idle caches, 2 MB each
};

}  // namespace dflop
