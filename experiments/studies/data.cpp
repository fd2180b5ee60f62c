#include "experiments/studies/data.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/error.hpp"
#include "core/refuse.hpp"
#include "experiments/cli/option_values.hpp"
#include "experiments/cli/say.hpp"
#include "traces/data/records.hpp"
#include "traces/files/samples.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

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

}  // namespace dflop
