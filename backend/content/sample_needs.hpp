// SampleNeeds say which samples of a batch the ranks of one process read, so that it decodes no others.
#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "core/model.hpp"
#include "core/plan.hpp"
#include "core/sample.hpp"

namespace dflop {

/// A SampleNeed is how much of a sample is read.
enum class SampleNeed : std::uint8_t {
  none,
  shape,   ///< tokens and places, but nothing of what the encoder sees
  values,  ///< all
};

class SampleNeeds {
 public:
  /// Finds what the ranks compute in every iteration of a valid plan: who computes which microbatch of which
  /// stage does not depend on the batch.
  SampleNeeds(const Plan& plan, const ModelSpec& model, std::span<const int> ranks);

  /// Returns the need of each sample of a batch. What the encoder sees is needed by the ranks of its first
  /// stage that encode a sequence of the sample; tokens and places by all that compute with one.
  std::vector<SampleNeed> of(std::span<const Sample> batch, const Assignment& assignment) const;

 private:
  /// A Part is a microbatch of a dp rank of a module.
  struct Part {
    int microbatch = 0;
    int dp_rank = 0;
    bool values = false;  ///< of the first stage of the encoder

    auto operator<=>(const Part&) const = default;
  };

  Plan plan_;
  ModelSpec model_;
  std::vector<Part> encoder_;  // each once
  std::vector<Part> llm_;
};

}  // namespace dflop
