#include "experiments/options/provenance_options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <unistd.h>
#include <algorithm>
#include <array>
#include <cstdint>
#include <thread>
#include <vector>

#include "core/support/host_cpu.hpp"
#include "experiments/cli/commit.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/studies/made_by.hpp"

namespace dflop {
namespace {

MachineOrigin this_machine() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return {host.data(), host_cpu(), std::max<std::int64_t>(1, std::thread::hardware_concurrency())};
}

}  // namespace

Provenance made_here(const Values& values) {
  Provenance made_by{DFLOP_VERSION, commit(), command_line()};
  if (values.count("gbs") > 0) made_by.gbs = values["gbs"].as<std::int64_t>();
  if (values.count("seed") > 0) made_by.seed = static_cast<std::uint64_t>(values["seed"].as<std::int64_t>());
  made_by.machine = this_machine();
  return made_by;
}

Provenance made_here(const Values& values, const Target& target) {
  return with_target(made_here(values), target);
}

Provenance made_here(const Values& values, const Target& target, const DataOrigin& data) {
  Provenance made_by = made_here(values, target);
  made_by.data = data;
  return made_by;
}

Provenance made_here(const Values& values, const PlanFiles& files) {
  Provenance made_by = made_here(values, files.target);
  made_by.plan = origin_of(files.plan, values["plan"].as<std::string>());
  made_by.gbs = files.schedule.gbs;
  made_by.seed = files.schedule.seed;
  if (files.schedule.made_by) made_by.data = files.schedule.made_by->data;
  return made_by;
}

void add_mixed_option(Options& options) {
  options.add(OptionGroup::times,
              {{"mixed", flag(), "allow mixing files made with different models, clusters or data"}});
}

void require_together(const Values& values, const std::string& file, const std::optional<Provenance>& made_by,
                      const std::string& other, const std::optional<Provenance>& others) {
  if (!made_by || !others) return;
  const std::vector<std::string> found = contradictions(*made_by, *others);
  if (found.empty()) return;
  const std::string what = fmt::format("made with other inputs than {}: {}", other, fmt::join(found, "; "));
  if (!values["mixed"].as<bool>()) {
    throw Error(ErrorKind::input, what + "; --mixed allows this", file);
  }
  say("dflop: note: {} was {}\n", printable(file), printable(what));
}

}  // namespace dflop
