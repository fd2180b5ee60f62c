// Live runs may choose kernels. This file has their request, the file of measured times, and a run's kernel
// planner with its saved state.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "core/kernel_choice/kernel_planner.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/kernels.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A KernelRequest says who chooses the kernels of a live run.
struct KernelRequest {
  KernelMode mode = KernelMode::fixed;
  std::string file;  ///< measured times; empty with the default kernels
};

/// The default file.
inline constexpr const char* kKernelFile = "dflop.kernels";

/// Returns the properties of the world's devices that durations depend on.
KernelMachine kernel_machine(const World& world);

/// Reads a file, which must be for this machine and these variants. @throws Error (input) as
/// parse_kernel_file() and require_valid()
KernelFile read_kernel_file(const std::string& path, const KernelMachine& machine, const VariantNames& names);

/// Returns the file that a run starts with; nothing with the default kernels or if there is none.
/// @throws Error (input) as parse_kernel_file()
std::optional<Origin> origin_of_kernels(const KernelRequest& request);

/// RunKernels chooses the kernels of one run. In processes that do not lead, it only knows the mode, because
/// the leading process makes the choices.
class RunKernels {
 public:
  /// Reads the file, which is optional for a run that learns.
  /// @throws Error (input) as read_kernel_file(), and if there is none and the mode is profile
  RunKernels(const KernelRequest& request, const World& world, const VariantNames& names);

  KernelMode mode() const { return request_.mode; }
  const VariantNames& names() const { return names_; }
  KernelPlanner& planner() { return *planner_; }
  const KernelPlanner& planner() const { return *planner_; }

  /// Returns a file of everything known now, as a checkpoint has it; empty without learning.
  std::string learned() const;
  /// Continues from a checkpoint's learned(); kernels learned on another machine are ignored, with a note.
  void resume(const std::string& kept, const std::string& path);

  /// Writes learned() to the path that the run read. @throws Error (output)
  void save(const Provenance& made_by) const;

 private:
  KernelRequest request_;
  VariantNames names_;
  KernelMachine machine_;
  std::optional<KernelPlanner> planner_;
};

/// Returns the kernels of a run of a plan; null for the default ones.
/// @throws Error (usage) if ranks share devices, because kernels are measured on whole ones; Error (input) as
/// RunKernels()
std::unique_ptr<RunKernels> make_run_kernels(const KernelRequest& request, const World& world,
                                             const VariantNames& names);

/// Adjusts a profile of the default kernels to the kernels that a run starts with, like take_kernels(). If
/// the profile has other kernels than the run, and the run uses no file, prints a note.
/// @throws Error (input) as take_kernels()
void take_kernels_of_run(NamedProfile& profile, const KernelRequest& request);

/// Checks that all processes of a world have the same variants, because one process chooses for all.
/// @throws Error (input) naming the process that differs
void require_same_variants(World& world, const VariantNames& names);

/// Prints what was learned, in one line on standard error.
void say_learned(const RunKernels& kernels);

}  // namespace dflop
