#include "backend/model/microbatch.hpp"

#include <optional>

#include "core/error.hpp"

namespace dflop {
namespace {

template <typename Value>
void append(std::vector<Value>& values, const std::vector<Value>& more) {
  values.insert(values.end(), more.begin(), more.end());
}

/// Appends numbers and adds `offset` to those that are not negative.
void append_from(std::vector<std::int32_t>& numbers, const std::vector<std::int32_t>& more,
                 std::int64_t offset) {
  for (const std::int32_t number : more) {
    numbers.push_back(number < 0 ? number : number + static_cast<std::int32_t>(offset));
  }
}

}  // namespace

BatchContent::BatchContent(const Plan& plan, const ModelSpec& model, std::span<const Sample> samples,
                           const Assignment& assignment, const Contents& contents)
    : plan_(plan),
      model_(model),
      samples_(samples),
      bins_(samples_of_bins(plan, assignment)),
      contents_(contents) {
  require_live(model, samples);
  std::int64_t trained = 0;
  for (const Sample& sample : samples) trained += contents.trained_tokens(sample);
  if (trained > 0) token_weight_ = 1.0 / static_cast<double>(trained);
}

namespace {

/// A Packer appends sequences to the input of one of a model's encoders.
class Packer {
 public:
  Packer(const ConnectorForm& form, int joined, int front_values)
      : selects_(form.selects), joined_(joined), front_values_(front_values) {}

  void add(const EncoderSequence& one, bool values, EncoderInput& input) {
    const std::int64_t first = input.rows();
    input.add_sequence(one.rows, one.positions, one.windows);
    append_from(input.value_rows, one.value_rows, input.value_offsets.back());
    append(input.table_rows, one.table_rows);
    input.table_mix.append(one.table_mix, 0);
    if (values) {
      input.values.push_back(one.values);
      const std::int64_t patches = one.values.size() / front_values_;
      input.value_offsets.push_back(static_cast<std::int32_t>(input.value_offsets.back() + patches));
    }
    input.select.append(one.select, first);
    input.sent.append(one.sent, connected_);
    selected_ += selects_ ? one.select.rows() : one.rows;
    connected_ = selected_ / joined_;
  }

 private:
  bool selects_;
  int joined_;
  int front_values_;
  std::int64_t selected_ = 0;
  std::int64_t connected_ = 0;
};

Packer packer_of(const ModelSpec& model) {
  return {model.connector_form(), model.joined_rows(), model.front().values};
}

}  // namespace

EncoderInput BatchContent::encoder(int microbatch, int encoder_dp, TakenValues values) const {
  EncoderInput input;
  input.rows_to.assign(static_cast<std::size_t>(plan_.llm.dp), 0);
  Packer first = packer_of(model_);
  std::optional<Packer> second;
  if (model_.second) {
    second = packer_of(model_.of_second());
    input.second = std::make_shared<EncoderInput>();
  }
  std::int32_t sent = 0;
  const int copies = encoder_copies(plan_);
  if (copies > 1) input.rows_of_copies.assign(static_cast<std::size_t>(copies), 0);
  for_each_piece(plan_, model_, samples_, bins_, microbatch, [&](const EncoderPiece& piece) {
    const Sample& sample = samples_[static_cast<std::size_t>(piece.sample)];
    if (copies > 1 && piece.encoder_dp / copies == encoder_dp / copies) {
      input.rows_of_copies[static_cast<std::size_t>(piece.encoder_dp % copies)] +=
          contents_.encoder(sample, piece.sequence, false)->sent.rows();
    }
    if (piece.encoder_dp != encoder_dp) return;
    const bool takes = values.of(piece.second);
    const std::shared_ptr<const EncoderSequence> one = contents_.encoder(sample, piece.sequence, takes);
    EncoderInput& into = piece.second ? *input.second : input;
    (piece.second ? *second : first).add(*one, takes, into);
    for (std::int64_t row = 0; second && row < one->sent.rows(); ++row) into.sent_places.push_back(sent++);
    input.rows_to[static_cast<std::size_t>(piece.llm_dp)] += one->sent.rows();
  });
  return input;
}

LlmInput BatchContent::llm(int microbatch, int llm_dp) const {
  LlmInput input;
  input.rows_from.assign(static_cast<std::size_t>(plan_.encoder.dp), 0);
  std::vector<std::int64_t> first_rows(samples_.size(), 0);
  for (const std::int32_t i : bins_[static_cast<std::size_t>(microbatch) * plan_.llm.dp + llm_dp]) {
    const std::shared_ptr<const TokenSequence> shared =
        contents_.tokens(samples_[static_cast<std::size_t>(i)]);
    const TokenSequence& one = *shared;
    const std::int64_t first = input.rows();
    first_rows[static_cast<std::size_t>(i)] = first;
    input.add_sequence(one.rows, one.positions, {});
    append(input.text_ids, one.ids);
    append_from(input.text_rows, one.id_places, first);
    append_from(input.newline_rows, one.newlines, first);
    append(input.targets, one.targets);
  }
  for_each_piece(plan_, model_, samples_, bins_, microbatch, [&](const EncoderPiece& piece) {
    if (piece.llm_dp != llm_dp) return;
    const auto sample = static_cast<std::size_t>(piece.sample);
    const std::shared_ptr<const EncoderSequence> sequence =
        contents_.encoder(samples_[sample], piece.sequence, false);
    const std::vector<std::int32_t>& places = sequence->places;
    for (const std::int32_t place : places) {
      if (place >= 0) {
        input.encoded.push_back(static_cast<std::int32_t>(input.encoder_rows));
        input.encoded_rows.push_back(place + static_cast<std::int32_t>(first_rows[sample]));
      }
      ++input.encoder_rows;
    }
    input.rows_from[static_cast<std::size_t>(piece.encoder_dp)] += static_cast<std::int64_t>(places.size());
  });
  return input;
}

}  // namespace dflop
