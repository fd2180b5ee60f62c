#include "traces/dataset/sample_content.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/refuse.hpp"

namespace dflop {
namespace {

/// A SampleBuilder walks through a sample's tokens and builds its content.
class SampleBuilder {
 public:
  SampleBuilder(const ModelSpec& model, std::string place, std::span<const MediumContent> media)
      : architecture_(*model.architecture),
        two_encoders_(model.second.has_value()),
        axes_(model.llm.layer_form().rotary ? model.llm.layer_form().rotary->axes() : 0),
        place_(std::move(place)),
        media_(media) {}

  SampleContent build(std::span<const std::int32_t> ids, std::span<const std::int32_t> labels) {
    if (ids.size() != labels.size())
      refuse_input(place_, "expected one label per token, found {} tokens and {} labels", ids.size(),
                   labels.size());
    TokenSequence& tokens = content_.tokens;
    tokens.rows = static_cast<std::int64_t>(ids.size());
    while (at_ < ids.size()) architecture_.is_medium(ids[at_]) ? add_medium(ids) : add_text(ids[at_]);
    if (next_ < media_.size()) {
      refuse_input(place_, "expected {} runs of media tokens, one for each medium, found {}", media_.size(),
                   next_);
    }
    for (std::size_t i = 0; i < labels.size(); ++i) {
      const bool trained = i + 1 < labels.size() && labels[i + 1] >= 0;
      tokens.targets.push_back(trained ? labels[i + 1] : kNoTarget);
    }
    return std::move(content_);
  }

 private:
  void add_text(std::int32_t id) {
    content_.tokens.ids.push_back(id);
    content_.tokens.id_places.push_back(static_cast<std::int32_t>(at_++));
    content_.tokens.positions.insert(content_.tokens.positions.end(), static_cast<std::size_t>(axes_),
                                     position_);
    if (!std::exchange(repeats_position_, false)) ++position_;
  }

  /// Moves the token before a video with its sound to the position of the token before that.
  void share_position() {
    std::vector<std::int32_t>& positions = content_.tokens.positions;
    if (at_ < 2 || positions.empty()) return;
    const auto axes = static_cast<std::size_t>(axes_);
    for (std::size_t i = positions.size() - axes; i < positions.size(); ++i)
      positions[i] = positions[i - axes];
    --position_;
  }

  void add_medium(std::span<const std::int32_t> ids) {
    if (next_ == media_.size()) {
      refuse_input(place_, "token {}: expected text after all {} media, found a media token", at_,
                   media_.size());
    }
    const MediumContent& medium = media_[next_++];
    check_kind(medium, ids[at_]);
    const std::size_t end = at_ + static_cast<std::size_t>(medium.tokens);
    for (std::size_t i = at_; i < end; ++i) {
      if (i >= ids.size() || ids[i] != expected_id(medium, i - at_, ids[at_])) {
        refuse_input(place_, "token {}: expected a run of {} tokens of medium {}, found {}", at_,
                     medium.tokens, next_ - 1, i - at_);
      }
    }
    const bool has_sound = !medium.heard.empty();
    if (has_sound) share_position();
    for (EncoderSequence sequence : medium.sequences) {
      for (std::int32_t& place : sequence.places) place += static_cast<std::int32_t>(at_);
      content_.sequences.push_back(std::move(sequence));
    }
    for (const std::int32_t newline : medium.newlines) {
      content_.tokens.newlines.push_back(newline + static_cast<std::int32_t>(at_));
    }
    add_positions(medium);
    repeats_position_ = has_sound;
    at_ = end;
  }

  /// Rejects a sound in the place of a picture, and a picture in the place of a sound, if the model takes
  /// both.
  void check_kind(const MediumContent& medium, std::int32_t id) const {
    if (!medium.heard.empty() || medium.sequences.empty()) return;
    const bool is_sound = medium.sequences.front().second;
    if (is_sound == (id == architecture_.audio_token) || !two_encoders_) return;
    refuse_input(place_, "medium {}: expected a {}, as the placeholder in the text says, found a {}",
                 next_ - 1, is_sound ? "picture" : "sound", is_sound ? "sound" : "picture");
  }

  /// Returns the id of a medium's token number `place`. All are like the first one, except in a video with
  /// its sound.
  std::int64_t expected_id(const MediumContent& medium, std::size_t place, std::int32_t first) const {
    if (medium.heard.empty()) return first;
    return medium.heard[place] ? architecture_.audio_token : architecture_.video_token;
  }

  void add_positions(const MediumContent& medium) {
    std::vector<std::int32_t>& positions = content_.tokens.positions;
    if (axes_ == 3) {
      for (const auto& axes : medium.positions) {
        for (const std::int32_t position : axes) positions.push_back(position_ + position);
      }
      position_ += medium.span;
      return;
    }
    for (std::int64_t t = 0; t < medium.tokens; ++t) positions.push_back(position_++);
  }

  const Architecture& architecture_;
  bool two_encoders_;
  int axes_;
  std::string place_;
  std::span<const MediumContent> media_;
  SampleContent content_;
  std::size_t at_ = 0;
  std::size_t next_ = 0;  ///< medium
  std::int32_t position_ = 0;
  bool repeats_position_ = false;  ///< the next two text tokens share a position
};

/// Returns the number of attention pairs of a sequence as the mean over the encoder's layers: the sum of its
/// windows' squared lengths, or its own squared length.
std::int64_t attention_pairs(const ModelSpec& model, const EncoderSequence& sequence) {
  const std::int64_t whole = sequence.rows * sequence.rows;
  if (sequence.second) return whole;
  const std::vector<bool> windowed = model.encoder.layer_form().windowed;
  const auto in_windows = std::count(windowed.begin(), windowed.end(), true);
  if (in_windows == 0) return whole;
  std::int64_t windows = 0;
  for (std::size_t w = 1; w < sequence.windows.size(); ++w) {
    const std::int64_t rows = sequence.windows[w] - sequence.windows[w - 1];
    windows += rows * rows;
  }
  const std::int64_t layers = model.encoder.layers;
  return (in_windows * windows + (layers - in_windows) * whole + layers / 2) / layers;
}

}  // namespace

SampleContent make_content(const ModelSpec& model, const std::string& place,
                           std::span<const std::int32_t> ids, std::span<const std::int32_t> labels,
                           std::span<const MediumContent> media) {
  return SampleBuilder(model, place, media).build(ids, labels);
}

Sample shape_of(const ModelSpec& model, const std::string& id, const SampleContent& content) {
  Sample sample;
  sample.id = id;
  std::int64_t text = std::ssize(content.tokens.ids);
  for (const EncoderSequence& sequence : content.sequences) {
    std::vector<EncoderSequences>& groups = sample.encoder_sequences;
    EncoderSequences group{0, sequence.rows, attention_pairs(model, sequence), sequence.second};
    if (!groups.empty()) group.count = groups.back().count;
    if (groups.empty() || group != groups.back()) {
      group.count = 0;
      groups.push_back(group);
    }
    ++groups.back().count;
  }
  sample.llm_tokens = content.tokens.rows;
  sample.untrained_tokens = sample.llm_tokens - trained_tokens(content.tokens);
  sample.encoder_output_tokens = content.tokens.rows - text;
  if (!content.sequences.empty()) {
    const bool sees = std::ranges::any_of(content.sequences, [&](const EncoderSequence& sequence) {
      return !sequence.second && model.front().kind == FrontKind::patches;
    });
    sample.modality = sees ? Modality::image : Modality::audio;
  }
  return sample;
}

SampleContent in_precision(SampleContent content, DType dtype) {
  for (EncoderSequence& sequence : content.sequences) sequence.values = sequence.values.as(dtype);
  return content;
}

std::int64_t trained_tokens(const TokenSequence& tokens) {
  return std::ssize(tokens.targets) - std::count(tokens.targets.begin(), tokens.targets.end(), kNoTarget);
}

void StoredContents::keep(const std::string& id, SampleContent content) {
  auto shared = std::make_shared<const SampleContent>(std::move(content));
  const std::lock_guard lock(mutex_);
  kept_[id] = std::move(shared);
}

void StoredContents::drop(const std::string& id) {
  const std::lock_guard lock(mutex_);
  kept_.erase(id);
}

std::shared_ptr<const SampleContent> StoredContents::find(const Sample& sample) const {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find(sample.id);
  if (found == kept_.end()) throw Error(ErrorKind::internal, "sample '" + sample.id + "' has no content");
  return found->second;
}

std::shared_ptr<const EncoderSequence> StoredContents::encoder(const Sample& sample, std::int64_t sequence,
                                                               bool values) const {
  const auto kept = find(sample);
  const EncoderSequence& one = kept->sequences.at(static_cast<std::size_t>(sequence));
  if (values && one.values.empty() && one.rows > 0)
    throw Error(ErrorKind::internal, "sample '" + sample.id + "' was kept without what the encoder sees");
  return {kept, &one};
}

std::shared_ptr<const TokenSequence> StoredContents::tokens(const Sample& sample) const {
  const auto kept = find(sample);
  return {kept, &kept->tokens};
}

std::int64_t StoredContents::trained_tokens(const Sample& sample) const {
  return dflop::trained_tokens(find(sample)->tokens);
}

}  // namespace dflop
