// SampleNeeds find the samples of a batch that the ranks of one process read, so that the process decodes
// only these samples.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/model/parameter_list.hpp"
#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/program.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A SampleNeed says how much of a sample is read.
enum class SampleNeed : std::uint8_t {
  none,
  shape,   ///< the tokens and places, but not the encoder's input values
  values,  ///< all
};

class SampleNeeds {
 public:
  /// Finds which microbatches of which dp ranks of each module are computed on `ranks`. They are the same in
  /// every iteration of a valid plan, whatever the batch.
  SampleNeeds(const Plan& plan, const ModelSpec& model, std::span<const int> ranks);

  /// Returns the need of each sample of a batch. Ranks where an encoder's input enters need the values of the
  /// samples whose sequences of this encoder they encode. All ranks that compute with a sample need its
  /// shape.
  std::vector<SampleNeed> of(std::span<const Sample> batch, const Assignment& assignment) const;

 private:
  void add_rank(const Program& layout, const std::vector<StagePlace>& places, const Group& group, int rank);

  /// A Part is one microbatch of one dp rank of a module; for an encoder, of one EncoderPiece::encoder_dp.
  struct Part {
    int microbatch = 0;
    int dp_rank = 0;
    TakenValues values = {};  ///< encoders whose input values the part's stage reads

    auto operator<=>(const Part&) const = default;
  };

  Plan plan_;
  ModelSpec model_;
  std::vector<Part> encoder_;  // no duplicates
  std::vector<Part> llm_;
};

}  // namespace dflop
