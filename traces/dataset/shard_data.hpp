// ShardData is a Dataset of conversations with pictures, sounds or videos, in WebDataset tars or JSON lists,
// as one model reads them.
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
#include "traces/dataset/sample_source.hpp"
#include "traces/tokens/chat.hpp"
#include "traces/tokens/tokenizer.hpp"

namespace dflop {

/// A UsualChatForm is the default chat form of a model: one of chat_forms().
struct UsualChatForm {
  std::string_view name;
  std::string note = "";  ///< why the choice is doubtful; empty if it is certain
};

/// Returns the chat form of a model's family, or of its LLM for LLaVA. Qwen2 and Qwen2.5 have the same
/// architecture but different system prompts. `chat_template`, from read_chat_template(), tells them apart.
/// If it is empty, the form is Qwen2.5's; if it has neither system prompt, the form is chatml. The template
/// also says whether a Qwen3 can think.
UsualChatForm usual_chat_form(const ModelSpec& model, std::string_view chat_template);

class ShardData final : public Dataset {
 public:
  /// Reads the headers of all tars and pictures, and all conversations. This gives all sample shapes; nothing
  /// is decoded, unless the options ask for it. If bad samples are skipped, each picture and sound is decoded
  /// once, so that the samples of the run are known before its first step. A conversation longer than the
  /// model's longest sequence is cut. A conversation is left out if its media would be cut, if it has a sound
  /// of more than 30 s, or if none of its tokens is trained. A sample's id is the file name of its tar or
  /// list, and its key or number there.
  /// @param folder  a transformers folder. Reads tokenizer.json, the processor's settings with
  ///                read_model_processor() and, for Qwen2's and Qwen3's family, the template
  /// @param shards  tars or lists, for open_source()
  /// @throws Error (input) that names the tar and member, or the list and line, for damaged or missing data,
  /// and for more bad samples than allowed
  ShardData(const ModelSpec& model, const std::string& folder, const std::string& shards,
            const DatasetOptions& options = {});

  std::string fingerprint() const override;
  SampleContent read(const std::string& id, bool values) const override;
  std::int64_t trained_tokens(const Sample& sample) const override;

 private:
  struct Place {
    std::size_t sample = 0;    ///< in the source
    std::int64_t trained = 0;  ///< tokens
    std::int64_t length = 0;   ///< tokens before a cut
  };
  using Places = std::map<std::string, Place, std::less<>>;

  /// A Depth says how much of media is read: their shapes; their shapes, after decoding them to see whether
  /// that is possible; or their values.
  enum class Depth : std::uint8_t { shape, checked, values };

  /// A Made sample is known to have these properties after make().
  struct Made {
    std::int64_t length = 0;  ///< tokens before a cut
    bool has_video = false;
    bool assumes_rate = false;  ///< the frame rate of a video is not given
  };

  /// Makes a sample. `made`, if not null, receives its properties.
  SampleContent make(std::size_t sample, Depth depth, WordCache& cache, Made* made = nullptr) const;
  /// Reads a medium. For the shape of a picture it reads only the first bytes, enough to find the picture's
  /// size.
  MediumContent read_medium(const StoredMedium& stored, bool is_alone, Depth depth) const;
  std::vector<MediumPart> read_video(const StoredMedium& stored, Depth depth) const;
  /// Rejects a video if its token in the tokenizer is not the token in config.json.
  void check_video_token(const std::string& where) const;
  /// Takes an idle cache or makes one. @see give_back()
  std::unique_ptr<WordCache> take_cache() const;
  void give_back(std::unique_ptr<WordCache> cache) const;
  const Place& place_of(const std::string& id) const;

  ModelSpec model_;
  ExifRule exif_;
  MediaReader media_;
  Tokenizer tokenizer_;
  ChatTokenizer chat_;
  std::unique_ptr<const SampleSource> source_;
  Places places_;  ///< all samples, by id
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<WordCache>> caches_;  ///< idle caches, 2 MB each
};

}  // namespace dflop
