// Chooses the microbatches with which a stage warms up.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/model/stage_module.hpp"

namespace dflop {

/// Returns the inputs of a stage that together run all of its code: those with the most rows of the encoder,
/// of the second encoder and of the LLM, each input once. A microbatch may lack the rows of any of them.
inline std::vector<const StageInput*> warm_up_inputs(const std::vector<const StageInput*>& inputs) {
  using Rows = std::int64_t (*)(const StageInput&);
  constexpr Rows kRows[] = {[](const StageInput& input) { return input.encoder ? input.encoder->rows() : 0; },
                            [](const StageInput& input) {
                              return input.encoder && input.encoder->second ? input.encoder->second->rows()
                                                                            : 0;
                            },
                            [](const StageInput& input) { return input.llm ? input.llm->rows() : 0; }};
  std::vector<const StageInput*> chosen;
  for (const Rows rows : kRows) {
    const auto largest =
        std::ranges::max_element(inputs, {}, [&](const StageInput* input) { return rows(*input); });
    if (largest == inputs.end() || rows(**largest) == 0) continue;
    if (std::ranges::find(chosen, *largest) == chosen.end()) chosen.push_back(*largest);
  }
  return chosen;
}

}  // namespace dflop
