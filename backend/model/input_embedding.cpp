#include "backend/model/input_embedding.hpp"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/model/row_mixer.hpp"

namespace dflop {
namespace {

/// Returns the encoder's rows that a rank holds, without padding rows.
Range own_rows(const RankContext& rank, std::int64_t rows) {
  if (!has_shards(rank)) return {0, rows};
  const std::int64_t held = held_rows(rank, rows);
  const std::int64_t begin = std::min(rows, rank.tp_rank * held);
  return {begin, std::min(rows, begin + held)};
}

/// Uploads the patches [begin, end) of an input, directly from the contents of each sequence.
void upload_patches(const RankContext& rank, Matrix to, const EncoderInput& input, Range patches) {
  for (std::size_t s = 0; s < input.values.size(); ++s) {
    const std::int64_t first = input.value_offsets[s];
    const std::int64_t begin = std::max(patches.begin, first);
    const std::int64_t end = std::min<std::int64_t>(patches.end, input.value_offsets[s + 1]);
    if (begin >= end) continue;
    upload(rank, rows_of(rank, to, begin - patches.begin, end - begin).data, input.values[s],
           (begin - first) * to.columns, (end - begin) * to.columns);
  }
}

std::vector<std::int32_t> zeros(std::int64_t count) {
  return std::vector<std::int32_t>(static_cast<std::size_t>(count), 0);
}

/// Returns the taps of the rows [begin, end), followed by empty rows up to `rows` rows.
RowMix part_of(const RowMix& mix, Range part, std::int64_t rows) {
  RowMix some;
  for (std::int64_t row = part.begin; row < part.begin + rows; ++row) {
    some.add_row();
    if (row >= part.end) continue;
    const auto r = static_cast<std::size_t>(row);
    for (auto tap = static_cast<std::size_t>(mix.begin[r]); tap < static_cast<std::size_t>(mix.end[r]); ++tap)
      some.add_tap(mix.index[tap], mix.weights[tap]);
  }
  return some;
}

/// A PositionTable adds to each row the learned or fixed table row of its position, or a mixture of rows.
class PositionTable {
 public:
  PositionTable(const EncoderFront& front, const std::string& encoder, ParameterStore& store,
                const RankContext& rank)
      : store_(store),
        rank_(rank),
        spread_(front.spread_table),
        table_(front.table > 0 ? &store.find(encoder + ".positions") : nullptr) {}

  void add_to(Tensor& rows, const EncoderInput& input, InputTape& tape) const {
    if (table_ == nullptr) return;
    if (spread_) {
      tape.table_mix = part_of(input.table_mix, own_rows(rank_, input.rows()), rows.rows());
      const RowMixer mixer(rank_, tape.table_mix);
      rank_.kernels.add(rows, mixer(rank_, store_.weight(*table_)));
      return;
    }
    const Range own = own_rows(rank_, input.rows());
    std::vector<std::int32_t> ids(static_cast<std::size_t>(rows.rows()), -1);  // -1: a padding row
    std::copy(input.table_rows.begin() + own.begin, input.table_rows.begin() + own.end, ids.begin());
    tape.table_rows = IndexTensor(rank_, std::move(ids));
    Tensor positions(rank_, rows.rows(), rows.columns());
    rank_.kernels.embedding(positions, store_.weight(*table_), tape.table_rows, 0);
    rank_.kernels.add(rows, positions);
  }
  void backward(const InputTape& tape) const {
    if (table_ == nullptr || table_->frozen) return;
    if (spread_) return spread_backward(tape);
    rank_.kernels.embedding_backward(store_.gradient_to_add_to(rank_, *table_), tape.d_rows, tape.table_rows,
                                     0);
  }

 private:
  /// Adds each row's gradient, times the tap's weight, to the table row of each of its taps. Taps are added
  /// one after the other, because a call adds each of its rows to one table row.
  void spread_backward(const InputTape& tape) const {
    const RowMix& mix = tape.table_mix;
    std::int32_t most = 0;
    for (std::size_t row = 0; row < mix.begin.size(); ++row)
      most = std::max(most, mix.end[row] - mix.begin[row]);
    for (std::int32_t tap = 0; tap < most; ++tap) {
      RowMix weighted;
      std::vector<std::int32_t> ids;
      for (std::size_t row = 0; row < mix.begin.size(); ++row) {
        const auto at = static_cast<std::size_t>(mix.begin[row] + tap);
        weighted.add_row();
        const bool has = mix.begin[row] + tap < mix.end[row];
        if (has) weighted.add_tap(static_cast<std::int64_t>(row), mix.weights[at]);
        ids.push_back(has ? mix.index[at] : -1);
      }
      const RowMixer mixer(rank_, weighted);
      rank_.kernels.embedding_backward(store_.gradient_to_add_to(rank_, *table_), mixer(rank_, tape.d_rows),
                                       IndexTensor(rank_, std::move(ids)), 0);
    }
  }

  ParameterStore& store_;
  const RankContext& rank_;
  bool spread_;
  const Parameter* table_;
};

/// A PatchEmbedding is a linear layer on the values of patches. Each sequence may begin with a learned row.
class PatchEmbedding final : public InputEmbedding {
 public:
  PatchEmbedding(const ModelSpec& model, const std::string& encoder, ParameterStore& store,
                 const RankContext& rank)
      : values_(model.front().values),
        store_(store),
        rank_(rank),
        class_(model.front().class_row ? &store.find(encoder + ".class") : nullptr),
        table_(model.front(), encoder, store, rank),
        linear_(encoder + ".patches", model.front().bias, Split::whole, store, rank) {
    if (const auto norm = model.front().norm) {
      norm_.emplace(encoder + ".front_norm", *norm, model.encoder.layer_form().epsilon, store, rank);
    }
  }

  Tensor forward(const EncoderInput& input, InputTape& tape) const override {
    Tensor rows = class_ != nullptr ? patches_and_class_rows(input, tape) : patches(input, tape);
    table_.add_to(rows, input, tape);
    if (!norm_) return rows;
    tape.norm.x = std::move(rows);
    norm_->forward(tape.norm);
    return std::move(tape.norm.out);
  }

  void backward_weight(InputTape& tape) const override {
    if (norm_) tape.d_rows = norm_->backward(tape.d_rows, tape.norm);
    table_.backward(tape);
    if (class_ == nullptr) {
      linear_.backward_weight(tape.d_rows, tape.values);
    } else {
      const Tensor d_class = gathered(tape.d_rows, tape.class_rows);
      rank_.kernels.embedding_backward(store_.gradient_to_add_to(rank_, *class_), d_class,
                                       IndexTensor(rank_, zeros(d_class.rows())), 0);
      linear_.backward_weight(gathered(tape.d_rows, tape.value_rows), tape.values);
    }
    tape = {};
  }

 private:
  Tensor gathered(const Tensor& rows, const IndexTensor& index) const {
    Tensor some(rank_, index.size(), rows.columns());
    rank_.kernels.gather_rows(some, rows, index);
    return some;
  }

  /// Uploads the patches [begin, end) of the input, followed by zero rows up to `rows` rows.
  Tensor uploaded(const EncoderInput& input, Range patches, std::int64_t rows) const {
    Tensor values(rank_, rows, values_);
    if (rows > patches.size()) {
      rank_.kernels.zero(rows_of(rank_, values.view(), patches.size(), rows - patches.size()));
    }
    upload_patches(rank_, values, input, patches);
    return values;
  }

  Tensor patches(const EncoderInput& input, InputTape& tape) const {
    tape.values = uploaded(input, own_rows(rank_, input.rows()), held_rows(rank_, input.rows()));
    return linear_.forward(tape.values);
  }

  Tensor patches_and_class_rows(const EncoderInput& input, InputTape& tape) const {
    const Range own = own_rows(rank_, input.rows());
    std::vector<std::int32_t> value_rows;
    std::vector<std::int32_t> class_rows;
    Range patches;
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      const std::int32_t patch = input.value_rows[static_cast<std::size_t>(row)];
      const auto held = static_cast<std::int32_t>(row - own.begin);
      if (patch < 0) {
        class_rows.push_back(held);
        continue;
      }
      if (value_rows.empty()) patches.begin = patch;
      patches.end = patch + 1;
      value_rows.push_back(held);
    }
    tape.values = uploaded(input, patches, patches.size());
    tape.value_rows = IndexTensor(rank_, std::move(value_rows));
    tape.class_rows = IndexTensor(rank_, std::move(class_rows));
    Tensor rows(rank_, held_rows(rank_, input.rows()), class_->columns);
    rank_.kernels.zero(Matrix(rows));
    rank_.kernels.scatter_add_rows(rows, linear_.forward(tape.values), tape.value_rows);
    Tensor repeated(rank_, tape.class_rows.size(), class_->columns);
    rank_.kernels.embedding(repeated, store_.weight(*class_), IndexTensor(rank_, zeros(repeated.rows())), 0);
    rank_.kernels.scatter_add_rows(rows, repeated, tape.class_rows);
    return rows;
  }

  std::int64_t values_;
  ParameterStore& store_;
  const RankContext& rank_;
  const Parameter* class_;
  PositionTable table_;
  Linear linear_;
  std::optional<Norm> norm_;
};

/// A SoundEmbedding runs two convolutions of width 3 over the frames of a sound, with a zero frame at either
/// end. A GELU follows each. The second convolution has stride 2 (Radford et al. 2022, Whisper). The columns
/// of their weights hold the three frames one after the other. Frames after the last row's count only
/// at the edge.
class SoundEmbedding final : public InputEmbedding {
 public:
  SoundEmbedding(const ModelSpec& model, const std::string& encoder, ParameterStore& store,
                 const RankContext& rank)
      : bins_(model.front().values),
        rank_(rank),
        table_(model.front(), encoder, store, rank),
        first_(encoder + ".conv1", true, Split::whole, store, rank),
        second_(encoder + ".conv2", true, Split::whole, store, rank) {}

  Tensor forward(const EncoderInput& input, InputTape& tape) const override {
    Kernels& kernels = rank_.kernels;
    const std::vector<std::int32_t> taps = upload_frames(input, tape);
    tape.first = first_.forward(tape.values);
    Tensor activated(rank_, tape.first.rows(), tape.first.columns());
    kernels.gelu_erf(activated, tape.first);
    tape.joined = Tensor(rank_, std::ssize(taps) / 3, 3 * activated.columns());
    kernels.embedding(thirds(tape.joined), activated, IndexTensor(rank_, taps), 0);
    tape.second = second_.forward(tape.joined);
    Tensor rows(rank_, tape.second.rows(), tape.second.columns());
    kernels.gelu_erf(rows, tape.second);
    table_.add_to(rows, input, tape);
    return rows;
  }

  void backward_weight(InputTape& tape) const override {
    Kernels& kernels = rank_.kernels;
    table_.backward(tape);
    Tensor d_second(rank_, tape.second.rows(), tape.second.columns());
    kernels.gelu_erf_backward(d_second, tape.d_rows, tape.second);
    second_.backward_weight(d_second, tape.joined);
    Tensor d_joined = second_.backward_input(d_second);
    Tensor d_taps(rank_, tape.joined_rows.size(), tape.first.columns());
    kernels.gather_rows(d_taps, thirds(d_joined), tape.joined_rows);
    Tensor d_activated(rank_, tape.first.rows(), tape.first.columns());
    kernels.zero(Matrix(d_activated));
    kernels.scatter_add_rows(d_activated, d_taps, tape.first_rows);
    Tensor d_first(rank_, tape.first.rows(), tape.first.columns());
    kernels.gelu_erf_backward(d_first, d_activated, tape.first);
    first_.backward_weight(d_first, tape.values);
    tape = {};
  }

 private:
  /// Returns a view of the same memory in which the three parts of each row are rows.
  static Matrix thirds(Tensor& joined) {
    return {joined.view().data, 3 * joined.rows(), joined.columns() / 3};
  }

  /// Uploads the first convolution's input for the rows that the rank holds. Returns, for each of these rows,
  /// the three rows that the second convolution joins; -1: none.
  std::vector<std::int32_t> upload_frames(const EncoderInput& input, InputTape& tape) const {
    const Range own = own_rows(rank_, input.rows());
    std::vector<std::int32_t> taps(static_cast<std::size_t>(3 * held_rows(rank_, input.rows())), -1);
    std::vector<std::int32_t> joined_rows;
    std::vector<std::int32_t> first_rows;
    std::vector<std::byte> values;
    values.reserve(static_cast<std::size_t>(6 * own.size() * bins_) * bytes_of(rank_.kernels.dtype()));
    HostValues of_sequence;        // values in the rank's precision
    std::int64_t made = 0;         // rows of the first convolution
    std::int64_t last_frame = -1;  // frame of the last of these rows, counted over all sequences
    std::size_t sequence = 0;
    for (std::int64_t row = own.begin; row < own.end; ++row) {
      while (input.offsets[sequence + 1] <= row) ++sequence;
      if (row == own.begin || row == input.offsets[sequence])
        of_sequence = input.values[sequence].as(rank_.kernels.dtype());
      const Range frames{input.value_offsets[sequence], input.value_offsets[sequence + 1]};
      const std::int64_t middle = frames.begin + 2 * (row - input.offsets[sequence]);
      for (std::int64_t tap = 0; tap < 3; ++tap) {
        const std::int64_t frame = middle + tap - 1;
        if (frame < frames.begin || frame >= frames.end) continue;
        if (frame > last_frame) {
          append_frames(of_sequence, frames, frame, values);
          last_frame = frame;
          ++made;
        }
        const std::int64_t place = 3 * (row - own.begin) + tap;
        taps[static_cast<std::size_t>(place)] = static_cast<std::int32_t>(made - 1);
        joined_rows.push_back(static_cast<std::int32_t>(place));
        first_rows.push_back(static_cast<std::int32_t>(made - 1));
      }
    }
    tape.values = Tensor(rank_, made, 3 * bins_);
    if (made > 0) rank_.compute.copy_to_device(tape.values.view().data, values.data(), values.size());
    tape.joined_rows = IndexTensor(rank_, std::move(joined_rows));
    tape.first_rows = IndexTensor(rank_, std::move(first_rows));
    return taps;
  }

  /// Appends a frame of a sequence together with the previous and the next frame; missing ones are zeros.
  void append_frames(const HostValues& sequence, Range frames, std::int64_t frame,
                     std::vector<std::byte>& values) const {
    const auto bytes = bins_ * static_cast<std::int64_t>(bytes_of(sequence.dtype()));
    for (std::int64_t f = frame - 1; f <= frame + 1; ++f) {
      if (f < frames.begin || f >= frames.end) {
        values.insert(values.end(), static_cast<std::size_t>(bytes), std::byte{0});
      } else {
        const std::byte* from = sequence.data() + (f - frames.begin) * bytes;
        values.insert(values.end(), from, from + bytes);
      }
    }
  }

  std::int64_t bins_;
  const RankContext& rank_;
  PositionTable table_;
  Linear first_;
  Linear second_;
};

}  // namespace

std::unique_ptr<InputEmbedding> make_input_embedding(const ModelSpec& model, const std::string& encoder,
                                                     ParameterStore& store, const RankContext& rank) {
  switch (model.front().kind) {
    case FrontKind::patches:
      return std::make_unique<PatchEmbedding>(model, encoder, store, rank);
    case FrontKind::sound:
      return std::make_unique<SoundEmbedding>(model, encoder, store, rank);
  }
  return nullptr;
}

}  // namespace dflop
