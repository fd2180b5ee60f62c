// Several commands share these groups of options, and how their values are read.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "backend/content/dataset.hpp"
#include "core/iteration/planner.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/studies/study.hpp"
#include "traces/preprocess/preprocess.hpp"

namespace dflop {

/// A global batch has at most so many samples.
inline constexpr std::int64_t kMostGbs = 65'536;

/// All iterations have at most so many samples: about a gigabyte.
inline constexpr std::int64_t kMostSamplesInAll = 4'000'000;

/// Returns "a|b|c", for --help.
std::string joined(const std::vector<std::string_view>& names);

/// Returns the same of all values of an enum.
template <Named Enum>
std::string joined() {
  return joined(names_of(all_of<Enum>()));
}

/// A sample has at most so many LLM tokens.
inline constexpr std::int64_t kMostTokensOfSample = std::int64_t{1} << 22;

/// Adds --data, --modalities, --assume-image, --assume-video, --max-tokens, --strict. `default_file` is the
/// data set where none is named; null: one has to be.
void add_data_options(Options& options, const char* default_file = nullptr);
/// Adds --model, --cluster.
void add_target_options(Options& options);
/// Adds --gbs, --iterations, --seed.
void add_batch_options(Options& options);
/// Adds --delay-outliers and --outlier-bins; `bins` says what these are where they are not given.
void add_delay_options(Options& options, std::string_view bins);
/// Reads them, for batches of `gbs` samples; the bins are those of the plan where they are not given.
/// @throws Error (usage) also where there is neither, and where a batch has fewer samples than bins
OutlierDelay read_delay(const Values& values, int gbs, const Plan* plan = nullptr);
/// Adds --setting, and of its parts --pipeline-schedule, --chunks, --recompute, --gradient-bucket,
/// --placement,
/// --optimizer-states, --reshard, --zero1, --sequence-parallel and the --no-... of the last two.
void add_plan_options(Options& options);
/// Adds --objective; `otherwise` says what is small without it.
void add_objective_option(Options& options,
                          std::string_view otherwise = "what the plan was made for, else the method's own");
/// Reads --objective; nothing where it was not given. @throws Error (usage) for an unknown name.
std::optional<Objective> read_objective(const Values& values);
/// Adds --bin-order.
void add_bin_order_option(Options& options);
/// Reads --bin-order; nothing where it was not given. @throws Error (usage) for an unknown name.
std::optional<BinOrder> read_bin_order(const Values& values);
/// Adds --respect-memory and --no-respect-memory, which read_scheduler() reads.
void add_memory_options(Options& options);
/// Adds --scheduler, --objective, --bin-order, --token-cap, --respect-memory, --no-respect-memory, --steps,
/// --node-budget, --time-limit.
void add_scheduler_options(Options& options);
/// Adds --scheduler-command, --scheduler-timeout: a scheduler of the user's in place of --scheduler.
void add_scheduler_command_options(Options& options);
/// Reads what add_scheduler_options() declared, of which but `scheduler` may be missing, and where it was
/// declared, a scheduler of the user's, which is then a method (use_scheduler_command()). @throws Error
/// (usage) for an unknown name or several limits.
SchedulerChoice read_scheduler(const Values& values);
/// Takes auto in place of a scheduler that the options leave open, where the makespan of a plan's iterations
/// is to be small: by --objective, else by the plan.
void choose_for_objective(SchedulerChoice& choice, const Values& values, const Plan& plan);
/// Reads --respect-memory and --no-respect-memory; nothing where neither was given. @throws Error (usage) for
/// both
std::optional<bool> read_respect_memory(const Values& values);
/// Adds --tp, --pp, --dp, those of the encoder, and --microbatches: a plan by wish.
void add_wish_options(Options& options);
/// Reads what add_wish_options() declared. @throws Error (usage) for numbers below 1
PlanWish read_wish(const Values& values);
/// Adds --truth.
void add_truth_option(Options& options, bool required);

/// Adds --objective, --layout, --budget: what the planner search is told beside add_plan_options().
void add_search_options(Options& options);
/// Returns the options of add_search_options() and add_wish_options(), which other planners have no use for.
const std::vector<const char*>& search_only_options();
/// Reads the plans of --seed-plans, which a search looks at first. One that does not fit the model, the
/// cluster or gbs is left out, and said to be.
/// @throws Error (input) for a file that is no plan, or one of another model
std::vector<Plan> read_seed_plans(const Values& values, const Target& target, int gbs);

/// Returns whether an order, tp, pp, dp or microbatches were asked for by an option.
bool asks_for_parts(const Values& values);

/// Returns whether a module's heads can be split over tp ranks without padding; KV heads may be copied.
bool divides_heads(const TransformerSpec& module, int tp);

/// Reads --no-padded-heads, and takes a tp that pads a model's heads from what may be chosen.
void read_padding(const Values& values, const ModelSpec& model, SearchOptions& search);

/// Reads what add_search_options() declared. Order, recomputation, placement and gradient buckets are the
/// planner's to choose unless they are fixed. Beside an order or parallelism that is asked for there are
/// shared plans only where the layout is asked for, too, so that like is compared with like.
SearchOptions read_search_options(const Values& values);

/// Returns how many LLM tokens a sample has at most: --max-tokens, else what the model says.
std::int64_t read_longest(const Values& values, const ModelSpec& model);
/// Reads what add_data_options() declared; rule and maximum length come from the model, and of a folder of
/// transformers how it cuts its media.
PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed);
/// Returns the names of the options that say how samples are made of records and were given, for
/// load_samples().
std::vector<std::string> given_options_of_records(const Values& values);
/// Loads the data set that the option names, as read_preprocess_options() says, or shards. What was assumed
/// for them is told on standard error unless `notes` is false, as for commands that say it in their results.
/// @throws as load_samples(), open_shards()
std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option = "data", DataOrigin* origin = nullptr,
                                 bool notes = true);

/// Opens the tars, or the Megatron data sets, that the option names, and says what of them is left out.
/// @throws Error (usage) for options that are about records or the other kind; Error (input) as
/// open_dataset(), and where no sample is left
std::shared_ptr<const Dataset> open_shards(const Values& values, const ModelSpec& model,
                                           const std::string& option = "data", DataOrigin* origin = nullptr,
                                           bool notes = true);

/// A Setting is what all plans of a study have in common unless an option says otherwise.
struct Setting {
  std::string_view name;
  std::string_view what;  ///< for help
  PlanOptions options = {};
  bool is_fixed = false;  ///< all parts count as given: planners that could choose them do not
  std::optional<BinOrder> bin_order = {};  ///< of schedulers that take the user's options; none: their own
};

/// Returns the settings of --setting, the usual one first.
std::span<const Setting> settings();
/// Returns the setting of a name. @throws Error (usage) where there is none.
const Setting& find_setting(const std::string& name);

/// Returns what planners may choose from under a setting: everything, or its own values where those are
/// fixed.
SearchOptions open_choices(const Setting& setting);

/// Returns whether a part of the plan is not the planner's to choose: its option was given, or the setting
/// fixes it.
bool is_fixed(const Values& values, const std::string& option);
/// Reads what add_plan_options() declared: the setting, changed where an option was given. With
/// `may_spread_encoder` the order may be one of colocated plans, which the planner search alone makes.
/// @throws Error (usage)
PlanOptions read_plan_options(const Values& values, bool may_spread_encoder = false);

int read_gbs(const Values& values);
/// Reads --iterations. @throws Error (usage) also where gbs * iterations samples are too many to hold.
int read_iterations(const Values& values, int gbs);
std::uint64_t read_seed(const Values& values);

}  // namespace dflop
