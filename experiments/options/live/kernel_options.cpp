#include "experiments/options/live/kernel_options.hpp"

#include <optional>
#include <string>

#include "backend/run/worlds.hpp"
#include "experiments/options/shared_options.hpp"

namespace dflop {

void add_kernel_options(Options& options) {
  options.add(OptionGroup::times,
              {{"kernels", text("default|profile|learn", "default"),
                "kernel variants to run: the default, the fastest of the kernel file (profile), or the "
                "fastest as learned during training on a host (learn; docs/kernel-notes.md)"}});
  add_kernels_file_option(options, text("FILE"));
}

KernelRequest read_kernel_request(const Values& values, const LiveDevice& device) {
  const auto name = values["kernels"].as<std::string>();
  const std::optional<KernelMode> mode = from_string<KernelMode>(name);
  if (!mode) refuse_name("kernels", names_of(all_of<KernelMode>()), name);
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

}  // namespace dflop
