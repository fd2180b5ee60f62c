// Compares the event engine with SimGrid (S4U) on the same pipeline: both times and both makespans in one
// run. Built if libsimgrid-dev is installed.
#include <fmt/format.h>

#include <chrono>
#include <simgrid/s4u.hpp>
#include <string>
#include <vector>

#include "sim/engine.hpp"
#include "tests/sim/pipelines.hpp"

namespace dflop::testing {
namespace {

namespace sg = simgrid::s4u;

constexpr double kBytesPerS = 1e9;
constexpr double kLatencyS = 1e-6;

/// The mailbox of a channel. It has a permanent receiver, so a message starts when it is posted and not when
/// it is received.
sg::Mailbox* channel(const Message& message) {
  return sg::Mailbox::by_name(fmt::format("{}-{}", message.source, message.destination));
}

/// One actor per group; compute sleeps.
void run_group(const PricedProgram& priced, std::size_t g) {
  static char payload;
  const Program& program = priced.program;
  for (std::int64_t i = program.groups[g].begin; i < program.groups[g].end; ++i) {
    const Instruction& instruction = program.instructions[i];
    if (is_compute(instruction.op)) {
      sg::this_actor::sleep_for(Seconds(priced.costs.instruction[i]).count());
    } else if (is_send(instruction.op)) {
      const Message& message = program.messages[instruction.index];
      channel(message)->put_init(&payload, static_cast<std::uint64_t>(message.bytes.count))->detach();
    } else {
      channel(program.messages[instruction.index])->get<char>();
    }
  }
}

/// `shared`: all messages share one link; otherwise each has the whole link.
double simgrid_makespan(const PricedProgram& priced, bool shared) {
  // Plain latency + bytes / bandwidth and max-min fair shares, without SimGrid's corrections for TCP.
  std::vector<std::string> arguments = {"bench",
                                        "--cfg=network/model:CM02",
                                        "--cfg=network/bandwidth-factor:1",
                                        "--cfg=network/latency-factor:1",
                                        "--cfg=network/weight-S:0",
                                        "--cfg=network/TCP-gamma:0",
                                        "--cfg=network/crosstraffic:0",
                                        "--log=root.thresh:critical"};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  sg::Engine engine(&argc, argv.data());
  sg::NetZone* zone = sg::create_full_zone("zone");
  sg::Link* link = zone->create_link("link", kBytesPerS);
  link->set_latency(kLatencyS);
  link->set_sharing_policy(shared ? sg::Link::SharingPolicy::SHARED : sg::Link::SharingPolicy::FATPIPE);
  std::vector<sg::Host*> hosts;
  for (std::size_t g = 0; g < priced.program.groups.size(); ++g) {
    hosts.push_back(zone->create_host("host-" + std::to_string(g), 1e9));
  }
  for (std::size_t a = 0; a < hosts.size(); ++a) {
    for (std::size_t b = 0; b < hosts.size(); ++b) {
      if (a != b) {
        zone->add_route(hosts[a]->get_netpoint(), hosts[b]->get_netpoint(), nullptr, nullptr,
                        {sg::LinkInRoute(link)}, false);
      }
    }
  }
  zone->seal();
  std::vector<sg::ActorPtr> actors;
  for (std::size_t g = 0; g < hosts.size(); ++g) {
    actors.push_back(sg::Actor::create("group", hosts[g], [&priced, g] { run_group(priced, g); }));
  }
  for (const Message& message : priced.program.messages) {
    channel(message)->set_receiver(actors[message.destination]);
  }
  engine.run();
  return sg::Engine::get_clock();
}

template <typename Run>
void report(const std::string& name, const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  const double makespan = run();
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  fmt::print("{:<34} {:>10.2f} ms   makespan {:.6f} s\n", name, taken.count(), makespan);
}

}  // namespace
}  // namespace dflop::testing

/// SimGrid's engine exists once per process, so each run is a separate process.
int main(int argc, char** argv) {
  using namespace dflop;
  using namespace dflop::testing;
  if (argc != 4) {
    fmt::print(stderr, "usage: dflop_simgrid_bench STAGES MICROBATCHES plain|shared\n");
    return 2;
  }
  Pipeline pipeline;
  pipeline.stages = std::stoi(argv[1]);
  pipeline.microbatches = std::stoi(argv[2]);
  pipeline.message = Nanoseconds(1'001'000);
  const bool shared = std::string(argv[3]) == "shared";
  const PricedProgram priced = make_pipeline(pipeline);
  const auto simulate_once = [&] {
    if (!shared) return Seconds(simulate(priced.program, priced.costs, Detail::usage).makespan).count();
    const Network bus = shared_link(priced.program, Nanoseconds(1000), kBytesPerS, kBytesPerS);
    return Seconds(simulate(priced.program, priced.costs, Detail::usage, {&bus, {}}).makespan).count();
  };
  const std::string size = fmt::format("{}x{} {}", pipeline.stages, pipeline.microbatches, argv[3]);
  simulate_once();  // warm-up
  report("dflop   " + size, simulate_once);
  report("SimGrid " + size, [&] { return simgrid_makespan(priced, shared); });
  return 0;
}
