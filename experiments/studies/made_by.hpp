// This file records and checks the provenance of the files that commands write; see
// traces/files/provenance.hpp.
#pragma once

#include <optional>
#include <string>

#include "experiments/cli/option_values.hpp"
#include "experiments/studies/plan_files.hpp"
#include "experiments/studies/target.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Returns the version of this program, its commit, the command, the machine, and --gbs and --seed if
/// `values` have them.
Provenance made_here(const Values& values);

/// Returns a provenance completed for a result about a model on a cluster.
Provenance with_target(Provenance made_by, const Target& target);
/// Returns made_here() for a result about a model on a cluster.
Provenance made_here(const Values& values, const Target& target);

/// Returns the same for a result that also depends on data.
Provenance made_here(const Values& values, const Target& target, const DataOrigin& data);

/// Returns the same for a result made from a plan and its schedule, with their data and batches.
Provenance made_here(const Values& values, const PlanFiles& files);

/// Returns the origin of a plan. Its hash depends on the plan's contents, not on the bytes of the file.
Origin origin_of(const Plan& plan, const std::string& name);

/// Prints a file's provenance to standard error, one item per line; nothing if it has none.
void say_made_by(const std::string& file, const std::optional<Provenance>& made_by);

/// Prints a note if samples are truncated at a different length than the samples that the plan file was made
/// for, because the plan may not fit these. Prints nothing if neither length truncates any sample.
void note_other_cut(const std::string& file, std::string_view plan_json, const SampleCut& cut);

/// Prints a note to standard error if the folder, file or preset of the model or cluster that a plan file was
/// made for has changed since.
void note_changed_files(const std::string& file, const std::optional<Provenance>& made_by,
                        const Target& target);

/// Prints a note to standard error if a plan that was made with a profile is used without one.
void note_profile_of(const std::string& file, const std::optional<Provenance>& made_by);

/// Adds --mixed.
void add_mixed_option(Options& options);

/// Checks that two files belong together.
/// @throws Error (input) naming both if they were made with different models, clusters or data, unless
/// --mixed allows this. In that case, prints a note to standard error.
void require_together(const Values& values, const std::string& file, const std::optional<Provenance>& made_by,
                      const std::string& other, const std::optional<Provenance>& others);

/// A HostLoad measures the machine's load from other processes during its lifetime.
class HostLoad {
 public:
  HostLoad();

  /// Returns the fraction of the machine's processor time since construction that others used: other
  /// processes and, on a virtual machine, its host. It is accurate to about a percent of a second. Returns
  /// nothing if the system does not report it.
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
