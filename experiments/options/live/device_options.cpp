#include "experiments/options/live/device_options.hpp"

#include <fmt/format.h>

#include <cmath>
#include <string>

#include "backend/run/worlds.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/shared_options.hpp"

namespace dflop {
namespace {

/// Reads the options of attention, which is the same on all devices except GPUs.
AttentionOptions read_attention(const Values& values, bool on_host) {
  constexpr double kMaxWorkspace = 1 << 20;  // MiB
  AttentionOptions attention{read_named<AttentionSums>(values, "attention-sums")};
  if (values.count("attention-workspace") > 0) {
    const double mib = read_number(values, "attention-workspace", 0, kMaxWorkspace);
    attention.workspace = Bytes{std::llround(mib * (1 << 20))};
  }
  const auto require_gpu = [&](const char* option) {
    if (!on_host) return;
    refuse_option(option, fmt::format("applies only to cuDNN's attention; needs --device {}",
                                      world_names([](const WorldKind& kind) { return !kind.on_host; })));
  };
  if (attention.sums != AttentionSums::fixed) require_gpu("attention-sums");
  if (attention.workspace) require_gpu("attention-workspace");
  return attention;
}

}  // namespace

void add_live_options(Options& options) {
  std::string devices;
  for (const WorldKind& kind : world_kinds()) {
    devices += fmt::format("{}{}{}: {}", devices.empty() ? "" : "; ", kind.name,
                           kind.processes ? " ('train' only)" : "", kind.what);
  }
  options.add(
      OptionGroup::device,
      {
          {"device", text("DEVICE", "host").common(), devices},
          {"partition", flag(),
           fmt::format(
               "on one GPU ({}): give each rank its own multiprocessors, the same number each, so that ranks "
               "do "
               "not distort each other's times",
               world_names([](const WorldKind& kind) { return kind.partitions; }))},
          {"dtype", text("f32|bf16", "f32"),
           "precision of activations and weights; gradients, optimizer states, and the master weights of "
           "bf16 (in checkpoints, too) are f32"},
          {"attention-sums", text(joined<AttentionSums>(), "fixed"),
           "on a GPU: order in which cuDNN sums attention gradients; any needs less memory, but runs are not "
           "bitwise reproducible"},
          {"attention-workspace", number("MIB"),
           "on a GPU: max workspace of a cuDNN attention call, in MiB; calls that need more run on dflop's "
           "own kernels; default: 3 % of the GPU's memory"},
      });
}

LiveDevice read_live_device(const Values& values) {
  LiveDevice device{values["device"].as<std::string>(), 0, values["partition"].as<bool>(), 1};
  const auto require = [&](const std::string& option, bool WorldKind::*has) {
    const WorldKind* kind = find_world_kind(device.name);
    if (kind != nullptr && kind->*has) return;
    const std::string names = world_names([&](const WorldKind& other) { return other.*has; });
    throw Error(ErrorKind::usage,
                fmt::format("option '--{}': needs --device {}, found {}", option, names, device.name));
  };
  if (device.partition) require("partition", &WorldKind::partitions);
  if (values.count("cores") > 0) require("cores", &WorldKind::on_host);
  const WorldKind& kind = world_kind(device.name);
  device.attention = read_attention(values, kind.on_host);
  kind.require();
  return device;
}

LiveDevice read_local_device(const Values& values) {
  const auto name = values["device"].as<std::string>();
  const WorldKind* found = find_world_kind(name);
  if (found == nullptr || found->processes) {
    refuse_value("device", world_names([](const WorldKind& kind) { return !kind.processes; }), name);
  }
  return read_live_device(values);
}

DType read_dtype(const Values& values) {
  const auto name = values["dtype"].as<std::string>();
  if (name == "f32") return DType::f32;
  if (name == "bf16") return DType::bf16;
  refuse_value("dtype", "f32 or bf16", name);
}

void add_cores_option(Options& options) {
  add_device_cores_option(options);
  options.add(
      OptionGroup::device,
      {{"cores", whole("N"),
        "on the host: max ranks that compute at a time, so that ranks that outnumber the cores do not "
        "distort each other's times; the others wait for their turn; 0: no limit; default: all cores that "
        "the process may use (docs/backend-notes.md)"}});
}

int read_cores(const Values& values, const LiveDevice& device) {
  constexpr int kMaxCores = 1 << 20;
  if (values.count("cores") == 0) return default_cores(device);
  return static_cast<int>(read_integer(values, "cores", 0, kMaxCores));
}

void add_device_cores_option(Options& options) {
  options.add(
      OptionGroup::device,
      {
          {"device-cores", whole("D", 1),
           "on the host: cores of each device, and threads of its rank; in a shared plan, encoder and LLM "
           "share the cores. Results are the same for every D of at least 2"},
      });
}

int read_device_cores(const Values& values, const LiveDevice& device) {
  constexpr int kMaxDeviceCores = 1 << 10;
  const auto cores = static_cast<int>(read_integer(values, "device-cores", 1, kMaxDeviceCores));
  if (cores == 1) return cores;
  if (!world_kind(device.name).on_host) {
    throw Error(ErrorKind::usage,
                fmt::format("option '--device-cores': needs --device {}, found {}",
                            world_names([](const WorldKind& kind) { return kind.on_host; }), device.name));
  }
  if (const int usable = default_cores(device); cores > usable) {
    say("dflop: note: each device has {} cores, but this process may use only {}: threads wait for each "
        "other\n",
        cores, usable);
  }
  return cores;
}

}  // namespace dflop
