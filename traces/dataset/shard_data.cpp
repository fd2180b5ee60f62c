#include "traces/dataset/shard_data.hpp"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>

#include "core/refuse.hpp"
#include "core/support/parallel.hpp"
#include "core/support/random.hpp"
#include "traces/dataset/special_tokens.hpp"
#include "traces/dataset/stored_file.hpp"
#include "traces/dataset/video_source.hpp"
#include "traces/tokens/chat_template.hpp"

namespace dflop {
namespace {

constexpr std::size_t kIndexed = 64;  // samples that a thread indexes at a time

/// A NothingToTrain is thrown if a sample's media or all its answers are beyond the model's longest sequence,
/// or if it has no answer.
struct NothingToTrain {
  std::string why;
};

/// A LeftOut collects samples that are left out, from several threads.
class LeftOut {
 public:
  void add(std::size_t sample, LeftOutSample why) {
    const std::scoped_lock lock(mutex_);
    found_.emplace(sample, std::move(why));
  }

  /// Returns the samples in the order of their numbers.
  std::vector<LeftOutSample> take() {
    std::vector<LeftOutSample> all;
    for (auto& [number, sample] : found_) all.push_back(std::move(sample));
    return all;
  }

 private:
  std::mutex mutex_;
  std::map<std::size_t, LeftOutSample> found_;
};

/// Returns a conversation in which each medium is replaced by its parts, with the words around them.
Conversation with_parts(Conversation conversation, std::span<const std::vector<MediumPart>> parts) {
  std::size_t next = 0;  // medium
  for (ChatTurn& turn : conversation.turns) {
    ChatTurn whole = turn;
    whole.words = {turn.words.front()};
    whole.media.clear();
    for (std::size_t m = 0; m < turn.media.size(); ++m) {
      for (const MediumPart& part : parts[next++]) {
        whole.words.back() += part.words;
        whole.media.push_back(turn.media[m]);
        whole.words.push_back(part.words_after);
      }
      whole.words.back() += turn.words[m + 1];
    }
    turn = std::move(whole);
  }
  return conversation;
}

}  // namespace

UsualChatForm usual_chat_form(const ModelSpec& model, std::string_view chat_template) {
  const auto says = [&](std::string_view words) {
    return chat_template.find(words) != std::string_view::npos;
  };
  const ModelFamily family = model.architecture->family;
  const bool is_llava = family == ModelFamily::llava || family == ModelFamily::llava_next;
  // Llama 2's vocabulary, which Vicuna shares, has 32,000 tokens, and Llama 3's 128,256.
  const bool is_llama2 = model.llm.name == "llama" && model.llm.vocabulary < 100'000;
  if (is_llava && (is_llama2 || (family == ModelFamily::llava && model.llm.name == "mistral")))
    return {"vicuna"};
  if (model.llm.name == "mistral") return {"mistral"};
  if (model.llm.name == "llama") return {"llama3"};
  if (is_llava || family == ModelFamily::internvl || family == ModelFamily::qwen3_vl) return {"chatml"};
  if (family == ModelFamily::qwen3) return {says("<think>") ? "qwen3" : "chatml"};
  if (family == ModelFamily::qwen2_5_omni)
    return {says("You are a helpful assistant.") ? "qwen2" : "qwen2.5-omni"};
  if (family != ModelFamily::qwen2) return {"qwen2"};
  if (chat_template.empty() || says("You are Qwen, created by Alibaba Cloud.")) return {"qwen2.5"};
  if (says("You are a helpful assistant.")) return {"qwen2"};
  return {
      "chatml",
      "the folder's chat template differs from the templates of Qwen2 and Qwen2.5: the form is chatml, which "
      "adds no system turn by itself; --chat names another form, and conversations may have their own "
      "system turns"};
}

/// Returns the requested form, or the usual one; `note` then says why it is doubtful.
std::string_view chosen_form(const ModelSpec& model, const std::string& folder, std::string_view form,
                             std::string& note) {
  if (!form.empty()) return form;
  const ModelFamily family = model.architecture->family;
  const bool has_variants =
      family == ModelFamily::qwen2 || family == ModelFamily::qwen3 || family == ModelFamily::qwen2_5_omni;
  const UsualChatForm usual = usual_chat_form(model, has_variants ? read_chat_template(folder) : "");
  note = usual.note;
  return usual.name;
}

ShardData::ShardData(const ModelSpec& model, const std::string& folder, const std::string& shards,
                     const DatasetOptions& options)
    : model_(model),
      exif_(options.exif),
      media_(model, folder, options.exif),
      tokenizer_(folder + "/tokenizer.json"),
      chat_(tokenizer_, chosen_form(model, folder, options.chat_form, note_), media_family(model)) {
  Architecture& of = *model_.architecture;
  if (of.family == ModelFamily::internvl && of.image_token < 0) {
    of.image_token = tokenizer_.id_of("<IMG_CONTEXT>").value_or(-1);  // OpenGVLab's configs do not contain it
  }
  require_special_tokens(model_, tokenizer_, folder);
  source_ = open_source(shards, options.media_root);
  std::vector<Places::iterator> all;
  for (std::size_t i = 0; i < source_->size(); ++i) {
    const std::string& file = source_->file(i);
    const std::string name = std::filesystem::path(file).filename().string();
    const auto [place, is_new] = places_.emplace(name + "/" + source_->key(i), Place{i});
    if (!is_new) {
      refuse_input(file, "sample '{}' occurs twice: also in {}", source_->key(i),
                   source_->file(place->second.sample));
    }
    all.push_back(place);
  }
  std::vector<std::optional<Sample>> found(all.size());
  LeftOut left_out;
  const std::size_t decoded = options.decoded.value_or(options.skip_bad ? all.size() : 0);
  std::mutex opening;
  std::size_t opened = 0;
  std::atomic<std::int64_t> assumed{0};
  parallel_for((all.size() + kIndexed - 1) / kIndexed, [&](std::size_t piece) {
    std::unique_ptr<WordCache> cache = take_cache();
    const std::size_t end = std::min(all.size(), (piece + 1) * kIndexed);
    for (std::size_t i = piece * kIndexed; i < end; ++i) {
      Place& place = all[i]->second;
      const std::string& id = all[i]->first;
      try {
        const Depth depth = i < decoded ? Depth::checked : Depth::shape;
        Made made;
        const SampleContent content = make(place.sample, depth, *cache, &made);
        place.length = made.length;
        place.trained = dflop::trained_tokens(content.tokens);
        if (place.trained == 0) throw NothingToTrain{id + ": has no token to train on"};
        found[i] = shape_of(model_, id, content);
        if (made.has_video) found[i]->modality = Modality::video;
        if (made.assumes_rate) ++assumed;
      } catch (const NothingToTrain& problem) {
        left_out.add(i, {id, problem.why, false});
      } catch (const UntakenLength& problem) {
        left_out.add(i, {id, problem.why, false});
      } catch (const Error& error) {
        if (!options.skip_bad || error.kind() != ErrorKind::input) throw;
        left_out.add(i, {id, error.what(), true});
      }
    }
    give_back(std::move(cache));
    if (!options.progress) return;
    const std::scoped_lock lock(opening);
    opened += end - piece * kIndexed;
    options.progress(static_cast<std::int64_t>(opened), std::ssize(all));
  });
  left_out_ = left_out.take();
  if (assumed > 0) {
    assumption_ = fmt::format(
        "{} frames per second in the videos of {} samples without key 'fps' or 'sample_fps', whose frames are "
        "pictures",
        kUsualFrameRate, assumed.load());
  }
  cut_.longest = model_.max_tokens;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i]) continue;
    cut_.take(all[i]->second.length);
    samples_.push_back(*std::move(found[i]));
  }
}

std::string ShardData::fingerprint() const {
  const std::string print = source_->fingerprint();
  return exif_ == ExifRule::upright ? print : print + " without EXIF";
}

MediumContent ShardData::read_medium(const StoredMedium& stored, bool is_alone, Depth depth) const {
  const StoredFile file(stored);
  const auto shape = [&](const std::string& bytes) { return media_.shape({bytes, stored.place, is_alone}); };
  if (depth == Depth::shape) return file.of_headers(shape);
  const std::string bytes = file.read(file.size());
  if (depth == Depth::values) return media_.read({bytes, stored.place, is_alone});
  MediumContent content = shape(bytes);  // rejects sounds that are too long before they are decoded
  media_.check({bytes, stored.place, is_alone});
  return content;
}

std::vector<MediumPart> ShardData::read_video(const StoredMedium& stored, Depth depth) const {
  const std::unique_ptr<const VideoSource> video = open_video(stored, exif_);
  std::vector<MediumPart> parts = media_.video(*video, depth == Depth::values);
  if (depth == Depth::checked) media_.check_video(*video);
  return parts;
}

void ShardData::check_video_token(const std::string& where) const {
  const std::string_view token = chat_.token_of(ChatMedium::video);
  const std::int64_t expected = model_.architecture->video_token;
  const std::optional<std::int32_t> id = tokenizer_.id_of(token);
  if (expected >= 0 && id && *id == expected) return;
  refuse_input(
      where,
      "has a video, so {} must have token '{}' with the id that config.json gives videos, {}: found {}",
      tokenizer_.file(), token, expected < 0 ? "which it lacks" : std::to_string(expected),
      id ? std::to_string(*id) : "none");
}

SampleContent ShardData::make(std::size_t sample, Depth depth, WordCache& cache, Made* made) const {
  const std::string where = source_->place(sample);
  StoredSample stored = source_->read(sample);
  const std::vector<ChatMedium> kinds = stored.conversation.media();
  const bool has_video = std::ranges::find(kinds, ChatMedium::video) != kinds.end();
  const bool has_others = std::ranges::count(kinds, ChatMedium::video) + 1 != std::ssize(kinds);
  std::vector<std::vector<MediumPart>> parts;
  for (std::size_t m = 0; m < kinds.size(); ++m) {
    const StoredMedium& medium = stored.media[m];
    if (kinds[m] == ChatMedium::video) {
      parts.push_back(read_video(medium, depth));
      if (made != nullptr && medium.rate.fps == 0 && !medium.frames.empty()) made->assumes_rate = true;
    } else {
      parts.emplace_back().push_back({"", read_medium(medium, !has_others, depth)});
    }
  }
  if (has_video) check_video_token(where);
  std::vector<MediumContent> media;
  std::vector<std::int64_t> counts;
  stored.conversation = with_parts(std::move(stored.conversation), parts);
  for (std::vector<MediumPart>& of_one : parts) {
    for (MediumPart& part : of_one) {
      counts.push_back(part.content.tokens);
      media.push_back(std::move(part.content));
    }
  }
  ChatTokens tokens = chat_.encode(stored.conversation, counts, cache, where);
  if (made != nullptr) {
    made->length = std::ssize(tokens.ids);
    made->has_video = has_video;
  }
  if (model_.max_tokens > 0 && std::ssize(tokens.ids) > model_.max_tokens) {
    try {
      tokens.cut(static_cast<std::size_t>(model_.max_tokens), where);
    } catch (const Error& error) {
      throw NothingToTrain{error.what()};
    }
  }
  std::vector<std::int32_t> labels(tokens.ids.size(), kNoTarget);
  for (std::size_t i = 0; i < labels.size(); ++i) {
    if (tokens.is_trained[i] != 0) labels[i] = tokens.ids[i];
  }
  return make_content(model_, where, tokens.ids, labels, media);
}

std::unique_ptr<WordCache> ShardData::take_cache() const {
  const std::scoped_lock lock(mutex_);
  if (caches_.empty()) return std::make_unique<WordCache>();
  std::unique_ptr<WordCache> cache = std::move(caches_.back());
  caches_.pop_back();
  return cache;
}

void ShardData::give_back(std::unique_ptr<WordCache> cache) const {
  const std::scoped_lock lock(mutex_);
  caches_.push_back(std::move(cache));
}

const ShardData::Place& ShardData::place_of(const std::string& id) const {
  const auto place = places_.find(id);
  if (place == places_.end()) throw Error(ErrorKind::internal, "sample '" + id + "' is in no shard");
  return place->second;
}

SampleContent ShardData::read(const std::string& id, bool values) const {
  const Place& place = place_of(id);
  std::unique_ptr<WordCache> cache = take_cache();
  SampleContent content = make(place.sample, values ? Depth::values : Depth::shape, *cache);
  give_back(std::move(cache));
  return content;
}

std::int64_t ShardData::trained_tokens(const Sample& sample) const {
  return place_of(sample.id).trained;
}

}  // namespace dflop
