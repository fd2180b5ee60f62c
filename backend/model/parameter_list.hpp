// A parameter list names the tensors of a stage's layers, and gives the part of each tensor that a tp rank
// holds. The checks in this header reject models and batches that live runs cannot compute, before any
// memory is allocated.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/model.hpp"
#include "core/program.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A Range is a range of rows, columns or values: [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

/// An Initial says how a tensor is initialized.
enum class Initial : std::uint8_t {
  normal,
  ones,
  zeros,
  sinusoids,  ///< sines, then cosines, of a row's position; wavelengths from 2 pi to 10,000 times 2 pi
              ///< (Whisper)
};

/// A Parameter is the part of one tensor that a rank holds: some ranges of rows and one range of columns. In
/// memory, either each row range or the columns may be padded with zeros, so that the rows of an activation
/// function's output are aligned (Device::row_alignment()). Padding stays zero: the activation functions map
/// zero to zero, and weights that are multiplied only with zeros have zero gradients. The numbers of values
/// do not include padding; values are numbered row by row.
struct Parameter {
  std::string name;          ///< name of the whole tensor: "llm.layers.3.qkv"
  std::int64_t rows = 0;     ///< of the whole
  std::int64_t columns = 0;  ///< of the whole
  std::vector<Range> row_ranges;
  Range column_range;
  Initial initial = Initial::normal;
  /// True if every tp rank holds the whole parameter and sums its gradient over the activation rows that the
  /// rank holds. With sequence parallelism, these sums must then be added up over the tp ranks.
  bool by_held_rows = false;
  /// True if every tp rank holds the whole parameter and sums its gradient over the rank's heads. These sums
  /// must be added up over the tp ranks.
  bool by_heads = false;
  bool decayed = true;            ///< weight decay applies to matrices and tables, not to biases and norms
  bool frozen = false;            ///< never trained
  bool connects = false;          ///< it belongs to the connector and uses the connector's learning rate
  double initial_factor = 1;      ///< factor for Initial::ones
  Range fixed_rows = {};          ///< held rows that are not trained: key biases in models without key biases
  std::int64_t row_multiple = 1;  ///< multiple to which each row range is padded in memory
  std::int64_t column_multiple = 1;  ///< multiple to which the columns are padded in memory
  std::int64_t offset = 0;           ///< place of its first value in ParameterStore's flat arrays

  std::int64_t held_rows() const;
  std::int64_t held_columns() const { return column_range.size(); }
  std::int64_t count() const { return held_rows() * held_columns(); }

  std::int64_t padded_rows() const;
  std::int64_t padded_columns() const { return round_up(held_columns(), column_multiple); }
  std::int64_t padded_count() const { return padded_rows() * padded_columns(); }
  /// Returns the place in the parameter's memory, which includes padding, of value number `value`, which
  /// does not count padding.
  std::int64_t place_of(std::int64_t value) const;
  /// Returns the number of values, without padding, before a place in the parameter's memory.
  std::int64_t values_before(std::int64_t place) const;
};

/// TakenValues say whether a stage takes input values of each of the model's encoders.
struct TakenValues {
  bool first = false;
  bool second = false;

  bool of(bool of_second) const { return of_second ? second : first; }
  auto operator<=>(const TakenValues&) const = default;
};

/// A StagePlace says which layers of the model a stage holds, and whether the encoder's input enters at this
/// stage.
struct StagePlace {
  Stage stage;
  int first_encoder_layer = 0;
  int first_llm_layer = 0;
  bool patches = false;  ///< true for the stage with the first encoder layer

  /// Returns the encoders whose input values enter at the stage. The second encoder's enter at the stage with
  /// the connectors.
  TakenValues takes_values(const ModelSpec& model) const {
    return {patches, stage.connector && model.second.has_value()};
  }
};

/// Returns the place of each stage. `stages` are in model order.
std::vector<StagePlace> stage_places(const std::vector<Stage>& stages);

/// Returns the parameters that tp rank `tp_rank` of a stage holds, in a fixed order. `row_alignment` is the
/// device's row_alignment().
/// @throws Error (input) if tp does not divide the heads or KV heads, if tp exceeds a width or the
/// vocabulary size, or if tp is used with a query norm over all heads.
std::vector<Parameter> stage_parameter_list(const ModelSpec& model, const StagePlace& place, int tp_rank,
                                            int row_alignment = 1);

/// EncoderNames are the beginnings of the names of an encoder's parameters and of its connector's.
struct EncoderNames {
  std::string encoder;
  std::string connector;
};

inline EncoderNames first_encoder() {
  return {"encoder", "connector"};
}
inline EncoderNames second_encoder() {
  return {"second", "second.connector"};
}

/// Returns the name of the connector of the deep features with this index (Architecture::deepstack).
std::string deep_connector_name(int deep);

/// Checks that live runs can compute a model.
/// @throws Error (input) that names the unsupported part, such as a missing connector, a connector whose
/// widths differ from encoder and LLM, or a head size that rotary positions cannot split into pairs.
void require_live(const ModelSpec& model);

/// Checks that encoder and LLM can be split over `encoder_tp` and `llm_tp` ranks. @throws what
/// stage_parameter_list() throws
void require_split(const ModelSpec& model, int encoder_tp, int llm_tp);
/// Returns whether require_split() accepts these tp sizes.
bool is_splittable(const ModelSpec& model, int encoder_tp, int llm_tp);

/// Checks a batch.
/// @throws Error (input) that names a sample if its LLM sequence needs encoder tokens, but the sample has no
/// input for the encoder or the model has no encoder
void require_live(const ModelSpec& model, std::span<const Sample> samples);

}  // namespace dflop
