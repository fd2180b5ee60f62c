#include "experiments/serve/session.hpp"

#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "core/iteration/iteration.hpp"
#include "core/missing_encoder.hpp"
#include "core/refuse.hpp"
#include "costmodel/analytic/flops.hpp"
#include "experiments/serve/batch_window.hpp"
#include "experiments/serve/item_batches.hpp"
#include "experiments/studies/named_profile.hpp"
#include "experiments/studies/target.hpp"
#include "solver/schedulers/schedulers.hpp"
#include "solver/service/scheduling_service.hpp"
#include "traces/files/plan.hpp"
#include "traces/files/program.hpp"
#include "traces/files/schedule.hpp"
#include "traces/files/specs.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 64;
constexpr std::int64_t kMaxServedSteps = std::int64_t{1} << 40;

/// NoCosts is used for items with their own costs, which their scheduler knows.
class NoCosts final : public SumCostModel {
 public:
  Seconds compute(Op, const Stage&, const Work&) const override { return {}; }
  Seconds message(const Message&, const Program&) const override { return {}; }
  Seconds all_reduce(const Collective&, const Program&) const override { return {}; }
  Seconds optimizer_step(const Stage&) const override { return {}; }
  ModelState model_state(const Stage&) const override { return {}; }
  Bytes activation(const Stage&, const Work&) const override { return {}; }
  Bytes workspace(Op, const Stage&, const Work&) const override { return {}; }
};

struct SessionOptions {
  std::string method = "auto";
  ServiceOptions service;
};

const std::vector<std::string_view> kSessionKeys = {"method", "seed",  "live",
                                                    "depth",  "steps", "delay_outliers"};

SessionOptions read_session_options(const JsonValue& json) {
  SessionOptions options;
  if (json.has("method")) options.method = json.at("method").string();
  options.service.seed = json.has("seed") ? json.at("seed").unsigned_integer() : 1;
  if (json.has("live") && json.at("live").boolean()) options.service.mode = ServiceMode::live;
  if (json.has("depth")) options.service.depth = json.at("depth").integer(1, kMaxDepth);
  if (json.has("steps")) {
    const auto steps = json.at("steps").integer<std::int64_t>(1, kMaxServedSteps);
    options.service.limits.steps = options.service.limits.node_budget = steps;
  }
  return options;
}

void require_session_keys(const JsonValue& json, std::vector<std::string_view> keys) {
  keys.insert(keys.end(), kSessionKeys.begin(), kSessionKeys.end());
  json.require_keys({}, keys);
}

Json batch_json(const ScheduledBatch& batch) {
  Json json = {{"iteration", batch.iteration}};
  json.update(schedule_json(batch.result));
  json["scheduling_s"] = batch.scheduling.count();
  json["waited_s"] = batch.waited.count();
  json["events"] = Json::array();
  for (const ScheduleEvent& event : batch.events) {
    json["events"].push_back(
        {{"iteration", event.iteration}, {"kind", to_string(event.kind)}, {"message", event.message}});
  }
  return json;
}

OutlierDelay read_delay(const JsonValue& json, int microbatches, int dp) {
  const int window = json.has("delay_outliers") ? json.at("delay_outliers").integer(0, kMaxDelay) : 0;
  return {window, microbatches, dp};
}

/// A ServiceSession has the SchedulingService, the queue that it draws from, and before the queue the window
/// in which outliers are grouped.
class ServiceSession : public Session {
 public:
  explicit ServiceSession(const OutlierDelay& delay) : window_(delay) {}
  ~ServiceSession() override { ServiceSession::close(); }

  void ask() final {
    if (asked_ >= queue_->pushed()) {
      if (window_.batches() == 0) refuse_input("next", "expected a batch to be pushed first, found none");
      refuse_input(
          "next",
          "expected a window of {} batches, or a shorter one with 'ends_window', to be pushed first, "
          "found {}",
          window_.window(), window_.batches());
    }
    ++asked_;
  }

  void close() final {
    queue_->close();
    if (service_) service_->stop();
  }

 protected:
  void start(ServiceInput input, const ServiceOptions& options) {
    input.draw = [queue = queue_](std::uint64_t) { return queue->draw(); };
    service_ = std::make_unique<SchedulingService>(std::move(input), options);
  }

  BatchQueue& queue() const { return *queue_; }

  /// Rejects a batch that does not fit into its window.
  void check_size(const JsonValue& list, std::size_t size) const {
    if (window_.size() == 0 || window_.size() == size) return;
    list.refuse("expected {}, as in the previous batch of the same window, found {}", window_.size(), size);
  }

  /// Returns the iteration of the next pushed batch.
  std::uint64_t next_pushed() const { return window_.first() + window_.batches(); }

  /// Adds a batch, given the costs of its samples. Returns the batches to schedule now: all of a full
  /// window, or none.
  std::vector<std::vector<PushedAt>> add(const JsonValue& json, const std::vector<double>& costs) {
    const bool is_last = json.has("ends_window") && json.at("ends_window").boolean();
    if (!window_.add(costs, is_last)) return {};
    std::uint64_t iteration = window_.first();
    std::vector<std::vector<PushedAt>> batches = window_.take();
    if (!window_.is_on()) return batches;
    const std::lock_guard lock(mutex_);
    for (const std::vector<PushedAt>& batch : batches) pushed_at_[iteration++] = batch;
    return batches;
  }

  ScheduledBatch take() {
    std::optional<ScheduledBatch> batch = service_->next();
    if (!batch) refuse_input("next", "expected an open session, found one that was closed");
    return std::move(*batch);
  }

  /// Returns the answer for an iteration, and forgets the iteration.
  Json answer(const ScheduledBatch& batch) {
    Json json = batch_json(batch);
    if (!window_.is_on()) return json;
    const std::lock_guard lock(mutex_);
    json["pushed_at"] = Json::array();
    for (const PushedAt& at : pushed_at_.at(batch.iteration))
      json["pushed_at"].push_back({at.iteration, at.index});
    pushed_at_.erase(batch.iteration);
    return json;
  }

 private:
  BatchWindow window_;  // used by pushes, which come one after the other, as do asks
  std::mutex mutex_;
  std::map<std::uint64_t, std::vector<PushedAt>> pushed_at_;  // by iteration, until the iteration is answered
  std::shared_ptr<BatchQueue> queue_ = std::make_shared<BatchQueue>();
  std::unique_ptr<SchedulingService> service_;
  std::uint64_t asked_ = 0;
};

class ItemSession final : public ServiceSession {
 public:
  explicit ItemSession(const JsonValue& json) : ItemSession(json, read_item_bins(json)) {}

  ItemSession(const JsonValue& json, const ItemBins& bins)
      : ServiceSession(read_delay(json, bins.bins / bins.dp, bins.dp)), bins_(bins) {
    require_session_keys(json, {"bins", "dp", "encoder_dp", "objective", "token_cap"});
    SessionOptions options = read_session_options(json);
    ServiceInput input;
    input.plan.microbatches = bins_.bins / bins_.dp;
    input.plan.llm.dp = bins_.dp;
    input.scheduler = item_scheduler(options.method, bins_, batches_);
    input.heuristic = item_scheduler("lpt", bins_, batches_);
    input.cost = std::make_shared<NoCosts>();
    start(std::move(input), options.service);
  }

  Json opened() const override { return Json::object(); }

  Pushed push(const JsonValue& json) override {
    json.require_keys({"llm"}, {"encoder", "tokens", "stream", "ends_window"});
    ItemCosts costs = read_item_costs(json);
    const std::size_t items = costs.llm.size();
    if (items < static_cast<std::size_t>(bins_.bins))
      json.at("llm").refuse("expected at least as many items as the {} bins, found {}", bins_.bins, items);
    if (bins_.token_cap && costs.tokens.empty())
      json.refuse("expected key 'tokens', which 'token_cap' needs");
    check_size(json.at("llm"), items);
    std::vector<double> sums = costs.llm;
    for (std::size_t i = 0; i < items; ++i) sums[i] += costs.encoder[i];
    const std::uint64_t pushed = next_pushed();
    held_[pushed] = std::move(costs);
    for (const std::vector<PushedAt>& batch : add(json, sums)) {
      batches_->add(queue().pushed(), std::make_shared<const ItemCosts>(held_costs(batch)));
      queue().push(std::make_shared<const std::vector<Sample>>(batch.size()));
    }
    held_.erase(held_.begin(), held_.lower_bound(queue().pushed()));
    return {pushed, items};
  }

  Json next() override {
    const ScheduledBatch batch = take();
    batches_->forget_before(batch.iteration);
    return answer(batch);
  }

 private:
  /// Returns the costs of a batch made of held items. It uses the random stream of the pushed batch with the
  /// same number, because only items have moved between batches.
  ItemCosts held_costs(const std::vector<PushedAt>& batch) const {
    ItemCosts costs;
    for (const PushedAt& at : batch) {
      const ItemCosts& from = held_.at(at.iteration);
      costs.encoder.push_back(from.encoder[at.index]);
      costs.llm.push_back(from.llm[at.index]);
      if (!from.tokens.empty()) costs.tokens.push_back(from.tokens[at.index]);
    }
    if (costs.tokens.size() < costs.llm.size()) costs.tokens.clear();
    costs.stream = held_.at(queue().pushed()).stream;
    return costs;
  }

  ItemBins bins_;
  std::map<std::uint64_t, ItemCosts> held_;  // pushed batches, until their window is full
  std::shared_ptr<ItemBatches> batches_ = std::make_shared<ItemBatches>();
};

Plan read_plan(const JsonValue& json) {
  if (!json.is_string()) return parse_plan(json.text(), "plan");
  return parse_plan(read_text_file(json.string()), json.string());
}

std::optional<NamedProfile> read_session_profile(const JsonValue& json) {
  if (!json.has("profile")) return std::nullopt;
  return read_named_profile(json.at("profile").string());
}

/// BatchNumbers holds the numbers that a client gave to its batches, which determine random choices. A run
/// that was resumed, or whose session was opened again, therefore makes the same choices as an uninterrupted
/// run.
class BatchNumbers {
 public:
  void add(std::uint64_t iteration, std::uint64_t number) {
    const std::lock_guard lock(mutex_);
    numbers_[iteration] = number;
  }

  std::uint64_t of(std::uint64_t iteration) const {
    const std::lock_guard lock(mutex_);
    return numbers_.at(iteration);
  }

  void forget(std::uint64_t iteration) {
    const std::lock_guard lock(mutex_);
    numbers_.erase(iteration);
  }

 private:
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> numbers_;  // by the service's iteration
};

/// Schedules batches under the numbers that the client gave them.
class NumberedScheduler final : public Scheduler {
 public:
  NumberedScheduler(std::shared_ptr<const Scheduler> scheduler, std::shared_ptr<const BatchNumbers> numbers)
      : scheduler_(std::move(scheduler)), numbers_(std::move(numbers)) {}

  std::string_view name() const override { return scheduler_->name(); }

  ScheduleResult schedule(const ScheduleRequest& request) const override {
    ScheduleRequest numbered = request;
    numbered.iteration = numbers_->of(request.iteration);
    return scheduler_->schedule(numbered);
  }

 private:
  std::shared_ptr<const Scheduler> scheduler_;
  std::shared_ptr<const BatchNumbers> numbers_;
};

class PlanSession final : public ServiceSession {
 public:
  explicit PlanSession(const JsonValue& json) : PlanSession(json, read_plan(json.at("plan"))) {}

  PlanSession(const JsonValue& json, const Plan& plan)
      : ServiceSession(read_delay(json, plan.microbatches, plan.llm.dp)),
        plan_(plan),
        profile_(read_session_profile(json)),
        target_(std::make_shared<Target>(plan_.model, plan_.cluster, "plan",
                                         std::function<void(ClusterSpec&)>(), profile_ ? &*profile_ : nullptr,
                                         Use::shape)) {
    require_session_keys(json, {"plan", "program", "profile"});
    validate(plan_, target_->model, target_->cluster, "plan");
    if (profile_) {
      require_measured(*profile_, plan_, target_->model);
      measured_.emplace(profile_->tables);
    }
    with_program_ = json.has("program") && json.at("program").boolean();
    SessionOptions options = read_session_options(json);
    ScheduleLimits& limits = options.service.limits;
    limits.usable_memory = target_->cluster.gpu.usable_memory();
    if (plan_.respect_memory) limits.memory = limits.usable_memory;
    ServiceInput input;
    input.plan = plan_;
    input.model = target_->model;
    input.cost = {target_, &target_->cost};
    input.scheduler = std::make_shared<NumberedScheduler>(make_scheduler(options.method), numbers_);
    start(std::move(input), options.service);
  }

  Json opened() const override {
    if (!with_program_) return Json::object();
    Sample sample;
    sample.encoder_sequences = {{1, 1, 1}};
    sample.encoder_output_tokens = sample.llm_tokens = 1;
    const std::vector<Sample> samples(plan_.bins(), sample);
    Assignment assignment{plan_.microbatches, plan_.llm.dp, {}};
    assignment.bin.resize(samples.size());
    std::iota(assignment.bin.begin(), assignment.bin.end(), 0);
    const Iteration iteration = make_iteration(target_->problem(), plan_, samples, std::move(assignment));
    return {{"program", program_json(iteration, target_->model)}};
  }

  Pushed push(const JsonValue& json) override {
    json.require_keys({"samples"}, {"stream", "ends_window"});
    // Checked here and not when the session opens, because an Executor needs only the plan's ranks.
    if (!profile_) require_speeds(target_->cluster, "the plan's 'profile' (in Python profile=FILE)");
    std::vector<Sample> samples;
    for (const JsonValue& sample : json.at("samples").elements()) samples.push_back(read_sample(sample));
    for (const Sample& sample : samples) {
      if (const std::string missing = missing_encoder(target_->model, sample); !missing.empty())
        json.at("samples").refuse(missing);
    }
    require_enough_samples(samples.size(), plan_);
    if (measured_) {  // only a note: the server rejects no batch of a run for this reason
      const ProfileReach reach = reach_of(*measured_, plan_, target_->model, {&samples, 1});
      require_reach(*measured_, reach, profile_->path, true);
    }
    check_batch(json, samples);
    check_size(json.at("samples"), samples.size());
    const std::size_t items = samples.size();
    const std::uint64_t pushed = next_pushed();
    // Added before the batch, because the scheduler may need it as soon as the batch is there.
    numbers_->add(pushed, json.has("stream") ? json.at("stream").unsigned_integer() : pushed);
    std::vector<double> costs;
    costs.reserve(samples.size());
    for (const Sample& sample : samples)
      costs.push_back(model_flop(target_->model, sample.encoder(), sample.llm()).count);
    held_[pushed] = std::move(samples);
    for (const std::vector<PushedAt>& batch : add(json, costs)) {
      auto regrouped = std::make_shared<std::vector<Sample>>();
      regrouped->reserve(batch.size());
      for (const PushedAt& at : batch) regrouped->push_back(std::move(held_.at(at.iteration)[at.index]));
      queue().push(std::move(regrouped));
    }
    held_.erase(held_.begin(), held_.lower_bound(queue().pushed()));
    return {pushed, items};
  }

  Json next() override {
    ScheduledBatch batch = take();
    Json json = answer(batch);
    const std::uint64_t number = numbers_->of(batch.iteration);
    numbers_->forget(batch.iteration);
    if (!with_program_ || !batch.result.feasible()) return json;
    Iteration iteration =
        make_iteration(target_->problem(), plan_, *batch.samples, std::move(batch.result.assignment));
    iteration.number = number;
    json["program"] = program_json(iteration, target_->model);
    return json;
  }

 private:
  Plan plan_;
  std::optional<NamedProfile> profile_;
  std::optional<ProfiledCostModel> measured_;  // from the profile
  std::shared_ptr<Target> target_;
  std::map<std::uint64_t, std::vector<Sample>> held_;  // pushed batches, until their window is full
  std::shared_ptr<BatchNumbers> numbers_ = std::make_shared<BatchNumbers>();
  bool with_program_ = false;
};

}  // namespace

std::uint64_t BatchQueue::push(Batch batch) {
  const std::lock_guard lock(mutex_);
  if (!closed_) batches_.push_back(std::move(batch));
  changed_.notify_all();
  return pushed_++;
}

BatchQueue::Batch BatchQueue::draw() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return closed_ || !batches_.empty(); });
  if (closed_) return nullptr;
  Batch batch = std::move(batches_.front());
  batches_.pop_front();
  return batch;
}

void BatchQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

std::uint64_t BatchQueue::pushed() const {
  const std::lock_guard lock(mutex_);
  return pushed_;
}

std::unique_ptr<Session> open_session(const JsonValue& json) {
  if (json.has("plan")) return std::make_unique<PlanSession>(json);
  return std::make_unique<ItemSession>(json);
}

Json schedule_json(const ScheduleResult& result) {
  return {{"bins", result.assignment.bin},      {"objective", to_string(result.objective)},
          {"value", result.value.count()},      {"bound", result.bound.count()},
          {"status", to_string(result.status)}, {"reason", result.reason}};
}

}  // namespace dflop
