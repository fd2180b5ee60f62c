// Contents give the values of samples in addition to their shapes: the encoder's inputs, token ids, targets
// and positions. They are synthetic (backend/model/made_up.hpp) or read from data (traces/dataset).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/content/host_values.hpp"
#include "core/content/row_mix.hpp"
#include "core/sample.hpp"

namespace dflop {

/// kNoTarget is the target of a position that the loss does not cover.
inline constexpr std::int32_t kNoTarget = -1;

/// An EncoderSequence is the encoder's input for one tile, picture, frame or sound, together with the
/// destination of its output rows.
struct EncoderSequence {
  bool second = false;    ///< for the model's second encoder
  std::int64_t rows = 0;  ///< of the encoder
  HostValues values;      ///< of all patches or frames, EncoderFront::values for each; empty unless requested
  std::vector<std::int32_t> value_rows;  ///< per row, its patch; -1: the class row. Empty: row i is patch i
  std::vector<std::int32_t> table_rows;  ///< per row, its row in the position table, if there is one
  RowMix table_mix;                      ///< instead of table_rows, per row, if EncoderFront::spread_table
  std::vector<std::int32_t> positions;   ///< per row and axis, for rotary positions
  std::vector<std::int32_t> windows;     ///< offsets of attention windows, if any
  RowMix select;                         ///< of the encoder's rows, if the connector selects rows
  RowMix sent;                           ///< the rows sent to the LLM, as sums of the connector's rows
  /// These are the positions of the sent rows in the sample's LLM sequence; -1: the row is not used. Rows
  /// with the same position are added up.
  std::vector<std::int32_t> places;
};

/// A TokenSequence is a sample's LLM sequence.
struct TokenSequence {
  std::int64_t rows = 0;
  std::vector<std::int32_t> ids;        ///< of the text tokens, in order
  std::vector<std::int32_t> id_places;  ///< position of each text token
  std::vector<std::int32_t> newlines;   ///< positions of learned newlines
  std::vector<std::int32_t> targets;    ///< per position, the next token or kNoTarget
  std::vector<std::int32_t> positions;  ///< per position and axis
};

/// Contents give the values of samples. A sample's content may be requested several times and is the same
/// each time. The result is shared; the caller may keep it after the Contents have dropped theirs. All
/// functions are thread-safe.
class Contents {
 public:
  virtual ~Contents() = default;
  /// Returns one of a sample's encoder sequences. `values` says whether it includes the encoder's input
  /// values.
  virtual std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                         bool values) const = 0;
  virtual std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const = 0;
  /// Returns the number of targets of a sample.
  virtual std::int64_t trained_tokens(const Sample& sample) const = 0;
};

}  // namespace dflop
