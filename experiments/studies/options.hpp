// The values of options that several commands share (options/shared_options.hpp) are read here.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/iteration/planner.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/options/shared_options.hpp"
#include "experiments/studies/data.hpp"
#include "experiments/studies/scheduling.hpp"
#include "experiments/studies/target.hpp"
#include "solver/service/outlier_delay.hpp"
#include "traces/dataset/dataset.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// The max number of samples in a global batch.
inline constexpr std::int64_t kMaxGbs = 65'536;

/// The max number of samples in all iterations together: about a gigabyte.
inline constexpr std::int64_t kMaxSamplesInAll = 4'000'000;

/// The max number of LLM tokens in a sample.
inline constexpr std::int64_t kMaxTokensOfSample = std::int64_t{1} << 22;

/// Reads the options of add_delay_options(), for batches of `gbs` samples. The default for the bins comes
/// from the plan.
/// @throws Error (usage) also if there is neither, and if a batch has fewer samples than bins
OutlierDelay read_delay(const Values& values, int gbs, const Plan* plan = nullptr);
/// Adds --setting and the options that override its parts: --pipeline-schedule, --chunks, --recompute,
/// --gradient-bucket, --placement, --optimizer-states, --reshard, --zero1, --sequence-parallel and the
/// --no-... forms of the last two.
void add_plan_options(Options& options);
/// Reads --objective; nothing if it was not given. @throws Error (usage) for an unknown name.
std::optional<Objective> read_objective(const Values& values);
/// Reads --bin-order; nothing if it was not given. @throws Error (usage) for an unknown name.
std::optional<BinOrder> read_bin_order(const Values& values);
/// Reads the options of add_scheduler_options(), of which all but `scheduler` may be undeclared. If the
/// user's scheduler command is declared, reads it too and makes it a method (use_scheduler_command()).
/// @throws Error (usage) for an unknown name or several limits.
SchedulerChoice read_scheduler(const Values& values);
/// If the options do not choose a scheduler and the goal is a short makespan, by --objective or else by the
/// plan, chooses `auto`.
void choose_for_objective(SchedulerChoice& choice, const Values& values, const Plan& plan);
/// Reads --respect-memory and --no-respect-memory; nothing if neither was given. @throws Error (usage) for
/// both
std::optional<bool> read_respect_memory(const Values& values);
/// Reads the options of add_wish_options(). @throws Error (usage) for numbers below 1
PlanWish read_wish(const Values& values);

/// Returns the options of add_search_options() and add_wish_options(), which other planners ignore.
const std::vector<const char*>& search_only_options();
/// Reads the plans of --seed-plans, from which a search starts. Plans that do not fit the model, the cluster
/// or gbs are left out, with a note.
/// @throws Error (input) for a file that is not a plan, or a plan for another model
std::vector<Plan> read_seed_plans(const Values& values, const Target& target, int gbs);

/// Returns whether an option fixes an order, tp, pp, dp or microbatches.
bool asks_for_parts(const Values& values);

/// Returns whether a module's heads can be split over tp ranks without padding; KV heads may be copied.
bool divides_heads(const TransformerSpec& module, int tp);

/// Reads --no-padded-heads, and excludes every tp that pads the model's heads from the search.
void read_padding(const Values& values, const ModelSpec& model, SearchOptions& search);

/// Reads the options of add_search_options(). The planner chooses order, recomputation, placement and
/// gradient buckets unless they are fixed. If an order or parallelism is fixed, the search makes shared plans
/// only if the layout is fixed, too, so that the compared plans are alike.
SearchOptions read_search_options(const Values& values);

/// Returns the max number of LLM tokens in a sample: --max-tokens, else the model's limit.
std::int64_t read_longest(const Values& values, const ModelSpec& model);
/// Reads the options of add_data_options(). Rule and max length come from the model; for a Hugging Face
/// folder, so do the settings for splitting media.
PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed);
/// Returns the names of the given options that control how samples are made from records, for load_samples().
std::vector<std::string> given_options_of_records(const Values& values);
/// Loads the data set or shards that the option names, with read_preprocess_options(). Prints the assumptions
/// made for them to standard error unless `notes` is false, for commands that report assumptions in their
/// results.
/// @throws as load_samples(), open_shards()
std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option = "data", DataOrigin* origin = nullptr,
                                 bool notes = true);

/// Opens the tars or the Megatron data sets that the option names, and reports what is left out.
/// @throws Error (usage) for options that apply to records or to the other kind; Error (input) as
/// open_dataset(), and if no sample is left
std::shared_ptr<const Dataset> open_shards(const Values& values, const ModelSpec& model,
                                           const std::string& option = "data", DataOrigin* origin = nullptr,
                                           bool notes = true);

/// A Setting holds the options that all plans of a study share unless an option overrides them.
struct Setting {
  std::string_view name;
  std::string_view what;  ///< description for --help
  PlanOptions options = {};
  bool is_fixed = false;                   ///< treats all parts as given, so planners do not choose them
  std::optional<BinOrder> bin_order = {};  ///< for schedulers that take the user's options; none: the
                                           ///< scheduler's default
};

/// Returns the settings of --setting, the default first.
std::span<const Setting> settings();
/// Returns a setting by name. @throws Error (usage) if there is none.
const Setting& find_setting(const std::string& name);

/// Returns the choices open to planners under a setting: everything, or only its own values if those are
/// fixed.
SearchOptions open_choices(const Setting& setting);

/// Returns whether a part of the plan is not the planner's choice: its option was given, or the setting fixes
/// it.
bool is_fixed(const Values& values, const std::string& option);
/// Reads the options of add_plan_options(): the setting, overridden by given options. With
/// `may_spread_encoder` the order may be one for colocated plans, which only the planner search makes.
/// @throws Error (usage)
PlanOptions read_plan_options(const Values& values, bool may_spread_encoder = false);

int read_gbs(const Values& values);
/// Reads --iterations. @throws Error (usage) also if gbs * iterations samples are too many to hold.
int read_iterations(const Values& values, int gbs);
std::uint64_t read_seed(const Values& values);

}  // namespace dflop
