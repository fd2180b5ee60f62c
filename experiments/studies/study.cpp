#include "experiments/studies/study.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "costmodel/analytic/flops.hpp"
#include "costmodel/sample_costs.hpp"
#include "experiments/cli/say.hpp"
#include "experiments/presets/presets.hpp"
#include "experiments/studies/explain.hpp"
#include "experiments/studies/made_by.hpp"
#include "solver/planners/planners.hpp"
#include "solver/planners/trials/candidates.hpp"
#include "solver/schedulers/methods.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "traces/data/records.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/samples.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

/// The random stream of the seed for batches. Schedulers and planners derive their own streams from seed and
/// iteration.
constexpr std::uint64_t kBatchStream = 0x62617463;
/// Planners see further batches, drawn with seeds that no user gives.
constexpr std::uint64_t kPlanningSeeds = 0x706c'616e'0000'0000;
constexpr std::uint64_t kHeadroomSeeds = 0x6865'6164'0000'0000;

/// Describes what was assumed for incomplete records, and which records were left out.
std::vector<std::string> assumptions_of(const Preprocessed& data, const PreprocessOptions& options) {
  const Assumptions& used = data.assumptions;
  std::vector<std::string> lines;
  if (used.image_sizes > 0) {
    lines.push_back(fmt::format("{} records lack image sizes, {}x{} assumed (--assume-image)",
                                used.image_sizes, options.assume_image.width, options.assume_image.height));
  }
  if (used.video_sizes > 0) {
    lines.push_back(fmt::format("{} records lack a video size, {}x{} assumed (--assume-video)",
                                used.video_sizes, options.assume_video.size.width,
                                options.assume_video.size.height));
  }
  if (used.video_fps > 0) {
    lines.push_back(fmt::format("{} records lack a frame rate, {} fps assumed (--assume-video)",
                                used.video_fps, options.assume_video.fps));
  }
  if (used.texts > 0) {
    lines.push_back(fmt::format("{} records lack the length of their text, {} tokens assumed (--assume-text)",
                                used.texts, options.assume_text));
  }
  if (std::string cut = describe(data.cut, static_cast<std::int64_t>(data.samples.size())); !cut.empty())
    lines.push_back(std::move(cut));
  if (data.left_out > 0) {
    lines.push_back(fmt::format("{} records of other modalities left out (--modalities)", data.left_out));
  }
  return lines;
}

/// Returns advice for a plan whose model or cluster is a path relative to another folder; "" if it is not.
std::string folder_hint(const std::string& name) {
  const std::size_t colon = name.rfind(':');  // before the number of nodes of a cluster
  const std::filesystem::path path =
      name.substr(0, name.find('/', colon) == std::string::npos ? colon : name.npos);
  std::error_code failed;
  const bool names_a_file = path.has_parent_path() || path.extension() == ".json";
  if (!names_a_file || path.is_absolute() || std::filesystem::exists(path, failed)) return "";
  return fmt::format(
      "; a plan stores paths as typed, relative to the working directory: run in the folder where the "
      "plan was made, or plan with absolute paths; the working directory is '{}'",
      std::filesystem::current_path(failed).string());
}

/// Calls find(name). Its errors also name the key of the plan that has this name.
template <typename Find>
auto named_by(const std::string& plan_file, const std::string& key, const std::string& name, Find find) {
  try {
    return find(name);
  } catch (const Error& error) {
    if (plan_file.empty()) throw;
    throw Error(error.kind(), error.what() + folder_hint(name), plan_file + ": key '" + key + "'");
  }
}

ClusterSpec changed(ClusterSpec cluster, const std::function<void(ClusterSpec&)>& change) {
  if (change) change(cluster);
  return cluster;
}

/// Returns a pointer to an object that it does not own.
template <typename T>
std::shared_ptr<const T> borrowed(const T& value) {
  return {std::shared_ptr<const T>(), &value};
}

/// Returns the cost model that the scheduler predicts with.
const CostModel& scheduling_cost(const Target& target, const SchedulerChoice& choice) {
  return choice.cost != nullptr ? *choice.cost : target.cost;
}

/// Returns the input of a service for these batches. The input owns nothing, so it is only for deterministic
/// services, whose threads end with them.
ServiceInput service_input(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                           const SchedulerChoice& choice) {
  const auto draw = [&batches](std::uint64_t k) {
    return k < batches.size() ? borrowed(batches[k]) : nullptr;
  };
  const CostModel& cost = scheduling_cost(target, choice);
  return {draw, make_scheduler(choice.name), plan, target.model, borrowed(cost)};
}

ScheduleFile empty_schedule(const Plan& plan, const std::vector<Batch>& batches,
                            const SchedulerChoice& choice, std::uint64_t seed) {
  return {choice.name, plan.model, static_cast<int>(batches.empty() ? 0 : batches[0].size()), seed, {}};
}

/// Returns whether the schedule's value must come from a run. A scheduler that minimizes makespans searches
/// with durations that are affine in the work, and these may differ from the cost model's.
bool is_run(const ScheduledIteration& iteration) {
  return iteration.objective == Objective::makespan && iteration.feasible();
}

void set_makespan(ScheduledIteration& iteration, Seconds makespan) {
  iteration.value = makespan;
  if (!meets_bound(iteration.bound.count(), makespan.count())) {
    throw Error(ErrorKind::internal, fmt::format("a makespan of {} s below its bound of {} s",
                                                 makespan.count(), iteration.bound.count()));
  }
  iteration.bound = std::min(iteration.bound, makespan);  // up to rounding
  if (iteration.met()) {
    iteration.status = ScheduleStatus::optimal;
    iteration.reason.clear();
  } else if (iteration.status == ScheduleStatus::optimal) {
    iteration.status = ScheduleStatus::heuristic;
  }
}

/// Makes an iteration infeasible if its run needs more memory than allowed. Its scheduler prevents this
/// unless the order of steps depends on durations and the scheduler's durations differ from the target's.
void refuse_overrun(const SchedulerChoice& choice, const Plan& plan, const Target& target,
                    const Timeline& run, ScheduledIteration& iteration) {
  const Bytes usable = target.cluster.gpu.usable_memory();
  if (!choice.respects_memory(plan) || peak_memory(run) <= usable) return;
  const GroupUsage& fullest = run.groups[fullest_rank({&run, 1}).group];
  iteration.status = ScheduleStatus::infeasible;
  iteration.reason = fmt::format(
      "in a run its microbatches need {:.1f} GiB on rank {}{}, {:.1f} GiB are usable",
      in_gib(fullest.peak_memory), fullest.first_rank, with_other_module(run, fullest), in_gib(usable));
  iteration.assignment = {};
}

/// Runs the iteration with the scheduler's costs, in the target's order.
Timeline predict(const Plan& plan, const Target& target, const SchedulerChoice& choice,
                 const ScheduledIteration& iteration) {
  const Iteration made = make_iteration(target.problem(), plan, iteration.samples, iteration.assignment);
  if (choice.cost == nullptr) return target.executor.run(made, Detail::usage);
  return target.executor.run(made, *choice.cost, Detail::usage);
}

/// Reports the scheduler's events to the user, and converts the batch to the form used in files.
ScheduledIteration stored(const ScheduledBatch& batch) {
  for (const ScheduleEvent& event : batch.events) {
    say("dflop: note: iteration {}: {}: {}\n", event.iteration, to_string(event.kind), event.message);
  }
  return {batch.result, *batch.samples};
}

/// An Evaluator runs the iterations of a plan one after the other and accumulates their results.
class Evaluator {
 public:
  /// Keeps spans of the first `traced` of `iterations`.
  Evaluator(const Plan& plan, const Target& target, const Executor& executor, std::size_t iterations,
            int traced)
      : plan_(plan),
        target_(target),
        executor_(executor),
        iterations_(iterations),
        traced_(static_cast<std::size_t>(traced)) {}

  /// Runs the next iteration, in the order of order_for_batch() or in the user's.
  const Timeline& run(std::span<const Sample> samples, const Assignment& assignment,
                      const std::optional<PipelineOrder>& order = {}) {
    Iteration iteration = make_iteration(target_.problem(), plan_, samples, assignment, order);
    iteration.number = result_.timelines.size();
    const Detail detail = iteration.number < traced_ ? Detail::spans : Detail::usage;
    result_.timelines.push_back(executor_.run(iteration, detail));
    if (iteration.number == 0) result_.order = std::move(iteration.order);
    const Timeline& timeline = result_.timelines.back();
    if (timeline.stalls.empty()) add(samples, timeline);
    return timeline;
  }

  /// Returns the sums and means; a run that stalled has none.
  Evaluation take() {
    if (!result_.timelines.empty() && !result_.timelines.back().stalls.empty()) return std::move(result_);
    const Seconds total = std::accumulate(times_.begin(), times_.end(), Seconds(0));
    if (total.count() <= 0) throw Error(ErrorKind::input, "the schedule has no iteration that takes time");
    std::sort(times_.begin(), times_.end());
    const auto count = static_cast<double>(times_.size());
    const ClusterSpec& cluster = target_.cluster;
    result_.mean = total / count;
    result_.p95 = nearest_rank(times_, 0.95);
    result_.samples_per_s = samples_ / total.count();
    result_.llm_tokens_per_s = tokens_ / total.count();
    result_.mfu = flop_ / (total.count() * cluster.peak_flop_per_s());
    result_.idle_fraction = idle_time_ / total.count();
    return std::move(result_);
  }

 private:
  void add(std::span<const Sample> samples, const Timeline& timeline) {
    const Seconds time = timeline.makespan;
    const Work work = total_work(samples);
    times_.push_back(time);
    samples_ += static_cast<double>(samples.size());
    tokens_ += static_cast<double>(work.llm.tokens);
    flop_ += model_flop(target_.model, work.encoder, work.llm, plan_.trained).count;
    idle_time_ += idle_fraction(timeline) * time.count();
    result_.peak_memory = std::max(result_.peak_memory, peak_memory(timeline));
    progress_.update(static_cast<std::int64_t>(times_.size()), static_cast<std::int64_t>(iterations_));
  }

  const Plan& plan_;
  const Target& target_;
  const Executor& executor_;
  std::size_t iterations_;
  std::size_t traced_;
  Evaluation result_;
  std::vector<Seconds> times_;
  double samples_ = 0;
  double tokens_ = 0;
  double flop_ = 0;
  double idle_time_ = 0;
  Progress progress_{"simulating"};
};

std::unique_ptr<const SumCostModel> cost_of(const ModelSpec& model, const ClusterSpec& cluster,
                                            const NamedProfile* profile, Use use) {
  if (profile == nullptr && use == Use::costs) require_speeds(cluster);
  if (profile == nullptr) return std::make_unique<AnalyticCostModel>(model, cluster);
  require_model(model, profile->tables, profile->path);
  if (cluster.is_mixed()) {
    refuse_input(profile->path,
                 "expected a cluster with one GPU type, because the profile is of '{}', found {} types",
                 profile->tables.device, cluster.node_groups.size());
  }
  return measured_cost(profile->tables);
}

/// Returns a sentence about samples that exceed the model's limit but are used unchanged; "" if none do.
std::string longer_than(std::int64_t most, const std::vector<Sample>& samples) {
  const auto longer =
      std::ranges::count_if(samples, [&](const Sample& sample) { return sample.llm_tokens > most; });
  if (most == 0 || longer == 0) return "";
  return fmt::format("{} of {} samples are longer than the model's {} tokens, and samples files are not cut",
                     longer, samples.size(), most);
}

/// Takes samples unchanged, except for modalities that were not requested.
Preprocessed selected(std::vector<Sample> samples, const PreprocessOptions& options) {
  Preprocessed data;
  for (Sample& sample : samples) {
    const auto& wanted = options.modalities;
    if (!wanted || std::find(wanted->begin(), wanted->end(), sample.modality) != wanted->end()) {
      data.samples.push_back(std::move(sample));
    } else {
      ++data.left_out;
    }
  }
  return data;
}

}  // namespace

Target::Target(const std::string& model_name, const std::string& cluster_name, const std::string& plan_file,
               const std::function<void(ClusterSpec&)>& change, const NamedProfile* measured, Use use)
    : model(named_by(plan_file, "model", model_name, find_model)),
      cluster(changed(named_by(plan_file, "cluster", cluster_name, find_cluster), change)),
      owned_cost(cost_of(model, cluster, measured, use)),
      cost(*owned_cost) {
  if (measured == nullptr) return;
  profile = {measured->path, measured->hash};
  kernels = measured->kernels;
}

PlanFiles::PlanFiles(const std::string& plan_file, const std::string& schedule_file,
                     const std::function<void(ClusterSpec&)>& change, const NamedProfile* profile)
    : PlanFiles(plan_file, read_text_file(plan_file), schedule_file, change, profile) {}

PlanFiles::PlanFiles(const std::string& plan_file, const std::string& plan_text,
                     const std::string& schedule_file, const std::function<void(ClusterSpec&)>& change,
                     const NamedProfile* profile)
    : plan(parse_plan(plan_text, plan_file)),
      schedule(parse_schedule(read_text_file(schedule_file), schedule_file)),
      target(plan.model, plan.cluster, plan_file, change, profile),
      plan_made_by(parse_provenance(plan_text, plan_file)) {
  validate(plan, target.model, target.cluster, plan_file);
  validate(schedule, plan, schedule_file);
  if (profile == nullptr) note_profile_of(plan_file, plan_made_by);
  note_changed_files(plan_file, plan_made_by, target);
  if (profile != nullptr) require_measured(*profile, plan, target.model);
}

void SchedulerChoice::keep_within_memory() {
  if (!respect_memory && find_method(name).minimises) respect_memory = true;
}

ScheduleLimits SchedulerChoice::limits_on(const ClusterSpec& cluster, const Plan& plan) const {
  ScheduleLimits all = limits;
  all.usable_memory = cluster.gpu.usable_memory();
  if (respects_memory(plan)) all.memory = cluster.gpu.usable_memory();
  return all;
}

std::string describe(const SampleCut& cut, std::int64_t samples) {
  if (cut.samples == 0) return "";
  const double percent = 100 * cut.share();
  const std::string part = percent < 0.05 ? "< 0.1" : fmt::format("{:.1f}", percent);
  if (cut.drops) {
    return fmt::format("{} samples longer than {} tokens left out, {} % of all tokens (--drop-long)",
                       cut.samples, cut.longest, part);
  }
  return fmt::format("{}{} samples cut at {} tokens, {} % of all tokens (--max-tokens)", cut.samples,
                     samples > 0 ? fmt::format(" of {}", samples) : "", cut.longest, part);
}

void check_data(const std::string& file) {
  const std::string text = read_text_file(file);
  if (holds_samples(text)) {
    parse_samples(text, file);
  } else {
    parse_records(text, file);
  }
}

std::vector<Sample> load_samples(const std::string& file, const PreprocessOptions& options, bool report,
                                 DataOrigin* origin, const std::vector<std::string>& of_records) {
  const std::string text = read_text_file(file);
  if (holds_samples(text) && !of_records.empty()) {
    refuse_option(of_records.front(), fmt::format("applies only to records, but {} has samples", file));
  }
  Preprocessed data = holds_samples(text) ? selected(parse_samples(text, file), options)
                                          : preprocess(parse_records(text, file), options, file);
  std::vector<std::string> assumptions = assumptions_of(data, options);
  if (holds_samples(text)) {
    if (std::string longer = longer_than(options.max_tokens, data.samples); !longer.empty())
      assumptions.push_back(std::move(longer));
  }
  if (report) {
    for (const std::string& assumption : assumptions) say_once(fmt::format("dflop: note: {}\n", assumption));
  }
  if (origin != nullptr) {
    *origin = {{file, content_hash(text)}, std::ssize(data.samples), assumptions, data.cut};
  }
  if (data.samples.empty() && data.cut.samples > 0) {
    throw Error(
        ErrorKind::input,
        fmt::format("every record is longer than {} tokens (--max-tokens) and is dropped (--drop-long)",
                    data.cut.longest),
        file);
  }
  if (data.samples.empty())
    throw Error(ErrorKind::input, "no record has one of the requested modalities", file);
  return std::move(data.samples);
}

BatchStream::BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed)
    : samples_(std::move(samples)),
      gbs_(static_cast<std::size_t>(gbs)),
      random_(seed, kBatchStream),
      order_(samples_->size()),
      next_(order_.size()) {
  std::iota(order_.begin(), order_.end(), 0);
}

BatchStream::BatchStream(std::shared_ptr<const std::vector<Sample>> samples, int gbs, std::uint64_t seed,
                         const OutlierDelay& delay, const ModelSpec& model)
    : BatchStream(std::move(samples), gbs, seed) {
  if (!delay.is_on()) return;
  delay_ = delay;
  std::vector<double> costs;
  costs.reserve(samples_->size());
  for (const Sample& sample : *samples_)
    costs.push_back(model_flop(model, sample.encoder(), sample.llm()).count);
  costs_ = std::make_shared<const std::vector<double>>(std::move(costs));
}

std::int32_t BatchStream::next_number() {
  if (next_ == order_.size()) {
    random_.shuffle(std::span(order_));
    next_ = 0;
  }
  return order_[next_++];
}

/// Draws the next batch or, if outliers are delayed, the next window of batches of this pass.
void BatchStream::draw_window() {
  const std::size_t left = next_ == order_.size() ? next_ : order_.size() - next_;
  const std::size_t whole = left / gbs_;
  const std::size_t batches =
      delay_.is_on() ? std::clamp<std::size_t>(whole, 1, static_cast<std::size_t>(delay_.window)) : 1;
  given_ = 0;
  window_.resize(batches * gbs_);
  for (std::int32_t& number : window_) number = next_number();
  drawn_at_.resize(window_.size());
  std::iota(drawn_at_.begin(), drawn_at_.end(), 0);
  if (batches == 1) return;
  std::vector<double> costs;
  costs.reserve(window_.size());
  for (const std::int32_t number : window_) costs.push_back((*costs_)[static_cast<std::size_t>(number)]);
  const std::vector<std::int32_t> drawn = window_;
  drawn_at_ = delay_outliers(costs, static_cast<int>(gbs_), delay_);
  for (std::size_t i = 0; i < window_.size(); ++i) window_[i] = drawn[static_cast<std::size_t>(drawn_at_[i])];
}

std::span<const std::int32_t> BatchStream::next_numbers() {
  if (given_ == window_.size()) draw_window();
  if (delay_.is_on()) {
    count_moved(std::span(drawn_at_).subspan(given_, gbs_), static_cast<int>(given_ / gbs_),
                static_cast<int>(gbs_), delayed_);
  }
  given_ += gbs_;
  return std::span(window_).subspan(given_ - gbs_, gbs_);
}

Batch BatchStream::next() {
  Batch batch;
  batch.reserve(gbs_);
  for (const std::int32_t number : next_numbers())
    batch.push_back((*samples_)[static_cast<std::size_t>(number)]);
  return batch;
}

std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed) {
  BatchStream stream(borrowed(samples), gbs, seed);
  std::vector<Batch> batches(static_cast<std::size_t>(iterations));
  for (Batch& batch : batches) batch = stream.next();
  return batches;
}

namespace {

/// Returns one in 64 samples, but at most `most`. They are the samples with the most LLM tokens and the most
/// encoder tokens, in turn.
std::vector<const Sample*> longest_of(const std::vector<Sample>& samples, std::size_t most) {
  constexpr std::size_t kOneOf = 64;
  const std::size_t count = std::clamp(samples.size() / kOneOf, std::size_t{1}, most);
  std::vector<const Sample*> rest;
  for (const Sample& sample : samples) rest.push_back(&sample);
  std::vector<const Sample*> longest;
  while (longest.size() < count) {
    const bool of_llm = longest.size() % 2 == 0;
    const auto tokens = [&](const Sample* sample) {
      return of_llm ? sample->llm_tokens : sample->encoder().tokens;
    };
    const auto next = std::ranges::max_element(rest, {}, tokens);
    longest.push_back(*next);
    rest.erase(next);
  }
  return longest;
}

/// Returns the number of further batches to draw.
std::size_t count_to_draw(int gbs) {
  constexpr std::size_t kMost = 64;
  constexpr std::size_t kLeast = 16;
  constexpr std::size_t kSamplesInAll = std::size_t{1} << 14;  // so that fewer large batches are drawn
  return std::clamp(kSamplesInAll / static_cast<std::size_t>(gbs), kLeast, kMost);
}

/// Appends for each sample the next batch of a stream, with this sample at the front.
void append_with(const std::vector<const Sample*>& longest, BatchStream& stream,
                 std::vector<Batch>& batches) {
  for (const Sample* sample : longest) {
    Batch& batch = batches.emplace_back(stream.next());
    const auto place = std::ranges::find(batch, sample->id, &Sample::id);
    if (place == batch.end()) {
      batch.front() = *sample;
    } else {
      std::swap(batch.front(), *place);
    }
  }
}

}  // namespace

FurtherBatches further_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed) {
  const std::size_t count = count_to_draw(gbs);
  BatchStream stream(borrowed(samples), gbs, seed);
  FurtherBatches further;
  for (std::size_t k = 0; k < count; ++k) further.drawn.push_back(stream.next());
  append_with(longest_of(samples, count / 2), stream, further.longest);
  return further;
}

std::vector<Batch> batches_to_fit(const std::vector<Sample>& samples, int gbs, std::uint64_t seed) {
  constexpr std::size_t kOfEach = kHardestBatches / 4;
  constexpr std::uint64_t kMoreDraws = 3;  // a batch may have another long sample in addition to its own
  FurtherBatches further = further_batches(samples, gbs, seed ^ kPlanningSeeds);
  std::vector<Batch> batches;
  const auto move_from = [&](std::vector<Batch>& from, std::size_t most) {
    const auto end = from.begin() + static_cast<std::ptrdiff_t>(std::min(most, from.size()));
    std::move(from.begin(), end, std::back_inserter(batches));
    from.erase(from.begin(), end);
  };
  move_from(further.longest, kOfEach);
  const auto longest = [](const Batch& batch) {
    return std::ranges::max(batch, {}, &Sample::llm_tokens).llm_tokens;
  };
  const auto sum_of = [](const auto& tokens) {
    return [tokens](const Batch& batch) {
      std::int64_t sum = 0;
      for (const Sample& sample : batch) sum += tokens(sample);
      return sum;
    };
  };
  const auto move_hardest = [&](const auto& key) {
    std::ranges::stable_sort(further.drawn, std::greater(), key);
    move_from(further.drawn, kOfEach);
  };
  move_hardest(longest);
  move_hardest(sum_of([](const Sample& sample) { return sample.llm_tokens; }));
  move_hardest(sum_of([](const Sample& sample) { return sample.encoder().tokens; }));
  move_from(further.longest, further.longest.size());
  move_from(further.drawn, further.drawn.size());
  const std::size_t count = count_to_draw(gbs);
  const std::vector<const Sample*> all_longest = longest_of(samples, count / 2);
  for (std::uint64_t draw = 1; draw <= kMoreDraws; ++draw) {
    BatchStream stream(borrowed(samples), gbs, (seed + draw) ^ kPlanningSeeds);
    stream.skip(static_cast<std::int64_t>(count));
    append_with(all_longest, stream, batches);
  }
  FurtherBatches last = headroom_batches(samples, gbs, seed);
  move_from(last.longest, last.longest.size());
  move_from(last.drawn, last.drawn.size());
  return batches;
}

FurtherBatches headroom_batches(const std::vector<Sample>& samples, int gbs, std::uint64_t seed) {
  return further_batches(samples, gbs, seed ^ kHeadroomSeeds);
}

std::vector<Batch> make_batches(const std::vector<Sample>& samples, int gbs, int iterations,
                                std::uint64_t seed, const OutlierDelay& delay, const ModelSpec& model,
                                DataOrigin& origin) {
  BatchStream stream(borrowed(samples), gbs, seed, delay, model);
  std::vector<Batch> batches(static_cast<std::size_t>(iterations));
  for (Batch& batch : batches) batch = stream.next();
  if (delay.is_on()) {
    origin.delay = describe(delay, stream.delayed());
    say("dflop: note: {}\n", origin.delay);
  }
  return batches;
}

std::string describe(const OutlierDelay& delay) {
  return fmt::format("outliers are delayed in windows of {} batches of {}x{} bins", delay.window,
                     delay.microbatches, delay.dp);
}

std::string describe(const OutlierDelay& delay, const DelayCount& count) {
  return fmt::format("{}; {} of {} samples have moved, by at most {} batches and {:.1f} on average",
                     describe(delay), count.moved, count.samples, count.most, count.mean());
}

ScheduleFile schedule_batches(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                              const SchedulerChoice& choice, std::uint64_t seed,
                              std::vector<Seconds>* seconds) {
  SchedulingService service(service_input(plan, target, batches, choice),
                            {.seed = seed, .limits = choice.limits_on(target.cluster, plan)});
  ScheduleFile file = empty_schedule(plan, batches, choice, seed);
  Progress progress("scheduling");
  while (const std::optional<ScheduledBatch> batch = service.next()) {
    ScheduledIteration& iteration = file.iterations.emplace_back(stored(*batch));
    const bool other_order = choice.cost != nullptr && reads_tables(plan.order);
    if (is_run(iteration) || (iteration.feasible() && choice.respects_memory(plan) && other_order)) {
      const Timeline run = predict(plan, target, choice, iteration);
      if (is_run(iteration)) set_makespan(iteration, run.makespan);
      refuse_overrun(choice, plan, target, run, iteration);
    }
    if (seconds != nullptr) seconds->push_back(batch->scheduling);
    progress.update(static_cast<std::int64_t>(file.iterations.size()),
                    static_cast<std::int64_t>(batches.size()));
    if (!iteration.feasible()) break;
  }
  return file;
}

Evaluation evaluate(const Plan& plan, const Target& target, const ScheduleFile& schedule, int traced,
                    const Executor& executor, const std::optional<PipelineOrder>& order) {
  Evaluator evaluator(plan, target, executor, schedule.iterations.size(), traced);
  for (const ScheduledIteration& iteration : schedule.iterations) {
    if (!iteration.feasible()) {
      throw Error(ErrorKind::input, "the last iteration of the schedule is infeasible");
    }
    if (!evaluator.run(iteration.samples, iteration.assignment, order).stalls.empty()) break;
  }
  return evaluator.take();
}

ScheduledRun schedule_and_evaluate(const Plan& plan, const Target& target, const std::vector<Batch>& batches,
                                   const SchedulerChoice& choice, std::uint64_t seed, int traced) {
  SchedulingService service(service_input(plan, target, batches, choice),
                            {.seed = seed, .limits = choice.limits_on(target.cluster, plan)});
  ScheduledRun run{empty_schedule(plan, batches, choice, seed), {}};
  Evaluator evaluator(plan, target, target.executor, batches.size(), traced);
  while (const std::optional<ScheduledBatch> batch = service.next()) {
    ScheduledIteration& iteration = run.schedule.iterations.emplace_back(stored(*batch));
    if (!iteration.feasible()) return run;
    const Timeline& ran = evaluator.run(iteration.samples, iteration.assignment);
    const Seconds makespan = ran.makespan;
    refuse_overrun(choice, plan, target, ran, iteration);
    if (!iteration.feasible()) return run;
    if (!is_run(iteration)) continue;
    // If the scheduler predicts with the same costs as the run, the run is the measurement.
    set_makespan(iteration,
                 choice.cost == nullptr ? makespan : predict(plan, target, choice, iteration).makespan);
  }
  run.evaluation = evaluator.take();
  return run;
}

void note_gpu_types(const ClusterSpec& cluster) {
  if (!cluster.is_mixed()) return;
  std::string types;
  for (const NodeGroup& group : cluster.node_groups)
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", group.nodes, group.gpu.name);
  say("dflop: note: nodes of {}: runs use each rank's own GPU, estimates use the slowest GPU, and bounds "
      "use the fastest; plans fit into {:.1f} GiB, the smallest usable memory\n",
      types, static_cast<double>(cluster.gpu.usable_memory().count) * 0x1p-30);
}

void note_trained(const TrainedParts& trained, const ModelSpec& model) {
  validate(trained, model);
  if (!trained.all())
    say("dflop: note: trained: {}; everything else is frozen. Such plans can be simulated, but neither "
        "train nor an Executor of dflop.torch can run them\n",
        describe(trained));
}

namespace {

/// Checks each rank of a mixed cluster against its own GPU.
std::optional<std::string> out_of_own_memory(std::span<const Timeline> timelines,
                                             const ClusterSpec& cluster) {
  for (std::size_t k = 0; k < timelines.size(); ++k) {
    for (const GroupUsage& group : timelines[k].groups) {
      for (int rank = group.first_rank; rank < group.first_rank + group.ranks; ++rank) {
        const GpuSpec& gpu = cluster.gpu_of(rank);
        if (group.peak_memory <= gpu.usable_memory()) continue;
        return fmt::format(
            "out of memory, rank {} ({}, {}) needs {:.1f} GiB in iteration {}; {:.1f} GiB are usable", rank,
            timelines[k].stages[group.stage], gpu.name, in_gib(group.peak_memory), k,
            in_gib(gpu.usable_memory()));
      }
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<std::string> out_of_memory(std::span<const Timeline> timelines, const ClusterSpec& cluster) {
  if (cluster.is_mixed()) return out_of_own_memory(timelines, cluster);
  const Bytes usable = cluster.gpu.usable_memory();
  const auto fits = [&](const Timeline& timeline) { return peak_memory(timeline) <= usable; };
  if (std::all_of(timelines.begin(), timelines.end(), fits)) return std::nullopt;
  return fmt::format("out of memory, {}; {:.1f} GiB are usable", describe_fullest_rank(timelines),
                     static_cast<double>(usable.count) * 0x1p-30);
}

void validate(const ScheduleFile& schedule, const Plan& plan, const std::string& file) {
  if (schedule.model != plan.model) {
    refuse_input(file, "expected a schedule of the plan's model '{}', found '{}'", plan.model,
                 schedule.model);
  }
  for (std::size_t k = 0; k < schedule.iterations.size(); ++k) {
    const ScheduledIteration& iteration = schedule.iterations[k];
    validate(iteration.assignment, plan, iteration.samples.size(), fmt::format("{}: iteration {}", file, k));
  }
}

std::string status_counts(const ScheduleFile& schedule) {
  std::map<ScheduleStatus, int> counts;
  for (const ScheduledIteration& iteration : schedule.iterations) ++counts[iteration.status];
  std::string text;
  for (const auto& [status, count] : counts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", to_string(status), count);
  }
  return text;
}

double mean_gap(const ScheduleFile& schedule) {
  double sum = 0;
  double bounded = 0;
  for (const ScheduledIteration& iteration : schedule.iterations) {
    if (iteration.bound_kind == BoundKind::none) continue;
    sum += iteration.gap();
    ++bounded;
  }
  return bounded > 0 ? sum / bounded : 0;
}

std::string marked(const Plan& plan) {
  return describe(plan) + std::string(is_unconfirmed(plan.layout) ? kUnconfirmed : "");
}

namespace {

/// Discards a plan whose tp is not allowed. Only planners that check this themselves avoid such plans.
void refuse_split(const SearchOptions& search, PlanResult& result) {
  if (!search.can_split || !result.plan) return;
  const Plan& plan = *result.plan;
  if (search.can_split(plan.encoder.tp, plan.llm.tp)) return;
  result.infeasible_reason = fmt::format(
      "its plan {} has a tp over which the model can be split only with padding (--no-padded-heads)",
      describe(plan));
  result.best.clear();
  result.plan.reset();
}

}  // namespace

PlanResult make_plan(const std::string& planner, const Target& target, const std::vector<Sample>& samples,
                     const std::vector<Batch>& batches, int gbs, std::uint64_t seed,
                     const PlanOptions& options, const SearchOptions& search, bool best_parts) {
  constexpr double kWorthALine = 0.8;           // of the gap shown last
  constexpr double kWorthALineOfItsOwn = 0.97;  // of the objective shown last
  Seconds shown{std::numeric_limits<double>::max()};
  validate(options.trained, target.model);
  double shown_gap = std::numeric_limits<double>::max();
  Progress progress("planning " + planner);
  const std::vector<Batch> further = batches_to_fit(samples, gbs, seed);
  PlanRequest request{target.problem(),
                      target.executor,
                      gbs,
                      samples,
                      batches,
                      seed,
                      options,
                      [&](std::int64_t done, std::int64_t total) { progress.update(done, total); },
                      search,
                      [&](Seconds objective, std::optional<Seconds> bound) {
                        if (!bound && objective < kWorthALineOfItsOwn * shown) {
                          shown = objective;
                          progress.note(fmt::format("dflop: {}: best {:.3f} s", planner, objective.count()));
                        }
                        const double gap = bound ? (objective - *bound) / *bound : shown_gap;
                        if (gap > kWorthALine * shown_gap || !bound) return;
                        shown_gap = gap;
                        progress.note(fmt::format("dflop: {}: best {:.3f} s, bound {:.3f} s, gap {:.2f} %",
                                                  planner, objective.count(), bound->count(), 100 * gap));
                      },
                      further};
  const PlannerKind& kind = find_planner(planner);
  const std::unique_ptr<Planner> made = kind.make();
  const auto plan = [&] {
    return best_parts && kind.leaves_parts
               ? with_best_parts(*made, request, kind.plans_for_each_recomputation)
               : made->plan(request);
  };
  const auto start = std::chrono::steady_clock::now();
  PlanResult result = plan();
  if (!result.plan && result.candidates > 0) {
    request.further = {};  // a plan that does not fit some batch is better than none, if this is reported
    if (request.search.time_limit) {
      const Seconds left = *request.search.time_limit - Seconds(std::chrono::steady_clock::now() - start);
      request.search.time_limit = std::max(left, Seconds{0.1});
    }
    PlanResult of_batches = plan();
    const Sample& longest = *std::ranges::max_element(samples, {}, &Sample::llm_tokens);
    if (of_batches.plan) {
      progress.note(fmt::format(
          "dflop: note: {}: no plan was found that fits further batches with the longest sample, of {} "
          "LLM tokens (--max-tokens cuts it); the plan fits only the planned batches",
          planner, longest.llm_tokens));
    }
    result = std::move(of_batches);
  }
  const bool respects_memory = kind.searches && search.respect_memory;
  if (result.plan) result.plan->respect_memory = respects_memory;
  for (RankedPlan& ranked : result.best) ranked.plan.respect_memory = respects_memory;
  refuse_split(search, result);
  return result;
}

}  // namespace dflop
