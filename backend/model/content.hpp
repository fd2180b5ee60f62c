// Contents are what samples hold beside their shapes: what the encoder sees, tokens, targets, positions. They
// are made up (made_up.hpp) or read from data.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "backend/model/host_values.hpp"
#include "backend/model/row_mix.hpp"
#include "core/sample.hpp"

namespace dflop {

/// This is the target of a position whose prediction is not trained.
inline constexpr std::int32_t kNoTarget = -1;

/// PackedRows are sequences whose rows lie one after the other, without padding.
struct PackedRows {
  std::vector<std::int32_t> offsets{0};    ///< of each sequence's first row, and of the end
  std::vector<std::int32_t> windows = {};  ///< the same of attention windows, where there are some
  std::vector<std::int32_t> positions;     ///< of each row in its sequence, one for each axis

  std::int64_t rows() const { return offsets.back(); }
  /// Adds a sequence whose rows have the positions 0, 1 and so on.
  void add_sequence(std::int64_t rows);
  /// Adds a sequence with these positions, and, where it has them, windows: offsets from 0 to its rows.
  void add_sequence(std::int64_t rows, const std::vector<std::int32_t>& its_positions,
                    const std::vector<std::int32_t>& its_windows);
};

/// An EncoderSequence is what the encoder gets of one tile, picture, frame or sound, and what becomes of it.
struct EncoderSequence {
  std::int64_t rows = 0;  ///< of the encoder
  HostValues values;      ///< of patches or frames, EncoderFront::values each; where they are asked for
  std::vector<std::int32_t> value_rows;  ///< per row its patch; -1: the class row. Empty: each its own
  std::vector<std::int32_t> table_rows;  ///< per row that of the table of positions, where there is one
  std::vector<std::int32_t> positions;   ///< per row and axis, where positions are rotary
  std::vector<std::int32_t> windows;     ///< offsets of attention windows, where there are some
  RowMix select;                         ///< where the connector selects: of the encoder's rows
  RowMix sent;                           ///< what goes to the LLM, of the connector's rows
  /// Per row that is sent, its place in the sample's LLM sequence; -1: it is not used. Rows that have one
  /// place are added there.
  std::vector<std::int32_t> places;
};

/// A TokenSequence is a sample's LLM sequence.
struct TokenSequence {
  std::int64_t rows = 0;
  std::vector<std::int32_t> ids;        ///< of text, one after the other
  std::vector<std::int32_t> id_places;  ///< where each stands
  std::vector<std::int32_t> newlines;   ///< places of learned newlines
  std::vector<std::int32_t> targets;    ///< per place the next token, or kNoTarget
  std::vector<std::int32_t> positions;  ///< per place and axis
};

/// Contents give what samples hold. A sample's is asked for wherever a part of it is needed: the same each
/// time. Who has asked for it shares it, and may keep it when the contents have dropped it. All calls may
/// come from several threads.
class Contents {
 public:
  virtual ~Contents() = default;
  /// Returns one of a sample's encoder sequences; `values`: what the encoder sees is asked for, too.
  virtual std::shared_ptr<const EncoderSequence> encoder(const Sample& sample, std::int64_t sequence,
                                                         bool values) const = 0;
  virtual std::shared_ptr<const TokenSequence> tokens(const Sample& sample) const = 0;
  /// Returns how many targets a sample has.
  virtual std::int64_t trained_tokens(const Sample& sample) const = 0;
};

}  // namespace dflop
