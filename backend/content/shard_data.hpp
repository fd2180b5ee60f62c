// ShardData are a data set of WebDataset tars as one model reads it: conversations with pictures or sounds.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backend/content/dataset.hpp"
#include "backend/content/media_reader.hpp"
#include "core/model.hpp"
#include "core/sample.hpp"
#include "traces/shards/tar.hpp"
#include "traces/tokens/chat.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {

/// A UsualChatForm is one of chat_forms().
struct UsualChatForm {
  std::string_view name;
  std::string note = "";  ///< what is doubtful about it; empty: nothing
};

/// Returns the chat form in which a model's family talks. Qwen2 and Qwen2.5 have one architecture, and in
/// their chat templates other words of the system: `chat_template`, as read_chat_template() gives it, tells
/// them apart; without one it is Qwen2.5's.
UsualChatForm usual_chat_form(const ModelSpec& model, std::string_view chat_template);

class ShardData final : public Dataset {
 public:
  /// Reads the headers of all tars and of all pictures, and all conversations: what samples look like is then
  /// known, and nothing is decoded. A sample has one member .json, in a form of parse_conversation(), and its
  /// media: .jpg, .jpeg, .png or .wav. Several are in the order of their placeholders, by the numbers of
  /// 000123.0.jpg and 000123.10.jpg or, without, as they stand in the tar. Other members are passed over. A
  /// conversation that is longer than the model's longest is cut; one whose media would be cut, which has a
  /// sound of more than 30 s, or nothing that is learned, is left out. Ids of samples are the tar's file name
  /// and the sample's key.
  /// @param folder  of transformers. Read are its tokenizer.json, its processor's settings as
  ///                read_model_processor() does and, of Qwen2's family, its chat template
  /// @param shards  as expand_shards() takes them
  /// @param form    one of chat_forms(); empty: the usual one
  /// @throws Error (input) with the tar, or the tar and the sample's member, for what is damaged or missing
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

  /// Makes a sample. `length`, where given, receives its tokens before a cut.
  SampleContent make(const Place& place, bool values, WordCache& cache, std::int64_t* length = nullptr) const;
  /// Reads a member, of a picture without values as few of its first bytes as tell its size. `medium` has all
  /// but its bytes.
  MediumContent read_medium(const TarFile& tar, TarMember member, MediumFile medium, bool values) const;
  /// Takes a cache that no thread uses, or makes one. @see give_back()
  std::unique_ptr<WordCache> take_cache() const;
  void give_back(std::unique_ptr<WordCache> cache) const;
  const Place& place_of(const std::string& id) const;
  void check_tokens() const;

  ModelSpec model_;
  MediaReader media_;
  Tokenizer tokenizer_;
  ChatTokenizer chat_;
  std::vector<TarFile> tars_;
  Places places_;  ///< of all samples, by id
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> caches_;  ///< that no thread uses; each has 2 MB
};

}  // namespace dflop
