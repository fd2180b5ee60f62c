#include "experiments/training/tp_modes.hpp"

#include <fmt/format.h>

#include <set>

#include "backend/model/parameter_list.hpp"
#include "core/refuse.hpp"
#include "experiments/studies/options.hpp"

namespace dflop {

std::vector<TpMode> read_tp_modes(const Values& values) {
  const bool sequence_parallel = !values["no-sequence-parallel"].as<bool>();
  std::set<TpMode> modes;
  for (const std::int64_t tp : values["tp"].as<std::vector<std::int64_t>>()) {
    if (tp < 1 || tp > kMaxTp) {
      refuse_value("tp", fmt::format("whole numbers from 1 to {}", kMaxTp), std::to_string(tp));
    }
    modes.insert(tp_mode(static_cast<int>(tp), sequence_parallel));
  }
  return {modes.begin(), modes.end()};
}

void require_tp_modes(const ModelSpec& model, const std::vector<TpMode>& modes) {
  require_live(model);
  for (const TpMode& mode : modes) {
    try {
      require_split(model, mode.tp, mode.tp);
    } catch (const Error& error) {
      throw Error(ErrorKind::usage, error.message(), "option '--tp'");
    }
  }
}

}  // namespace dflop
