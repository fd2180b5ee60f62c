#include "sim/network/flows.hpp"

#include <algorithm>
#include <limits>

namespace dflop {
namespace {

/// A link is full at these fractions of its bandwidth: sums of rates are not exact.
constexpr double kFull = 1 - 1e-9;
constexpr double kOverfull = 1 + 1e-12;

}  // namespace

Flows::Flows(const Network& network)
    : network_(network), links_(network.link_bytes_per_s.size()), heap_(flows_) {}

void Flows::start(std::int32_t transfer, Nanoseconds now) {
  now_ = now;
  const std::int32_t id = new_flow();
  Flow& flow = flows_[id];
  flow.transfer = transfer;
  flow.phase = network_.first_phase[transfer];
  flow.number = started_++;
  flow.event = now;
  flow.state = State::moving;  // with no bytes, which ends at once
  flow.bytes_left = 0;
  if (flow.phase < network_.first_phase[transfer + 1]) begin_phase(id, now);
  heap_.push(id);
}

Nanoseconds Flows::next_time() {
  settle();
  return flows_[heap_.top()].event;
}

std::optional<std::int32_t> Flows::advance() {
  settle();
  const std::int32_t id = heap_.top();
  Flow& flow = flows_[id];
  now_ = flow.event;
  if (flow.state == State::latency) {
    join(id);
    return std::nullopt;
  }
  heap_.pop();
  const std::size_t end = network_.first_phase[flow.transfer + 1];
  if (flow.phase < end) {
    leave(id);
    if (++flow.phase < end) {
      begin_phase(id, now_);
      heap_.push(id);
      return std::nullopt;
    }
  }
  free_.push_back(id);
  return flow.transfer;
}

std::int32_t Flows::new_flow() {
  if (free_.empty()) {
    flows_.emplace_back();
    return static_cast<std::int32_t>(flows_.size() - 1);
  }
  const std::int32_t id = free_.back();
  free_.pop_back();
  return id;
}

void Flows::begin_phase(std::int32_t id, Nanoseconds now) {
  Flow& flow = flows_[id];
  flow.state = State::latency;
  flow.event = now + network_.phases[flow.phase].latency;
}

/// Takes a flow's share of the links when its latency is over. The flow is in the heap.
void Flows::join(std::int32_t id) {
  Flow& flow = flows_[id];
  const TransferPhase& phase = network_.phases[flow.phase];
  const Route& route = network_.routes[phase.route];
  flow.state = State::moving;
  flow.bytes_left = phase.bytes;
  flow.since = now_;
  flow.rate = 0;
  bool fits = true;
  for (const LinkUse& use : uses_of(flow)) {
    links_[use.link].flows.push_back(id);
    const double wanted = links_[use.link].used + use.weight * route.most_bytes_per_s;
    fits = fits && wanted <= network_.link_bytes_per_s[use.link] * kOverfull;
  }
  if (!fits) return disturbed_.push_back(network_.uses[route.begin].link);
  for (const LinkUse& use : uses_of(flow)) links_[use.link].used += use.weight * route.most_bytes_per_s;
  set_rate(id, route.most_bytes_per_s);
}

/// Releases a flow's share of the links. The flow is not in the heap.
void Flows::leave(std::int32_t id) {
  for (const LinkUse& use : uses_of(flows_[id])) {
    Link& link = links_[use.link];
    const auto place = std::find(link.flows.begin(), link.flows.end(), id);
    *place = link.flows.back();
    link.flows.pop_back();
    const bool was_full = link.used >= network_.link_bytes_per_s[use.link] * kFull;
    link.used = link.flows.empty() ? 0 : link.used - use.weight * flows_[id].rate;
    if (was_full && !link.flows.empty()) disturbed_.push_back(use.link);
  }
}

/// Updates the rates after flows have started or ended.
void Flows::settle() {
  if (disturbed_.empty()) return;
  ++visit_;
  for (const std::int32_t link : disturbed_) {
    if (links_[link].visit == visit_) continue;
    gather(link);
    fill();
  }
  disturbed_.clear();
}

/// Finds all links and flows that are connected to a link.
void Flows::gather(std::int32_t first) {
  affected_links_.assign(1, first);
  affected_flows_.clear();
  links_[first].visit = visit_;
  for (std::size_t l = 0; l < affected_links_.size(); ++l) {
    for (const std::int32_t id : links_[affected_links_[l]].flows) {
      if (flows_[id].visit == visit_) continue;
      flows_[id].visit = visit_;
      affected_flows_.push_back(id);
      for (const LinkUse& use : uses_of(flows_[id])) {
        if (links_[use.link].visit == visit_) continue;
        links_[use.link].visit = visit_;
        affected_links_.push_back(use.link);
      }
    }
  }
}

/// Sets the rates of what gather() found, by progressive filling.
void Flows::fill() {
  for (const std::int32_t l : affected_links_) {
    links_[l].spare = network_.link_bytes_per_s[l];
    links_[l].weight = 0;
    links_[l].unsettled = static_cast<std::int32_t>(links_[l].flows.size());
  }
  for (const std::int32_t id : affected_flows_) {
    for (const LinkUse& use : uses_of(flows_[id])) links_[use.link].weight += use.weight;
  }
  while (!affected_flows_.empty()) {
    double share = std::numeric_limits<double>::infinity();
    std::int32_t tightest = -1;
    for (const std::int32_t l : affected_links_) {
      if (links_[l].unsettled == 0) continue;
      const double rate = links_[l].spare / links_[l].weight;
      if (rate < share) share = rate, tightest = l;
    }
    // Settle the flows that reach their own limit before this link is full. If there are none, settle the
    // flows on the link.
    const bool limited = settle_those([&](const Flow& flow) { return limit(flow) <= share; },
                                      [&](const Flow& flow) { return limit(flow); });
    if (limited) continue;
    settle_those([&](const Flow& flow) { return uses_link(flow, tightest); },
                 [&](const Flow&) { return share; });
  }
  for (const std::int32_t l : affected_links_) {
    links_[l].used = links_[l].flows.empty() ? 0 : network_.link_bytes_per_s[l] - links_[l].spare;
  }
}

/// Settles each unsettled flow for which `which` holds at its `rate`, and returns whether there was one.
template <typename Which, typename Rate>
bool Flows::settle_those(Which which, Rate rate) {
  std::size_t kept = 0;
  for (const std::int32_t id : affected_flows_) {
    const Flow& flow = flows_[id];
    if (!which(flow)) {
      affected_flows_[kept++] = id;
      continue;
    }
    const double settled = rate(flow);
    for (const LinkUse& use : uses_of(flow)) {
      Link& link = links_[use.link];
      link.spare = std::max(0.0, link.spare - use.weight * settled);
      link.weight -= use.weight;
      --link.unsettled;
    }
    set_rate(id, settled);
  }
  const bool any = kept < affected_flows_.size();
  affected_flows_.resize(kept);
  return any;
}

void Flows::set_rate(std::int32_t id, double rate) {
  Flow& flow = flows_[id];
  if (rate == flow.rate) return;
  flow.bytes_left = std::max(0.0, flow.bytes_left - flow.rate * Seconds(now_ - flow.since).count());
  flow.since = now_;
  flow.rate = rate;
  flow.event = now_ + to_nanoseconds(Seconds(flow.bytes_left / rate));
  heap_.update(id);
}

std::span<const LinkUse> Flows::uses_of(const Flow& flow) const {
  const Route& route = network_.routes[network_.phases[flow.phase].route];
  return {network_.uses.data() + route.begin, route.end - route.begin};
}

bool Flows::uses_link(const Flow& flow, std::int32_t link) const {
  const auto uses = uses_of(flow);
  return std::any_of(uses.begin(), uses.end(), [=](const LinkUse& use) { return use.link == link; });
}

double Flows::limit(const Flow& flow) const {
  return network_.routes[network_.phases[flow.phase].route].most_bytes_per_s;
}

}  // namespace dflop
