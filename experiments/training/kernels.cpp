#include "experiments/training/kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "backend/gpus.hpp"
#include "backend/host/machine.hpp"
#include "backend/process/process_world.hpp"
#include "backend/run/worlds.hpp"
#include "core/kernel_choice/kernel_sizes.hpp"
#include "core/refuse.hpp"
#include "core/support/host_cpu.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/options/shared_options.hpp"
#include "kernels/host/onednn.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {

void add_kernel_options(Options& options, KernelUse use) {
  options.add(
      OptionGroup::times,
      {{"kernels", text(use == KernelUse::measured ? "default|profile" : "default|profile|learn", "default"),
        "kernel variants to run: the default, the fastest of the kernel file (profile), or the "
        "fastest as learned during training on a host (learn; docs/kernel-notes.md)"}});
  add_kernels_file_option(options, text("FILE"));
}

KernelRequest read_kernel_request(const Values& values, const LiveDevice& device, KernelUse use) {
  const auto name = values["kernels"].as<std::string>();
  const std::optional<KernelMode> mode = from_string<KernelMode>(name);
  const bool learns = use != KernelUse::measured;
  if (!mode || (*mode == KernelMode::learn && !learns)) {
    std::vector<KernelMode> modes = {KernelMode::fixed, KernelMode::profile};
    if (learns) modes.push_back(KernelMode::learn);
    refuse_name("kernels", names_of(modes), name);
  }
  const std::optional<std::string> file = read_text(values, "kernels-file");
  if (*mode == KernelMode::fixed) {
    if (file) refuse_option("kernels-file", "expected '--kernels profile' or '--kernels learn' with it");
    return {};
  }
  const WorldKind* kind = find_world_kind(device.name);
  if (*mode == KernelMode::learn && (kind == nullptr || !kind->on_host)) {
    refuse_value("kernels", "default or profile on this device, whose calls return before they are done",
                 name);
  }
  if (device.partition) {
    refuse_value("kernels", "default with --partition, as kernels are measured on whole devices", name);
  }
  return {*mode, file.value_or(kKernelFile)};
}

namespace {

/// Returns the variants of a rank of the device. Ranks of a world that is measured are its own: a small one
/// beside it tells.
VariantNames variant_names_on(const LiveDevice& device, DType dtype) {
  const std::unique_ptr<World> world = make_live_world({.name = device.name}, 1);
  return LocalRank(*world, 0, dtype).kernels->variant_names();
}

}  // namespace

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
      KernelFile file = read_kernel_file(request.file, machine_, names);
      hash_ = kernels_hash(file);
      table = std::move(file.table);
    }
  }
  planner_.emplace(request.mode, std::move(table));
}

ProfilerKernels RunKernels::in_use() const {
  KernelChoices choices = planner_->next_step();
  choices.timed_one_of = 0;
  for (std::size_t i = 0; i < choices.by_key.size(); ++i) choices.by_key.value(i).trials = 0;
  return {std::move(choices), mode() == KernelMode::learn ? kernels_hash(learned()) : hash_};
}

std::string RunKernels::checkpoint() const {
  return mode() == KernelMode::learn ? to_json(LearnedKernels{machine_, planner_->state()}) : std::string();
}

void RunKernels::resume(const std::string& kept, const std::string& path) {
  if (mode() != KernelMode::learn || kept.empty()) return;
  LearnedKernels learned = parse_learned_kernels(kept, path + ": key 'kernels'");
  if (learned.machine != machine_ || learned.state.table.names() != names_) {
    say("dflop: note: {}: its learned kernels are for another machine or other variants, and are ignored\n",
        path);
    return;
  }
  planner_.emplace(KernelMode::learn, std::move(learned.state));
}

KernelFile RunKernels::learned() const {
  return {DFLOP_VERSION, machine_, planner_->state().table};
}

namespace {

/// Returns the hash of the kernels in a file; empty where there is none, "?" where it cannot be read.
std::string hash_now(const KernelRequest& request) {
  try {
    const std::optional<Origin> origin = origin_of_kernels(request);
    return origin ? origin->hash : std::string();
  } catch (const Error&) {
    return "?";
  }
}

/// Returns the first of path.learned-1, -2, ... that is not there.
std::string unused_beside(const std::string& path) {
  for (int number = 1;; ++number) {
    std::string beside = fmt::format("{}.learned-{}", path, number);
    if (!std::filesystem::exists(beside)) return beside;
  }
}

}  // namespace

void RunKernels::save(const Provenance& made_by) const {
  std::string path = request_.file;
  if (hash_now(request_) != hash_) {
    path = unused_beside(request_.file);
    say("dflop: note: {} has changed since the run began and is left unchanged; the learned kernels are in "
        "{}\n",
        request_.file, path);
  }
  write_file_atomically(path, with_provenance(to_json(learned()), made_by));
}

namespace {

/// Refuses to choose kernels for ranks that have parts of a device each.
[[noreturn]] void refuse_parts(KernelMode mode) {
  refuse_value("kernels", "default where ranks share devices, as kernels are measured on whole ones",
               std::string(to_string(mode)));
}

}  // namespace

std::unique_ptr<RunKernels> make_run_kernels(const KernelRequest& request, const World& world,
                                             const VariantNames& names, const Plan& plan,
                                             const ModelSpec& model) {
  if (request.mode == KernelMode::fixed) return nullptr;
  if (world.shared_devices() > 0) refuse_parts(request.mode);
  for (const int tp : {plan.encoder.tp, plan.llm.tp}) require_kernel_sizes(model, tp, model.name);
  return std::make_unique<RunKernels>(request, world, names);
}

void ProfilerKernels::set(ProfilerOptions& options) const {
  if (hash.empty()) return;
  options.kernels = &choices;
  options.kernels_hash = hash;
}

ProfilerKernels profiler_kernels(const KernelRequest& request, const LiveDevice& device, const World& world,
                                 const ProfilerOptions& options, const ModelSpec& model) {
  if (request.mode == KernelMode::fixed) return {};
  if (std::ranges::any_of(options.shares, [](double share) { return share < 1; })) refuse_parts(request.mode);
  for (const TpMode& mode : options.modes) require_kernel_sizes(model, mode.tp, model.name);
  const RunKernels kernels({KernelMode::profile, request.file}, world,
                           variant_names_on(device, options.dtype));
  return kernels.in_use();
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

RecordedKernels recorded_kernels(const RunKernels& kernels, std::vector<KernelChoices> steps) {
  return {kernels.mode(), kernels.file_hash(), kernels.names(), std::move(steps)};
}

void say_learned(const RunKernels& kernels) {
  const PlannerState& state = kernels.planner().state();
  std::size_t others = 0;
  std::size_t open = 0;
  for (std::size_t i = 0; i < state.keys.size(); ++i) {
    if (state.keys.value(i).variant != 0) ++others;
    if (state.keys.value(i).round < kKernelRounds) ++open;
  }
  say("dflop: kernels: {} of {} keys have a non-default variant, {} are still being tried; learning took "
      "{:.2f} % of the time\n",
      others, state.keys.size(), open, state.elapsed_ns > 0 ? 100 * state.spent_ns / state.elapsed_ns : 0);
}

}  // namespace dflop
