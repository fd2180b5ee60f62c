// What a command writes says what made it; see traces/files/provenance.hpp.
#pragma once

#include <optional>
#include <string>

#include "experiments/cli/option_values.hpp"
#include "experiments/studies/study.hpp"
#include "traces/files/provenance.hpp"

namespace dflop {

/// Returns the version of this program and the commit that it was built from, the command and the machine.
/// `values`, where they have them, tell --gbs and --seed.
Provenance made_here(const Values& values);

/// Returns that, for something made of a model on a cluster.
Provenance made_here(const Values& values, const Target& target);

/// Returns that, for something made for data, too.
Provenance made_here(const Values& values, const Target& target, const DataOrigin& data);

/// Returns that, for something made of a plan and its schedule: of the data and batches that these are of.
Provenance made_here(const Values& values, const PlanFiles& files);

/// Returns the origin of a plan that has been read, or been made: of what it says, not of its file's bytes.
Origin origin_of(const Plan& plan, const std::string& name);

/// Prints what made a file on standard error, a line each; nothing where it does not say.
void say_made_by(const std::string& file, const std::optional<Provenance>& made_by);

/// Says where samples are cut at another length than those that the plan of a file was made for: it may not
/// fit these. Says nothing where neither length cuts any.
void note_other_cut(const std::string& file, std::string_view plan_json, const SampleCut& cut);

/// Notes on standard error where the model or the cluster that a plan's file was made for, as its folder,
/// file or preset says it now, is another.
void note_changed_files(const std::string& file, const std::optional<Provenance>& made_by,
                        const Target& target);

/// Notes on standard error that a plan was made with a profile, for what is made of it without one.
void note_profile_of(const std::string& file, const std::optional<Provenance>& made_by);

/// Adds --mixed.
void add_mixed_option(Options& options);

/// Checks that two files belong together.
/// @throws Error (input) naming both where they were made of different models, clusters or data, unless
/// --mixed says that it is meant; that is then noted on standard error.
void require_together(const Values& values, const std::string& file, const std::optional<Provenance>& made_by,
                      const std::string& other, const std::optional<Provenance>& others);

/// A HostLoad watches what else the machine does while it lives.
class HostLoad {
 public:
  HostLoad();

  /// Returns the part of the machine's processor time since the beginning that others have taken: other
  /// processes, and of a virtual machine its host. To about a percent of a second. Nothing where the system
  /// does not say.
  std::optional<double> others() const;

 private:
  struct Ticks {
    double all = 0;
    double idle = 0;
    double own = 0;  ///< of this process
  };

  static std::optional<Ticks> read();

  std::optional<Ticks> begin_;
};

}  // namespace dflop
