#include "solver/planners/published/rules.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace dflop {
namespace {

/// An Option is a way to use some GPUs for one module.
struct Option {
  int tp = 1;
  int pp = 1;
  int dp = 1;
  const ModuleProfile* profile = nullptr;
};

std::vector<Option> options_of(const ModuleTables& tables, int gpus) {
  std::vector<Option> options;
  for (const ModuleProfile& profile : tables.profiles) {
    if (gpus % profile.tp != 0) continue;
    const int groups = gpus / profile.tp;
    for (int pp = 1; pp <= std::min(groups, tables.layers); ++pp) {
      if (groups % pp == 0) options.push_back({profile.tp, pp, groups / pp, &profile});
    }
  }
  return options;
}

/// Calls visit(encoder, llm) for all pairs, in the order of the published code.
template <typename Visit>
void for_each_pair(const PublishedProfile& profile, int gpus, const Visit& visit) {
  for (int encoder_gpus = 1; encoder_gpus < gpus; ++encoder_gpus) {
    const std::vector<Option> llms = options_of(profile.llm, gpus - encoder_gpus);
    for (const Option& encoder : options_of(profile.encoder, encoder_gpus)) {
      for (const Option& llm : llms) visit(encoder, llm);
    }
  }
}

int layers_of(const ModuleTables& tables, const Option& option) {
  return (tables.layers + option.pp - 1) / option.pp;
}

/// Returns the duration of a module's mean microbatch of `items` items; infinity if the throughput is not
/// positive. `read` reads the throughput from its curve.
double duration(const ModuleTables& tables, const Option& option, double items,
                double (Curve::*read)(double) const) {
  const double throughput = (option.profile->throughput.*read)(tables.mean_units * items);
  if (!(throughput > 0)) return std::numeric_limits<double>::infinity();
  return tables.mean_tflop * items / (throughput * option.tp * option.pp);
}

PublishedChoice choice_of(const Option& encoder, const Option& llm, int microbatches, double seconds) {
  return {{encoder.tp, encoder.pp, encoder.dp, {}}, {llm.tp, llm.pp, llm.dp, {}}, microbatches, seconds};
}

/// Returns how many microbatches the released code chooses for a pair.
int released_microbatches(const PublishedProfile& profile, const Option& encoder, const Option& llm,
                          int gbs) {
  const int most = gbs / llm.dp;
  const auto items = [&](int microbatches, const Option& option) {
    return gbs / (static_cast<double>(microbatches) * option.dp);
  };
  const auto is_small = [&](int microbatches) {
    return profile.encoder.mean_units * items(microbatches, encoder) <= profile.encoder.most_units &&
           profile.llm.mean_units * items(microbatches, llm) <= profile.llm.most_units;
  };
  // Microbatches only get smaller, so bisection finds the first number for which they are small enough.
  int least = 1;
  for (int above = most; least < above;) {
    const int middle = least + (above - least) / 2;
    if (is_small(middle)) {
      above = middle;
    } else {
      least = middle + 1;
    }
  }
  return is_small(least) && items(least, encoder) >= 1 ? least : most;
}

}  // namespace

PublishedChoices released_choice(const PublishedProfile& profile, const PublishedProblem& problem) {
  constexpr double kBuffer = 1.25;
  PublishedChoices found;
  std::optional<PublishedChoice>& chosen = found.choice;
  for_each_pair(profile, problem.gpus, [&](const Option& encoder, const Option& llm) {
    if (llm.dp > problem.gbs) return;
    ++found.candidates;
    const double tiles = profile.encoder.most_units * llm.dp / encoder.dp;
    const int encoder_layers = layers_of(profile.encoder, encoder);
    const int llm_layers = layers_of(profile.llm, llm);
    const double encoder_bytes = encoder.profile->state(encoder_layers) +
                                 (encoder.pp + llm.pp) * encoder.profile->activation(encoder_layers) * tiles;
    const double llm_bytes = llm.profile->state(llm_layers) +
                             llm.pp * llm.profile->activation(llm_layers) * profile.llm.most_units;
    if (kBuffer * std::max(encoder_bytes, llm_bytes) > problem.memory) return;
    const int microbatches = released_microbatches(profile, encoder, llm, problem.gbs);
    if (chosen && microbatches >= chosen->microbatches) return;
    const auto slots = static_cast<double>(microbatches);
    const double longest =
        std::max(duration(profile.encoder, encoder, problem.gbs / (slots * encoder.dp), &Curve::extended),
                 duration(profile.llm, llm, problem.gbs / (slots * llm.dp), &Curve::extended));
    const double seconds = (microbatches + encoder.pp + llm.pp - 1) * longest;
    const double before = chosen ? chosen->seconds : std::numeric_limits<double>::infinity();
    if (seconds < before * 1.1) chosen = choice_of(encoder, llm, microbatches, seconds);
  });
  return found;
}

PublishedChoices printed_choice(const PublishedProfile& profile, const PublishedProblem& problem) {
  PublishedChoices found;
  std::optional<PublishedChoice>& chosen = found.choice;
  double least = std::numeric_limits<double>::infinity();
  for_each_pair(profile, problem.gpus, [&](const Option& encoder, const Option& llm) {
    found.candidates += problem.gbs / llm.dp;
    const int encoder_layers = layers_of(profile.encoder, encoder);
    const int llm_layers = layers_of(profile.llm, llm);
    const double encoder_left = problem.memory - encoder.profile->state(encoder_layers);
    const double llm_left = problem.memory - llm.profile->state(llm_layers);
    if (encoder_left < 0 || llm_left < 0) return;
    const double encoder_bytes =
        (encoder.pp + llm.pp) * encoder.profile->activation(encoder_layers) * profile.encoder.mean_units;
    const double llm_bytes = llm.pp * llm.profile->activation(llm_layers) * profile.llm.mean_units;
    for (int microbatches = 1; microbatches <= problem.gbs / llm.dp; ++microbatches) {
      const double encoder_items = problem.gbs / (static_cast<double>(microbatches) * encoder.dp);
      const double llm_items = problem.gbs / (static_cast<double>(microbatches) * llm.dp);
      if (encoder_bytes * encoder_items > encoder_left || llm_bytes * llm_items > llm_left) continue;
      const double longest = std::max(duration(profile.encoder, encoder, encoder_items, &Curve::held),
                                      duration(profile.llm, llm, llm_items, &Curve::held));
      const double seconds = (microbatches + encoder.pp + llm.pp - 1) * longest;
      if (seconds >= least) continue;
      least = seconds;
      chosen = choice_of(encoder, llm, microbatches, seconds);
    }
  });
  return found;
}

}  // namespace dflop
