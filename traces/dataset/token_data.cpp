#include "traces/dataset/token_data.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <span>

#include "core/refuse.hpp"
#include "core/support/random.hpp"
#include "traces/shards/shard_list.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kLongestSample = 1'000'000;  // rows, if the model has no limit

std::size_t longest_sample(const ModelSpec& model, std::int64_t sequence_length) {
  if (sequence_length > 0) return static_cast<std::size_t>(sequence_length);
  return static_cast<std::size_t>(model.max_tokens > 0 ? model.max_tokens : kLongestSample);
}

}  // namespace

TokenData::File::File(const std::string& prefix, std::int64_t vocabulary, std::size_t first_sample)
    : tokens(prefix, vocabulary),
      name(std::filesystem::path(prefix).filename().string()),
      number(first_sample) {}

TokenData::TokenData(const ModelSpec& model, const std::string& shards, std::int64_t sequence_length)
    : model_(model), longest_(longest_sample(model, sequence_length)), is_packed_(sequence_length > 0) {
  for (const std::string& prefix : expand_prefixes(shards)) {
    const File& file = files_.emplace_back(prefix, model.llm.vocabulary, samples_.size());
    if (const auto [known, is_new] = by_name_.emplace(file.name, &file); !is_new) {
      refuse_input(file.tokens.index_path(), "expected files with different names, found '{}' again, in {}",
                   file.name, known->second->tokens.index_path());
    }
    is_packed_ ? add_packed(file) : add_documents(file);
    if (file.tokens.has_modes() && note_.empty())
      note_ = file.tokens.index_path() + " has modes of sequences (multimodal=True), which dflop ignores";
  }
}

void TokenData::add_sample(const File& file, const Place& place, std::size_t rows) {
  Sample sample;
  sample.id = fmt::format("{}/{}", file.name, samples_.size() - file.number);
  sample.llm_tokens = static_cast<std::int64_t>(rows);
  samples_.push_back(std::move(sample));
  places_.push_back(place);
}

void TokenData::add_packed(const File& file) {
  std::size_t left = 0;  // tokens from the place on
  for (std::size_t s = 0; s < file.tokens.size(); ++s) left += file.tokens.length(s);
  for (Place place; left > 1;) {
    const std::size_t rows = std::min(longest_, left - 1);
    while (place.token >= file.tokens.length(place.sequence))  // documents may be shorter than samples
      place = {place.sequence + 1, place.token - file.tokens.length(place.sequence)};
    add_sample(file, place, rows);
    place.token += rows;
    left -= rows;
  }
}

void TokenData::add_documents(const File& file) {
  for (std::size_t s = 0; s < file.tokens.size(); ++s) {
    const std::size_t length = file.tokens.length(s);
    if (length < 2) {
      left_out_.push_back({fmt::format("{}/document {}", file.name, s),
                           fmt::format("{}: document {} has {} tokens, but the first token is not a target",
                                       file.tokens.index_path(), s, length)});
    }
    for (std::size_t token = 0; token + 1 < length; token += longest_)
      add_sample(file, {s, token}, std::min(longest_, length - 1 - token));
  }
}

std::string TokenData::fingerprint() const {
  std::string text = fmt::format("{} {}\n", is_packed_ ? "packed" : "documents", longest_);
  for (const File& file : files_)
    text += fmt::format("{} {:016x}\n", file.name, stable_hash(file.tokens.index_bytes()));
  return fmt::format("{:016x}", stable_hash(text));
}

SampleContent TokenData::read(const std::string& id, bool /*values*/) const {
  const std::string_view all = id;
  const std::size_t slash = std::min(id.rfind('/'), id.size());
  const auto file = by_name_.find(all.substr(0, slash));
  const std::string_view digits = all.substr(std::min(slash + 1, id.size()));
  std::size_t number = samples_.size();
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (file == by_name_.end() || number >= samples_.size() - file->second->number)
    throw Error(ErrorKind::internal, "sample '" + id + "' is in no file of token ids");
  number += file->second->number;
  const MegatronFile& tokens = file->second->tokens;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(samples_[number].llm_tokens) + 1);
  std::span<std::int32_t> left = ids;
  for (Place at = places_[number]; !left.empty(); at = {at.sequence + 1, 0}) {
    const std::size_t count = std::min(left.size(), tokens.length(at.sequence) - at.token);
    tokens.read(at.sequence, at.token, left.first(count));
    for (std::size_t i = 0; i < count; ++i) {
      if (!model_.architecture->is_medium(left[i])) continue;
      refuse_input(
          tokens.place_of(at.sequence, at.token + i),
          "expected ids of text, because there are no pictures or sounds next to them, found {}, which "
          "stands for a part of a picture or sound",
          left[i]);
    }
    left = left.subspan(count);
  }
  const std::int32_t last = ids.back();  // only a target
  ids.pop_back();
  SampleContent content = make_content(model_, "sample '" + id + "'", ids, ids, {});
  content.tokens.targets.back() = last;
  return content;
}

}  // namespace dflop
