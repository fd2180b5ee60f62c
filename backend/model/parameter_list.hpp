// A parameter list says which tensors the layers of a model have, and which part of each a tp rank of a stage
// holds. Checks find models and batches that cannot be computed live, before anything is made of them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/program.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A Range has rows, columns or values that follow each other: [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// An Initial says which first values a tensor gets.
enum class Initial : std::uint8_t {
  normal,
  ones,
  zeros,
  sinusoids,  ///< of a row's position, sines before cosines, of wavelengths from 2 pi to 10,000 x 2 pi
              ///< (Whisper)
};

/// A Parameter is the part of one tensor that a rank holds: some rows, one run of columns. In memory zeros
/// may fill up the rows of each range, or the columns: those that are the width of what an activation gives,
/// whose rows are then aligned (Device::row_alignment()). Zeros stay zeros: an activation of zero is zero,
/// and so are the gradients of values that are multiplied with zeros alone. Nothing but the memory has them:
/// values are counted without, row by row.
struct Parameter {
  std::string name;          ///< of the whole tensor, as "llm.layers.3.qkv"
  std::int64_t rows = 0;     ///< of the whole
  std::int64_t columns = 0;  ///< of the whole
  std::vector<Range> row_ranges;
  Range column_range;
  Initial initial = Initial::normal;
  /// Says that the parameter is whole on every tp rank, and its gradient a sum over the rows that a rank
  /// holds: with sequence parallelism only the tp ranks' sum is the gradient.
  bool by_held_rows = false;
  bool decayed = true;        ///< weight decay is for matrices and tables, not for biases and norms
  bool frozen = false;        ///< never trained
  bool connects = false;      ///< whether it counts as the connector's: its rate is that
  double initial_factor = 1;  ///< what Initial::ones are multiplied with
  Range fixed_rows = {};  ///< of the held rows, the range that stays fixed: keys' biases where keys have none
  std::int64_t row_multiple = 1;     ///< to which the rows of each range are filled up in memory
  std::int64_t column_multiple = 1;  ///< to which columns are
  std::int64_t offset = 0;           ///< of its first value in the flat arrays

  std::int64_t held_rows() const;
  std::int64_t held_columns() const { return column_range.size(); }
  std::int64_t count() const { return held_rows() * held_columns(); }

  std::int64_t padded_rows() const;
  std::int64_t padded_columns() const { return round_up(held_columns(), column_multiple); }
  std::int64_t padded_count() const { return padded_rows() * padded_columns(); }
  /// Returns where a value stands in the parameter's memory.
  std::int64_t place_of(std::int64_t value) const;
  /// Returns how many values stand before a place in the parameter's memory.
  std::int64_t values_before(std::int64_t place) const;
};

/// A StagePlace says which layers of the whole model a stage holds, and whether its pixels come in here.
struct StagePlace {
  Stage stage;
  int first_encoder_layer = 0;
  int first_llm_layer = 0;
  bool patches = false;  ///< the stage with the first encoder layer
};

/// Returns the place of each stage, which are in model order.
std::vector<StagePlace> stage_places(const std::vector<Stage>& stages);

/// Returns what tp rank `tp_rank` of a stage holds, in a fixed order, on a device of this row_alignment().
/// @throws Error (input) where tp does not divide heads or KV heads, is more than a width or the vocabulary,
/// and for norms of queries over all heads with tp.
std::vector<Parameter> stage_parameter_list(const ModelSpec& model, const StagePlace& place, int tp_rank,
                                            int row_alignment = 1);

/// Checks a model. @throws Error (input) naming what of the model cannot be computed, as a connector that is
/// missing or of other widths than encoder and LLM, or heads that cannot be turned in pairs.
void require_live(const ModelSpec& model);

/// Checks that tp can split encoder and LLM. @throws Error (input) as stage_parameter_list()
void require_split(const ModelSpec& model, int encoder_tp, int llm_tp);
/// Returns whether tp can split encoder and LLM, as require_split() checks it.
bool is_splittable(const ModelSpec& model, int encoder_tp, int llm_tp);

/// Checks a batch. @throws Error (input) naming a sample that asks for tokens from the encoder and has none
/// to give.
void require_live(const ModelSpec& model, std::span<const Sample> samples);

}  // namespace dflop
