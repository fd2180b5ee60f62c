#include "costmodel/recorded/link_fit.hpp"

#include <algorithm>
#include <map>
#include <vector>

#include "costmodel/analytic/communication.hpp"

namespace dflop {
namespace {

/// A LinkGroup has transfers that share a line, and where their durations are.
struct LinkGroup {
  std::vector<LinkSample> samples;
  std::vector<Nanoseconds*> durations;

  void add(double bytes, Nanoseconds& duration) {
    samples.push_back({bytes, duration});
    durations.push_back(&duration);
  }

  void rescale(double latency_scale, double bandwidth_scale) {
    const std::optional<LinkFit> fit = fit_link(samples);
    for (std::size_t k = 0; k < samples.size(); ++k) {
      const Seconds latency = std::min(samples[k].duration, fit->latency);
      const Seconds rest = samples[k].duration - latency;
      *durations[k] = to_nanoseconds(latency * latency_scale + rest / bandwidth_scale);
    }
  }
};

}  // namespace

std::optional<LinkFit> fit_link(std::span<const LinkSample> samples) {
  if (samples.empty()) return std::nullopt;
  const auto count = static_cast<double>(samples.size());
  double mean_bytes = 0;
  Seconds mean{0};
  for (const LinkSample& sample : samples) {
    mean_bytes += sample.bytes / count;
    mean += sample.duration / count;
  }
  double spread = 0;
  double common = 0;
  double squares = 0;  // the same about zero, for a line through the origin
  double products = 0;
  for (const LinkSample& sample : samples) {
    spread += (sample.bytes - mean_bytes) * (sample.bytes - mean_bytes);
    common += (sample.bytes - mean_bytes) * (sample.duration - mean).count();
    squares += sample.bytes * sample.bytes;
    products += sample.bytes * sample.duration.count();
  }
  if (squares == 0) return LinkFit{mean, 0};
  const double slope = spread > 0 ? std::max(0.0, common / spread) : products / squares;
  const Seconds latency = spread > 0 ? mean - Seconds(slope * mean_bytes) : Seconds(0);
  if (latency < Seconds(0)) return LinkFit{Seconds(0), products / squares};
  return LinkFit{latency, slope};
}

int link_class(const std::optional<ClusterSpec>& cluster, const Message& message, const Program& program) {
  return cluster && !inside_node(*cluster, message, program) ? 1 : 0;
}

void rescale_links(const Program& program, ProgramCosts& costs, const std::optional<ClusterSpec>& cluster,
                   double latency_scale, double bandwidth_scale) {
  std::map<int, LinkGroup> messages;
  for (std::size_t m = 0; m < program.messages.size(); ++m) {
    const Message& message = program.messages[m];
    messages[link_class(cluster, message, program)].add(bytes_on_link(message, program), costs.message[m]);
  }
  std::map<std::size_t, LinkGroup> collectives;
  for (std::size_t c = 0; c < program.collectives.size(); ++c) {
    const Collective& collective = program.collectives[c];
    collectives[collective.groups.size()].add(static_cast<double>(collective.bytes.count),
                                              costs.collective[c]);
  }
  for (auto& [link, group] : messages) group.rescale(latency_scale, bandwidth_scale);
  for (auto& [participants, group] : collectives) group.rescale(latency_scale, bandwidth_scale);
}

}  // namespace dflop
