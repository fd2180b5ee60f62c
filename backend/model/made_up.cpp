#include "backend/model/made_up.hpp"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "core/error.hpp"
#include "core/program/encoder_share.hpp"
#include "core/program/loss_weight.hpp"
#include "core/support/random.hpp"

namespace dflop {
namespace {

/// Returns random numbers for one part of a sample. The zero byte makes "a" + "b" differ from "ab".
Random random_of(std::uint64_t seed, const Sample& sample, const std::string& part) {
  return Random(seed, stable_hash(sample.id + '\0' + part));
}

/// Returns the group of a sample's sequence, and calls before(group, count) for each group with `count`
/// earlier sequences.
template <typename Before>
const EncoderSequences& group_of(const Sample& sample, std::int64_t sequence, const Before& before) {
  std::int64_t left = sequence;
  std::int64_t all = 0;
  for (const EncoderSequences& group : sample.encoder_sequences) {
    all += group.count;
    before(group, std::clamp<std::int64_t>(left, 0, group.count));
    if (left >= 0 && left < group.count) return group;
    left -= group.count;
  }
  throw Error(ErrorKind::internal, "sample '" + sample.id + "': expected an encoder sequence from 0 to " +
                                       std::to_string(all - 1) + ", found " + std::to_string(sequence));
}

/// Returns a value of row class + 1 of the Walsh-Hadamard matrix of order 16, repeated three times. The rows
/// are orthogonal, and none is constant.
float pattern(int image_class, int value) {
  const auto both = static_cast<unsigned>(image_class + 1) & static_cast<unsigned>(value % 16);
  return std::popcount(both) % 2 == 0 ? 1.0F : -1.0F;
}

}  // namespace

int image_class(std::uint64_t seed, const Sample& sample) {
  if (sample.encoder_sequences.empty()) return 0;
  return static_cast<int>(random_of(seed, sample, "class").below(kImageClasses));
}

std::vector<float> made_up_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence,
                                  std::int64_t patches, int values) {
  const int shown = image_class(seed, sample);
  Random random = random_of(seed, sample, "pixels " + std::to_string(sequence));
  std::vector<float> pixels;
  pixels.reserve(static_cast<std::size_t>(patches * values));
  for (std::int64_t patch = 0; patch < patches; ++patch) {
    for (int value = 0; value < values; ++value) {
      const auto noise = static_cast<float>(random.uniform() - 0.5);
      pixels.push_back(pattern(shown, value) + noise);
    }
  }
  return pixels;
}

std::vector<float> sequence_pixels(std::uint64_t seed, const Sample& sample, std::int64_t sequence) {
  const EncoderSequences& group = group_of(sample, sequence, [](const EncoderSequences&, std::int64_t) {});
  return made_up_pixels(seed, sample, sequence, group.tokens, kPatchValues);
}

std::vector<std::int32_t> text_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary) {
  const std::int64_t answer = loss_tokens(sample);
  const std::int64_t prompt = text_tokens(sample) - answer;
  const std::int64_t shown = image_class(seed, sample);
  Random random = random_of(seed, sample, "text");
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(prompt + answer));
  for (std::int64_t k = 0; k < prompt; ++k) {
    ids.push_back(static_cast<std::int32_t>(random.below(static_cast<std::uint64_t>(vocabulary))));
  }
  for (std::int64_t k = 0; k < answer; ++k) {
    ids.push_back(static_cast<std::int32_t>((5 * std::int64_t{ids.back()} + 17 * shown + 3) % vocabulary));
  }
  return ids;
}

std::vector<std::int32_t> target_ids(std::uint64_t seed, const Sample& sample, std::int64_t vocabulary) {
  std::vector<std::int32_t> targets(static_cast<std::size_t>(sample.llm_tokens), kNoTarget);
  const std::vector<std::int32_t> ids = text_ids(seed, sample, vocabulary);
  // The text ends the sequence and the answer ends the text, so the last position has no target.
  const std::int64_t answer = loss_tokens(sample);
  std::copy(ids.end() - answer, ids.end(), targets.end() - (answer > 0 ? answer + 1 : 0));
  return targets;
}

namespace {

std::vector<std::int32_t> numbers_to(std::int64_t count) {
  std::vector<std::int32_t> numbers(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<std::int32_t>(i);
  return numbers;
}

/// Returns each row's index, repeated for each axis.
std::vector<std::int32_t> places_on_axes(std::int64_t rows, int axes) {
  std::vector<std::int32_t> positions;
  positions.reserve(static_cast<std::size_t>(rows * axes));
  for (std::int32_t row = 0; row < rows; ++row)
    positions.insert(positions.end(), static_cast<std::size_t>(axes), row);
  return positions;
}

/// Adds `rows` rows that are means of consecutive runs of the `sources` rows. The runs are as equal as
/// possible and have at least one row.
void add_means(RowMix& mix, std::int64_t sources, std::int64_t rows) {
  for (std::int64_t o = 0; o < rows; ++o) {
    const std::int64_t begin = o * sources / rows;
    mix.add_mean(begin, std::max(begin + 1, (o + 1) * sources / rows));
  }
}

/// Returns the offsets of runs of `size` rows; the last run has the remaining rows.
std::vector<std::int32_t> runs_of(std::int64_t rows, std::int64_t size) {
  std::vector<std::int32_t> offsets{0};
  for (std::int64_t row = size; row < rows; row += size) offsets.push_back(static_cast<std::int32_t>(row));
  offsets.push_back(static_cast<std::int32_t>(rows));
  return offsets;
}

}  // namespace

std::shared_ptr<const EncoderSequence> MadeUpContents::encoder(const Sample& sample, std::int64_t sequence,
                                                               bool values) const {
  // The parts of the sample's LLM tokens are differences of one increasing sequence of integers, so they add
  // up to the whole.
  const OutputShares shares(model_, sample);
  std::int64_t share_before = 0;
  const EncoderSequences& group =
      group_of(sample, sequence, [&](const EncoderSequences& earlier, std::int64_t count) {
        share_before += count * shares.of(earlier);
      });
  const ModelSpec& model = group.second && second_ ? *second_ : model_;
  const LayerForm form = model.encoder.layer_form();
  const EncoderFront front = model.front();
  const std::int64_t merge = model.connector.merge;
  EncoderSequence made;
  made.second = group.second;
  made.rows = group.tokens;
  if (form.rotary) made.positions = places_on_axes(made.rows, form.rotary->axes());
  if (!form.windowed.empty()) {
    const std::int64_t side =
        std::int64_t{model.architecture->picture.window} * model.architecture->picture.merge;
    made.windows = runs_of(made.rows, side * side);
  }
  if (front.table > 0) {
    for (std::int64_t row = 0; row < made.rows; ++row) {
      made.table_rows.push_back(static_cast<std::int32_t>(row % front.table));
      if (front.spread_table) made.table_mix.add_mean(row % front.table, row % front.table + 1);
    }
  }
  if (front.class_row) {
    made.value_rows = numbers_to(made.rows);
    for (std::int32_t& row : made.value_rows) --row;
  }
  const std::int64_t class_rows = front.class_row ? 1 : 0;
  const std::int64_t frames = front.kind == FrontKind::sound ? 2 * made.rows : made.rows - class_rows;
  if (values) {
    made.values = HostValues(made_up_pixels(seed_, sample, sequence, frames, front.values)).as(dtype_);
  }
  std::int64_t merged = made.rows - class_rows;
  if (model.connector_form().averages) merged = merged / merge * merge;  // odd last row
  if (merged % merge != 0) {
    throw Error(ErrorKind::input, "sample '" + sample.id + "': " + std::to_string(merged) +
                                      " encoder tokens cannot be merged by " + std::to_string(merge));
  }
  if (model.connector_form().selects) {
    const std::int64_t means = model.connector_form().averages ? merge : 1;
    for (std::int64_t row = class_rows; row + means <= made.rows; row += means) {
      made.select.add_mean(row, row + means);
    }
  }
  const std::int64_t first = sample.encoder_output_tokens * share_before / shares.all();
  const std::int64_t last = sample.encoder_output_tokens * (share_before + shares.of(group)) / shares.all();
  if (merged == 0 && last > first) {
    throw Error(ErrorKind::input, "sample '" + sample.id + "': expected at least " + std::to_string(merge) +
                                      " encoder tokens in a sequence that gives LLM tokens, found " +
                                      std::to_string(made.rows - class_rows));
  }
  add_means(made.sent, merged / merge, last - first);
  for (std::int64_t at = first; at < last; ++at) {
    made.places.push_back(at < sample.llm_tokens ? static_cast<std::int32_t>(at) : -1);
  }
  return std::make_shared<const EncoderSequence>(std::move(made));
}

std::shared_ptr<const TokenSequence> MadeUpContents::tokens(const Sample& sample) const {
  TokenSequence made;
  made.rows = sample.llm_tokens;
  made.ids = text_ids(seed_, sample, model_.llm.vocabulary);
  for (std::int64_t at = std::min(sample.encoder_output_tokens, sample.llm_tokens); at < sample.llm_tokens;
       ++at) {
    made.id_places.push_back(static_cast<std::int32_t>(at));
  }
  made.targets = target_ids(seed_, sample, model_.llm.vocabulary);
  const LayerForm form = model_.llm.layer_form();
  made.positions = places_on_axes(made.rows, form.rotary ? form.rotary->axes() : 1);
  return std::make_shared<const TokenSequence>(std::move(made));
}

std::int64_t MadeUpContents::trained_tokens(const Sample& sample) const {
  return loss_tokens(sample);
}

}  // namespace dflop
