// Live runs may choose kernels: the options that say how, the file of what was measured before, and the
// planner of a run with what it leaves behind.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/profile/profiler.hpp"
#include "backend/run/live_executor.hpp"
#include "backend/world.hpp"
#include "core/kernel_choice/kernel_planner.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/profile_option.hpp"
#include "experiments/training/live_setup.hpp"
#include "traces/files/kernels.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// A KernelRequest says who chooses the kernels of a live run.
struct KernelRequest {
  KernelMode mode = KernelMode::fixed;
  std::string file;  ///< of what was measured before; empty with the default kernels
};

/// The file where none is named.
inline constexpr const char* kKernelFile = "dflop.kernels";

/// A KernelUse says what becomes of a file of kernels.
enum class KernelUse : std::uint8_t {
  measured,  ///< it is read, and no run learns
  run,       ///< runs may learn from it on, and leave it as it is
  trained,   ///< a run that learns keeps what it has learned in it
};

/// Adds --kernels and --kernels-file.
void add_kernel_options(Options& options, KernelUse use);
/// Reads them. @throws Error (usage) for learning where no run learns, and on a device that is not done when
/// a call returns; for parts of a GPU, as kernels are measured on whole devices
KernelRequest read_kernel_request(const Values& values, const LiveDevice& device, KernelUse use);

/// Returns what durations on the world's devices depend on.
KernelMachine kernel_machine(const World& world);

/// Reads a file of this machine and these variants. @throws Error (input) as parse_kernel_file() and
/// require_valid()
KernelFile read_kernel_file(const std::string& path, const KernelMachine& machine, const VariantNames& names);

/// ProfilerKernels are the kernels with which a profile is measured.
struct ProfilerKernels {
  KernelChoices choices;
  std::string hash;  ///< of their file; empty: the default ones

  /// Sets them in options, which they outlive.
  void set(ProfilerOptions& options) const;
};

/// Returns the file that a run begins with; none with the default kernels or where there is none.
/// @throws Error (input) as parse_kernel_file()
std::optional<Origin> origin_of_kernels(const KernelRequest& request);

/// RunKernels choose the kernels of one run. In processes that do not lead they know the mode alone, as
/// choices come from the leading one.
class RunKernels {
 public:
  /// Reads the file, which a run that learns may be without.
  /// @throws Error (input) as read_kernel_file(), and where there is none and the mode is profile
  RunKernels(const KernelRequest& request, const World& world, const VariantNames& names);

  KernelMode mode() const { return request_.mode; }
  /// Returns the hash of the file that the run began with; empty for none.
  const std::string& file_hash() const { return hash_; }
  const VariantNames& names() const { return names_; }
  const KernelMachine& machine() const { return machine_; }
  KernelPlanner& planner() { return *planner_; }
  const KernelPlanner& planner() const { return *planner_; }

  /// Returns the variants that are in use now, without trials, and the hash of a file that has them.
  ProfilerKernels in_use() const;

  /// Returns what a checkpoint keeps; empty without learning.
  std::string checkpoint() const;
  /// Goes on from what a checkpoint has kept; what was learned on another machine is passed over, with a
  /// note. @throws Error (input) with `path` for what is damaged
  void resume(const std::string& kept, const std::string& path);

  /// Returns the file of what is known by now.
  KernelFile learned() const;
  /// Writes it to where the run's was read from, or where that has changed since to a new file beside it,
  /// with a note. @throws Error (output)
  void save(const Provenance& made_by) const;

 private:
  KernelRequest request_;
  VariantNames names_;
  KernelMachine machine_;
  std::string hash_;
  std::optional<KernelPlanner> planner_;
};

/// Returns what chooses the kernels of a run of a plan; null for the default ones.
/// @throws Error (usage) where ranks share devices, as kernels are measured on whole ones; Error (input) as
/// RunKernels() and, naming the model, as require_kernel_sizes()
std::unique_ptr<RunKernels> make_run_kernels(const KernelRequest& request, const World& world,
                                             const VariantNames& names, const Plan& plan,
                                             const ModelSpec& model);

/// Reads what measuring a model's parts on a world takes, by these options.
/// @throws Error (usage) for parts of a device, else as make_run_kernels()
ProfilerKernels profiler_kernels(const KernelRequest& request, const LiveDevice& device, const World& world,
                                 const ProfilerOptions& options, const ModelSpec& model);

/// Adjusts a profile of the default kernels to those with which a run begins, as take_kernels(). Where it is
/// of others than the run's, and the run does not go by a file, a note says so.
/// @throws Error (input) as take_kernels()
void take_kernels_of_run(NamedProfile& profile, const KernelRequest& request);

/// Checks that all processes of a world have the same variants, as one chooses for all.
/// @throws Error (input) naming the process that has others
void require_same_variants(World& world, const VariantNames& names);

/// Returns what a recording says of the steps' kernels.
RecordedKernels recorded_kernels(const RunKernels& kernels, std::vector<KernelChoices> steps);

/// Says what was learned, in one line on standard error.
void say_learned(const RunKernels& kernels);

}  // namespace dflop
