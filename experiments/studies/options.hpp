// Several commands share these groups of options, and how their values are read.
#pragma once

#include <charconv>
#include <optional>
#include <string>
#include <string_view>

#include "core/iteration/planner.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/cli/table.hpp"
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

/// A ValueText reads an option's value, as "rank=3:1.5:0.2", piece by piece. What does not fit is refused
/// with the form that was expected. It refers to its arguments.
class ValueText {
 public:
  ValueText(std::string_view option, std::string_view form, std::string_view text)
      : option_(option), form_(form), text_(text), rest_(text) {}

  /// Passes over a word, where it comes next.
  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void expect(std::string_view word) {
    if (!take(word)) fail();
  }
  template <typename Number>
  Number number(Number least, Number most) {
    Number value{};
    const auto [end, problem] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (problem != std::errc() || !(value >= least && value <= most)) fail();
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }
  void expect_end() const {
    if (!rest_.empty()) fail();
  }
  std::string_view rest() const { return rest_; }
  /// Refuses the value. @throws Error as refuse_value()
  [[noreturn]] void fail() const {
    refuse_value(std::string(option_), std::string(form_), std::string(text_));
  }

 private:
  std::string_view option_;
  std::string_view form_;
  std::string_view text_;
  std::string_view rest_;
};

/// Reads an option whose values are all of an enum. @throws Error (usage) for another one.
template <Named Enum>
Enum read_named(const Values& values, const std::string& option) {
  const auto name = values[option].as<std::string>();
  const std::optional<Enum> value = from_string<Enum>(name);
  if (!value) refuse_value(option, listed<Enum>(), name);
  return *value;
}

/// Adds --data, --modalities, --assume-image, --assume-video, --strict. `default_file` is the data set where
/// none is named; null: one has to be.
void add_data_options(Options& options, const char* default_file = nullptr);
/// Adds --model, --cluster.
void add_target_options(Options& options);
/// Adds --gbs, --iterations, --seed.
void add_batch_options(Options& options);
/// Adds --pipeline-schedule, --chunks, --recompute, --gradient-bucket, --no-zero1, --no-sequence-parallel.
void add_plan_options(Options& options);
/// Adds --objective.
void add_objective_option(Options& options);
/// Reads --objective; nothing where it was not given. @throws Error (usage) for an unknown name.
std::optional<Objective> read_objective(const Values& values);
/// Adds --scheduler, --objective, --token-cap, --respect-memory, --steps, --node-budget, --time-limit.
void add_scheduler_options(Options& options);
/// Reads what add_scheduler_options() declared, of which but `scheduler` may be missing. @throws Error
/// (usage) for an unknown name or several limits.
SchedulerChoice read_scheduler(const Values& values);
/// Adds --truth.
void add_truth_option(Options& options, bool required);

/// Adds --objective, --layout, --budget: what the planner search is told beside add_plan_options().
void add_search_options(Options& options);
/// Reads what add_search_options() declared. Order and recomputation are the search's to choose unless they
/// were given.
SearchOptions read_search_options(const Values& values);

/// Reads what add_data_options() declared; rule and maximum length come from the model.
PreprocessOptions read_preprocess_options(const Values& values, const ModelSpec& model, std::uint64_t seed);
/// Loads the data set that the option names, as read_preprocess_options() says. @throws as load_samples()
std::vector<Sample> read_samples(const Values& values, const ModelSpec& model, std::uint64_t seed,
                                 const std::string& option = "data");
PlanOptions read_plan_options(const Values& values);
Format read_format(const Values& values);

int read_gbs(const Values& values);
/// Reads --iterations. @throws Error (usage) also where gbs * iterations samples are too many to hold.
int read_iterations(const Values& values, int gbs);
std::uint64_t read_seed(const Values& values);

}  // namespace dflop
