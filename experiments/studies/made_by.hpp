// This file records and checks the provenance of the files that commands write; see
// traces/files/provenance.hpp.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/plan.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Returns `made_by` with the target's model, cluster, profile and kernels filled in.
Provenance with_target(Provenance made_by, const Target& target);

/// Returns the origin of a plan. Its hash depends on the plan's contents, not on the bytes of the file.
Origin origin_of(const Plan& plan, const std::string& name);

/// Prints a file's provenance to standard error, one item per line. Prints nothing if the file has none.
void say_made_by(const std::string& file, const std::optional<Provenance>& made_by);

/// Prints a note if the present samples and the samples that a plan file was made for are truncated, or left
/// out, at different lengths, because the plan may not fit the present ones. Prints nothing if neither length
/// truncates a sample.
void note_other_cut(const std::string& file, std::string_view plan_json, const SampleCut& cut);

/// Prints a note to standard error if the model or the cluster has changed since a plan file was made for it,
/// as a folder, file or preset.
void note_changed_files(const std::string& file, const std::optional<Provenance>& made_by,
                        const Target& target);

/// Prints a note to standard error if a plan that was made with a profile is used without one.
void note_profile_of(const std::string& file, const std::optional<Provenance>& made_by);

/// A HostLoad measures the machine's load from other processes during its lifetime.
class HostLoad {
 public:
  HostLoad();

  /// Returns the fraction of the machine's processor time since construction that others used: other
  /// processes and, on a virtual machine, its host. It is accurate to about a hundredth of a second. Returns
  /// nullopt if the system does not report it.
  std::optional<double> others() const;

 private:
  struct Ticks {
    double all = 0;
    double idle = 0;
    double own = 0;  ///< used by this process
  };

  static std::optional<Ticks> read();

  std::optional<Ticks> begin_;
};

}  // namespace dflop
