#include "backend/content/sample_needs.hpp"

#include <algorithm>

#include "core/program/encoder_share.hpp"
#include "core/program/lowering.hpp"

namespace dflop {
namespace {

template <typename Part>
void keep_each_once(std::vector<Part>& parts) {
  std::sort(parts.begin(), parts.end());
  parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
}

}  // namespace

SampleNeeds::SampleNeeds(const Plan& plan, const ModelSpec& model, std::span<const int> ranks)
    : plan_(plan), model_(model) {
  const Program layout = lower_without_work(plan, model);
  const std::vector<StagePlace> places = stage_places(layout.stages);
  for (const Group& group : layout.groups) {
    for (const int rank : ranks) {
      if (rank >= group.first_rank && rank < group.first_rank + group.ranks)
        add_rank(layout, places, group, rank);
    }
  }
  keep_each_once(encoder_);
  keep_each_once(llm_);
}

void SampleNeeds::add_rank(const Program& layout, const std::vector<StagePlace>& places, const Group& group,
                           int rank) {
  for (const Instruction& instruction : layout.instructions_of(group)) {
    if (instruction.op != Op::forward) continue;
    const StagePlace& place = places[static_cast<std::size_t>(instruction.stage)];
    const int copy = (rank - group.first_rank) / place.stage.tp;
    const Part part{instruction.microbatch, group.dp_rank * place.stage.copies + copy,
                    place.takes_values(model_)};
    if (place.stage.encoder_layers > 0) encoder_.push_back(part);
    if (place.stage.llm_layers > 0) llm_.push_back({part.microbatch, group.dp_rank});
  }
}

std::vector<SampleNeed> SampleNeeds::of(std::span<const Sample> batch, const Assignment& assignment) const {
  std::vector<SampleNeed> needs(batch.size(), SampleNeed::none);
  const SamplesOfBins bins = samples_of_bins(plan_, assignment);
  const auto add = [&](std::int32_t sample, SampleNeed need) {
    SampleNeed& known = needs[static_cast<std::size_t>(sample)];
    known = std::max(known, need);
  };
  for (const Part& part : llm_) {
    const auto bin = static_cast<std::size_t>(part.microbatch) * plan_.llm.dp + part.dp_rank;
    for (const std::int32_t sample : bins[bin]) add(sample, SampleNeed::shape);
  }
  const int copies = encoder_copies(plan_);
  for (const Part& part : encoder_) {
    for_each_piece(plan_, model_, batch, bins, part.microbatch, [&](const EncoderPiece& piece) {
      const bool is_own = piece.encoder_dp == part.dp_rank;
      // A copy must know the shapes of all samples that its dp rank's copies share.
      if (!is_own && (copies == 1 || piece.encoder_dp / copies != part.dp_rank / copies)) return;
      add(piece.sample, is_own && part.values.of(piece.second) ? SampleNeed::values : SampleNeed::shape);
    });
  }
  return needs;
}

}  // namespace dflop
