// Transfers that share links: rates derived by hand, and a property checked over random networks.
#include "sim/network/flows.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "core/program/lowering.hpp"
#include "core/support/random.hpp"
#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"
#include "tests/sim/random_program.hpp"

namespace dflop::testing {
namespace flows_test {

constexpr double kGigabyte = 1e9;  // bytes per second: one byte takes a nanosecond

/// A route over these links; `most` limits the rate of the transfer even without other transfers.
struct RouteOf {
  std::vector<LinkUse> uses;
  double most = 1e18;
};

/// Transfer t uses routes[t] and moves bytes[t] after latency[t].
Network make_network(std::vector<double> links, const std::vector<RouteOf>& routes,
                     const std::vector<double>& bytes, const std::vector<Nanoseconds>& latency = {}) {
  Network network;
  network.link_bytes_per_s = std::move(links);
  network.first_phase = {0};
  for (std::size_t t = 0; t < routes.size(); ++t) {
    const std::size_t begin = network.uses.size();
    network.uses.insert(network.uses.end(), routes[t].uses.begin(), routes[t].uses.end());
    network.routes.push_back({begin, network.uses.size(), routes[t].most});
    const auto route = static_cast<std::int32_t>(network.routes.size() - 1);
    network.phases.push_back({route, latency.empty() ? Nanoseconds(0) : latency[t], bytes[t]});
    network.first_phase.push_back(network.phases.size());
  }
  return network;
}

/// Returns when each transfer ends if transfer t starts at starts[t] (in order of time).
std::vector<std::int64_t> ends(const Network& network, const std::vector<std::int64_t>& starts) {
  Flows flows(network);
  std::vector<std::int64_t> end(starts.size());
  std::size_t next = 0;
  while (next < starts.size() || !flows.idle()) {
    if (flows.idle() || (next < starts.size() && Nanoseconds(starts[next]) < flows.next_time())) {
      flows.start(static_cast<std::int32_t>(next), Nanoseconds(starts[next]));
      ++next;
      continue;
    }
    const Nanoseconds now = flows.next_time();
    if (const auto transfer = flows.advance()) end[*transfer] = now.count();
  }
  return end;
}

using Ends = std::vector<std::int64_t>;

TEST(Flows, ALoneTransferTakesLatencyAndBytesOverBandwidth) {
  const Network network = make_network({kGigabyte}, {{{{0, 1}}}}, {5000}, {Nanoseconds(70)});
  EXPECT_EQ(ends(network, {100}), (Ends{100 + 70 + 5000}));
}

TEST(Flows, ItsRouteMayLimitIt) {
  const Network network = make_network({kGigabyte}, {{{{0, 1}}, kGigabyte / 4}}, {5000});
  EXPECT_EQ(ends(network, {0}), (Ends{20'000}));
}

// The first transfer moves 400 bytes by itself in 400 ns. After that both have half: it ends 2 * 600 ns
// later, at 1600. By then the second has moved 600 of its 1000 bytes, and it ends 400 ns later.
TEST(Flows, TwoShareALinkInHalves) {
  const Network network = make_network({kGigabyte}, {{{{0, 1}}}, {{{0, 1}}}}, {1000, 1000});
  EXPECT_EQ(ends(network, {0, 400}), (Ends{1600, 2000}));
}

// Three transfers of 900 bytes each: a saturated link moves 2700 bytes in 2700 ns, however many share it.
TEST(Flows, ASaturatedLinkTakesBytesOverBandwidth) {
  const Network network = make_network({kGigabyte}, {{{{0, 1}}}, {{{0, 1}}}, {{{0, 1}}}}, {900, 900, 900});
  EXPECT_EQ(ends(network, {0, 0, 0}), (Ends{2700, 2700, 2700}));
}

// Max-min: A crosses links of 10 and 20 GB/s, with B on the first and C on the second. A and B get 5 each, C
// gets the remaining 15. 3000 bytes take A and B 600 ns and C 200 ns.
TEST(Flows, TheRestOfABottleneckGoesToTheOthers) {
  const Network network = make_network({10 * kGigabyte, 20 * kGigabyte},
                                       {{{{0, 1}, {1, 1}}}, {{{0, 1}}}, {{{1, 1}}}}, {3000, 3000, 3000});
  EXPECT_EQ(ends(network, {0, 0, 0}), (Ends{600, 600, 200}));
}

// One transfer is limited to 2 of 10 GB/s, so the other gets 8.
TEST(Flows, TheRestOfALimitGoesToTheOthers) {
  const Network network =
      make_network({10 * kGigabyte}, {{{{0, 1}}, 2 * kGigabyte}, {{{0, 1}}}}, {2000, 8000});
  EXPECT_EQ(ends(network, {0, 0}), (Ends{1000, 1000}));
}

// A weight of 3 uses 3 of 4 GB/s when both transfers have rate 1: 1000 bytes each take 1000 ns.
TEST(Flows, WeightsCountSeveralTimes) {
  const Network network = make_network({4 * kGigabyte}, {{{{0, 3}}}, {{{0, 1}}}}, {1000, 1000});
  EXPECT_EQ(ends(network, {0, 0}), (Ends{1000, 1000}));
}

TEST(Flows, PhasesFollowEachOther) {
  Network network = make_network({kGigabyte, 2 * kGigabyte}, {{{{0, 1}}}, {{{1, 1}}}}, {100, 100},
                                 {Nanoseconds(7), Nanoseconds(5)});
  network.first_phase = {0, 2};  // one transfer with both phases: 7 + 100, then 5 + 50
  EXPECT_EQ(ends(network, {0}), (Ends{162}));
}

TEST(Flows, NothingToMoveTakesItsLatency) {
  const Network network =
      make_network({kGigabyte}, {{{{0, 1}}}, {{{0, 1}}}}, {0, 500}, {Nanoseconds(30), {}});
  EXPECT_EQ(ends(network, {0, 0}), (Ends{30, 500}));
  Network none = network;
  none.first_phase = {0, 0, 1};
  EXPECT_EQ(ends(none, {40, 40})[0], 40);
}

/// Max-min fair rates by their definition: repeatedly the smallest share over all links and limits.
std::vector<double> fair_rates(const Network& network, const std::vector<std::size_t>& moving) {
  std::vector<double> rate(network.routes.size(), 0);
  std::vector<std::size_t> open = moving;
  std::vector<double> left = network.link_bytes_per_s;
  while (!open.empty()) {
    std::vector<double> weight(left.size(), 0);
    for (const std::size_t t : open) {
      for (std::size_t u = network.routes[t].begin; u < network.routes[t].end; ++u)
        weight[network.uses[u].link] += network.uses[u].weight;
    }
    // The rate that each open transfer could have if all open transfers had the same.
    const auto possible = [&](std::size_t t) {
      double most = network.routes[t].most_bytes_per_s;
      for (std::size_t u = network.routes[t].begin; u < network.routes[t].end; ++u) {
        most = std::min(most, left[network.uses[u].link] / weight[network.uses[u].link]);
      }
      return most;
    };
    const std::size_t tightest = *std::min_element(
        open.begin(), open.end(), [&](std::size_t a, std::size_t b) { return possible(a) < possible(b); });
    rate[tightest] = possible(tightest);
    for (std::size_t u = network.routes[tightest].begin; u < network.routes[tightest].end; ++u) {
      left[network.uses[u].link] -= network.uses[u].weight * rate[tightest];
    }
    open.erase(std::find(open.begin(), open.end(), tightest));
  }
  return rate;
}

/// Computes the ends by moving all transfers from one event to the next, exactly, at their fair rates.
std::vector<double> fluid_ends(const Network& network, const std::vector<std::int64_t>& starts) {
  std::vector<double> left;
  for (const TransferPhase& phase : network.phases) left.push_back(phase.bytes);
  std::vector<double> end(starts.size(), -1);
  double now = 0;
  for (;;) {
    std::vector<std::size_t> moving;
    double until = 1e300;
    for (std::size_t t = 0; t < starts.size(); ++t) {
      const auto start = static_cast<double>(starts[t]);
      if (end[t] >= 0) continue;
      if (start <= now) {
        moving.push_back(t);
      } else {
        until = std::min(until, start);
      }
    }
    if (moving.empty() && until == 1e300) return end;
    const std::vector<double> rate = fair_rates(network, moving);
    for (const std::size_t t : moving) until = std::min(until, now + left[t] / rate[t] * 1e9);
    for (const std::size_t t : moving) {
      left[t] -= rate[t] * (until - now) / 1e9;
      if (left[t] < 1e-6) end[t] = until;
    }
    now = until;
  }
}

TEST(Flows, RandomNetworksAgreeWithTheDefinition) {
  Random random(5);
  const auto pick = [&](int bound) { return static_cast<int>(random.below(bound)); };
  for (int round = 0; round < 300; ++round) {
    std::vector<double> links;
    for (int l = 0; l < 1 + pick(5); ++l) links.push_back((1 + pick(20)) * kGigabyte / 4);
    std::vector<RouteOf> routes;
    std::vector<double> bytes;
    std::vector<std::int64_t> starts;
    std::int64_t start = 0;
    for (int t = 0; t < 1 + pick(12); ++t) {
      RouteOf route;
      for (std::size_t l = 0; l < links.size(); ++l) {
        if (pick(2) == 0) route.uses.push_back({static_cast<std::int32_t>(l), 1.0 + pick(3)});
      }
      if (route.uses.empty()) route.uses.push_back({0, 1});
      // By itself the transfer is as fast as its links allow, or slower.
      route.most = 1e300;
      for (const LinkUse& use : route.uses) route.most = std::min(route.most, links[use.link] / use.weight);
      if (pick(3) == 0) route.most /= 1 + pick(4);
      routes.push_back(route);
      bytes.push_back(1 + pick(1'000'000));
      starts.push_back(start);
      start += pick(4) == 0 ? 0 : pick(300'000);
    }
    const Network network = make_network(links, routes, bytes);
    const auto simulated = ends(network, starts);
    const auto expected = fluid_ends(network, starts);
    for (std::size_t t = 0; t < starts.size(); ++t) {
      // Every event rounds to whole nanoseconds, and each transfer has two.
      EXPECT_NEAR(static_cast<double>(simulated[t]), expected[t], 60)
          << "round " << round << " transfer " << t;
    }
  }
}

/// Gives every message its own link, with a bandwidth of bytes / time of its cost.
Network private_links(const PricedProgram& priced) {
  Network network;
  network.first_phase = {0};
  const auto add = [&](Nanoseconds latency) {
    network.phases.push_back({0, latency, 0});
    network.first_phase.push_back(network.phases.size());
  };
  network.routes = {{0, 0, kGigabyte}};
  for (const Nanoseconds time : priced.costs.message) add(time);
  for (const Nanoseconds time : priced.costs.collective) add(time);
  return network;
}

TEST(SharedNetwork, WithoutContentionEqualsLatencyAndBandwidth) {
  Random random(17);
  for (int round = 0; round < 300; ++round) {
    const PricedProgram priced = make_random_program(random);
    const Network network = private_links(priced);
    const Timeline plain = simulate(priced.program, priced.costs, Detail::spans);
    const Timeline shared = simulate(priced.program, priced.costs, Detail::spans, {&network, {}});
    ASSERT_EQ(shared.makespan, plain.makespan);
    ASSERT_EQ(shared.groups, plain.groups);
    std::map<std::pair<int, int>, Span> of_place;
    for (const Span& span : plain.spans) of_place[{span.rank, span.position}] = span;
    for (const Span& span : shared.spans) ASSERT_EQ(span, (of_place[{span.rank, span.position}]));
  }
}

// Messages of random programs on one slow bus: never faster than without the bus, never faster than the bus,
// and the shares still add up.
TEST(SharedNetwork, ABusIsNeverFasterThanItsBandwidth) {
  Random random(23);
  for (int round = 0; round < 300; ++round) {
    PricedProgram priced = make_random_program(random);
    double bytes = 0;
    for (std::size_t m = 0; m < priced.program.messages.size(); ++m) {
      bytes += static_cast<double>(priced.program.messages[m].bytes.count);
      priced.costs.message[m] = Nanoseconds(20 + priced.program.messages[m].bytes.count);
    }
    std::fill(priced.costs.collective.begin(), priced.costs.collective.end(), Nanoseconds(0));
    const Network bus = shared_link(priced.program, Nanoseconds(20), kGigabyte, kGigabyte);
    const Timeline plain = simulate(priced.program, priced.costs, Detail::usage);
    const Timeline shared = simulate(priced.program, priced.costs, Detail::spans, {&bus, {}});
    const auto messages = static_cast<std::int64_t>(priced.program.messages.size());
    // Each of a message's two events may round down by half a nanosecond.
    EXPECT_GE(shared.makespan.count() + 2 * messages, plain.makespan.count());
    EXPECT_GE(static_cast<double>(shared.makespan.count() + 2 * messages), bytes);
    Bytes sent;
    Bytes received;
    for (const Span& span : shared.spans) {
      if (is_send(span.op)) sent += span.bytes;
      if (is_receive(span.op)) received += span.bytes;
    }
    EXPECT_EQ(sent, received);
    for (const GroupUsage& usage : shared.groups) {
      EXPECT_EQ(usage.busy + usage.bubble + usage.wait, shared.makespan);
      EXPECT_GE(usage.bubble, Nanoseconds(0));
      EXPECT_LE(usage.wait, usage.transfer);
    }
  }
}

/// Makespan of 1F1B with messages of 1 MB on one link of 1 GB/s with 1 us.
double makespan_on_a_bus(int stages, int microbatches) {
  Pipeline pipeline;
  pipeline.stages = stages;
  pipeline.microbatches = microbatches;
  const PricedProgram priced = make_pipeline(pipeline);
  const Network bus = shared_link(priced.program, Nanoseconds(1000), kGigabyte, kGigabyte);
  return Seconds(simulate(priced.program, priced.costs, Detail::usage, {&bus, {}}).makespan).count();
}

// Results of SimGrid 3.32 (tests/bench/simgrid_bench.cpp). Once the bus is saturated, the order of arrival
// decides who waits, and one more nanosecond on one instruction changes the makespan of 16 x 512 by up to 0.8
// %.
TEST(SharedNetwork, AgreesWithSimGridOnABus) {
  EXPECT_NEAR(makespan_on_a_bus(2, 4), 0.154004, 1e-6);
  EXPECT_NEAR(makespan_on_a_bus(4, 8), 0.346016, 1e-6);
  EXPECT_NEAR(makespan_on_a_bus(8, 16), 0.758808, 1e-6);
  EXPECT_NEAR(makespan_on_a_bus(16, 512), 18.640594, 0.008 * 18.640594);
}

}  // namespace flows_test
}  // namespace dflop::testing
