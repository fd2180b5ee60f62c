// A LinkFit gives latency and bandwidth of messages from their recorded durations.
#pragma once

#include <optional>
#include <span>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/program.hpp"
#include "core/units.hpp"

namespace dflop {

/// A LinkSample is one recorded transfer.
struct LinkSample {
  double bytes = 0;
  Seconds duration{0};
};

/// A LinkFit is the line latency + bytes * seconds_per_byte (Hockney 1994).
struct LinkFit {
  Seconds latency{0};
  double seconds_per_byte = 0;

  Seconds duration(double bytes) const { return latency + Seconds(bytes * seconds_per_byte); }
};

/// Returns the line through the samples with the least squares of its errors, neither part of it negative.
/// Samples of one size cannot tell the two parts apart: all of it is bandwidth then, or latency where they
/// have no bytes. Nothing without samples.
std::optional<LinkFit> fit_link(std::span<const LinkSample> samples);

/// Messages inside a node share a line, and those between nodes another. Without a cluster all share one.
inline constexpr int kLinkClasses = 2;
int link_class(const std::optional<ClusterSpec>& cluster, const Message& message, const Program& program);

/// Changes the costs to those on links of another latency and bandwidth: of each message and collective, the
/// part that the fitted line calls latency is multiplied by `latency_scale`, the rest divided by
/// `bandwidth_scale`. Collectives have a line for each number of participants.
/// @pre both are positive
void rescale_links(const Program& program, ProgramCosts& costs, const std::optional<ClusterSpec>& cluster,
                   double latency_scale, double bandwidth_scale);

}  // namespace dflop
