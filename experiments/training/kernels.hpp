// This file lets live runs choose kernels: the user's request, the file of measured kernel times, and a run's
// kernel planner with its saved state.
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
  std::string file;  ///< path of the measured kernel times; empty with the default kernels
};

/// The default path of the file with measured kernel times.
inline constexpr const char* kKernelFile = "dflop.kernels";

/// Returns the properties of the world's devices that affect kernel times.
KernelMachine kernel_machine(const World& world);

/// Reads a kernel file, which must be for this machine and these variants. @throws what parse_kernel_file()
/// and require_valid() throw
KernelFile read_kernel_file(const std::string& path, const KernelMachine& machine, const VariantNames& names);

/// Returns the path and hash of the kernel file that a run starts with; nullopt with the default kernels or
/// if the file does not exist.
/// @throws what parse_kernel_file() throws
std::optional<Origin> origin_of_kernels(const KernelRequest& request);

/// RunKernels chooses the kernels of one run. The leading process makes the choices; in the others,
/// RunKernels has no measured times.
class RunKernels {
 public:
  /// Reads the kernel file of `request`. In mode learn, the file may be missing.
  /// @throws Error (input) if the file is missing in mode profile; what read_kernel_file() throws
  RunKernels(const KernelRequest& request, const World& world, const VariantNames& names);

  KernelMode mode() const { return request_.mode; }
  const VariantNames& names() const { return names_; }
  KernelPlanner& planner() { return *planner_; }
  const KernelPlanner& planner() const { return *planner_; }

  /// Returns all kernel times learned so far as the text of a kernel file, for checkpoints; empty unless the
  /// mode is learn.
  std::string learned() const;
  /// Continues from `kept`, the text of learned() in the checkpoint `path`. Kernels learned on another
  /// machine are ignored, with a note.
  void resume(const std::string& kept, const std::string& path);

  /// Writes learned() to the request's kernel file. @throws Error (output)
  void save(const Provenance& made_by) const;

 private:
  KernelRequest request_;
  VariantNames names_;
  KernelMachine machine_;
  std::optional<KernelPlanner> planner_;
};

/// Makes the RunKernels of a run; null if the request is for the default kernels.
/// @throws Error (usage) if ranks share devices, because kernels are measured on whole devices; what
/// RunKernels() throws
std::unique_ptr<RunKernels> make_run_kernels(const KernelRequest& request, const World& world,
                                             const VariantNames& names);

/// Adjusts a profile measured with the default kernels to the kernels that a run starts with
/// (take_kernels()). If the profile was measured with other kernels and the run does not use exactly those,
/// mode profile rejects it; the other modes print a note.
/// @throws what take_kernels() throws
void take_kernels_of_run(NamedProfile& profile, const KernelRequest& request);

/// Checks that all processes of a world have the same kernel variants, because one process chooses for all.
/// @throws Error (input) naming the process that differs
void require_same_variants(World& world, const VariantNames& names);

/// Prints one line about the learned kernels on standard error.
void say_learned(const RunKernels& kernels);

}  // namespace dflop
