#include "experiments/studies/batches.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "core/support/borrowed.hpp"
#include "costmodel/analytic/flops.hpp"
#include "experiments/cli/say.hpp"
#include "solver/planners/trials/candidates.hpp"

namespace dflop {
namespace {

/// The random stream of the seed for batches. Schedulers and planners derive their own streams from seed and
/// iteration.
constexpr std::uint64_t kBatchStream = 0x62617463;
/// Planners see further batches, drawn with seeds that no user gives.
constexpr std::uint64_t kPlanningSeeds = 0x706c'616e'0000'0000;
constexpr std::uint64_t kHeadroomSeeds = 0x6865'6164'0000'0000;

}  // namespace

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
      return of_llm ? sample->llm_tokens : sample->encoder().all_tokens();
    };
    const auto next = std::ranges::max_element(rest, {}, tokens);
    longest.push_back(*next);
    rest.erase(next);
  }
  return longest;
}

/// Returns the number of further batches to draw.
std::size_t count_to_draw(int gbs) {
  constexpr std::size_t kMax = 64;
  constexpr std::size_t kMin = 16;
  constexpr std::size_t kSamplesInAll = std::size_t{1} << 14;  // so that fewer large batches are drawn
  return std::clamp(kSamplesInAll / static_cast<std::size_t>(gbs), kMin, kMax);
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
  move_hardest(sum_of([](const Sample& sample) { return sample.encoder().all_tokens(); }));
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

std::vector<Batch> make_batches(const BatchRequest& request, DataOrigin& origin) {
  BatchStream stream(borrowed(request.samples), request.gbs, request.seed, request.delay, request.model);
  std::vector<Batch> batches(static_cast<std::size_t>(request.iterations));
  for (Batch& batch : batches) batch = stream.next();
  if (request.delay.is_on()) {
    origin.delay = describe(request.delay, stream.delayed());
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

}  // namespace dflop
