#include "experiments/training/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "backend/gpus.hpp"
#include "backend/host/machine.hpp"
#include "backend/process/process_world.hpp"
#include "backend/run/worlds.hpp"
#include "core/refuse.hpp"
#include "core/support/host_cpu.hpp"
#include "experiments/cli/say.hpp"
#include "kernels/host/onednn.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

KernelMachine kernel_machine(const World& world) {
  KernelMachine machine{world.device_name(), 0, world.software(), host_cpu(), host_isa()};
  const WorldKind* host = find_world_kind(machine.device);
  if (host != nullptr && host->on_host) {
    const std::size_t usable = usable_processors().size();
    machine.processors = static_cast<std::int64_t>(usable > 0 ? usable : std::thread::hardware_concurrency());
    machine.software = host::onednn_version();
    machine.threads = world.quanta();
  } else {
    machine.processors = cuda_device(0).multiprocessors;
  }
  return machine;
}

KernelFile read_kernel_file(const std::string& path, const KernelMachine& machine,
                            const VariantNames& names) {
  KernelFile file = parse_kernel_file(read_text_file(path), path);
  require_valid(file, path, machine, names);
  return file;
}

std::optional<Origin> origin_of_kernels(const KernelRequest& request) {
  if (request.file.empty() || !std::filesystem::exists(request.file)) return std::nullopt;
  return Origin{request.file, kernels_hash(parse_kernel_file(read_text_file(request.file), request.file))};
}

RunKernels::RunKernels(const KernelRequest& request, const World& world, const VariantNames& names)
    : request_(request), names_(names) {
  KernelTable table(names);
  if (world.leads()) {
    machine_ = kernel_machine(world);
    const bool needed = request.mode == KernelMode::profile;
    if (needed && !std::filesystem::exists(request.file)) {
      refuse_input(request.file, "expected a file of kernels, found none; 'dflop kernels tune' makes it");
    }
    if (needed || std::filesystem::exists(request.file)) {
      table = read_kernel_file(request.file, machine_, names).table;
    }
  }
  planner_.emplace(request.mode, std::move(table));
}

std::string RunKernels::learned() const {
  return mode() == KernelMode::learn ? to_json(KernelFile{DFLOP_VERSION, machine_, planner_->table()}) : "";
}

void RunKernels::resume(const std::string& kept, const std::string& path) {
  if (mode() != KernelMode::learn || kept.empty()) return;
  try {
    KernelFile file = parse_kernel_file(kept, path + ": key 'kernels'");
    require_valid(file, path, machine_, names_);
    planner_.emplace(KernelMode::learn, std::move(file.table));
  } catch (const Error& error) {
    say("dflop: note: the learned kernels of the checkpoint are ignored: {}\n", error.what());
  }
}

void RunKernels::save(const Provenance& made_by) const {
  write_file_atomically(request_.file, with_provenance(learned(), made_by));
}

std::unique_ptr<RunKernels> make_run_kernels(const KernelRequest& request, const World& world,
                                             const VariantNames& names) {
  if (request.mode == KernelMode::fixed) return nullptr;
  if (world.shared_devices() > 0) {
    refuse_value("kernels", "default where ranks share devices, as kernels are measured on whole ones",
                 std::string(to_string(request.mode)));
  }
  return std::make_unique<RunKernels>(request, world, names);
}

void take_kernels_of_run(NamedProfile& profile, const KernelRequest& request) {
  if (request.mode == KernelMode::profile) return take_kernels(profile, request.file);
  const std::string& measured = profile.tables.kernels;
  const std::optional<Origin> begins = origin_of_kernels(request);
  if (measured.empty() && begins) return take_kernels(profile, request.file);
  if (measured == (begins ? begins->hash : std::string())) return;
  say("dflop: note: {}: measured with the kernels of a file ({}); the run {} {}\n", profile.path, measured,
      request.mode == KernelMode::learn ? "begins with" : "has",
      begins ? fmt::format("the kernels of another file ({})", begins->hash) : "the default kernels");
}

void require_same_variants(World& world, const VariantNames& names) {
  const KernelFile all{{}, {}, KernelTable(names)};
  require_agreement(world, {{"variants of operations, by hash", kernels_hash(all)}});
}

void say_learned(const RunKernels& kernels) {
  const auto& states = kernels.planner().states();
  const auto others =
      std::ranges::count_if(states, [](const auto& of_key) { return of_key.second.variant != 0; });
  const auto open =
      std::ranges::count_if(states, [](const auto& of_key) { return of_key.second.alive != 0; });
  say("dflop: kernels: {} of {} keys have a non-default variant, {} are still being tried; learning took "
      "{:.2f} % of the time\n",
      others, states.size(), open, 100 * kernels.planner().spent_fraction());
}

}  // namespace dflop
