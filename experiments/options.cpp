#include "experiments/options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "core/error.hpp"
#include "solver/schedulers.hpp"
#include "traces/output_file.hpp"
#include "traces/text_file.hpp"

namespace dflop {
namespace {

namespace po = boost::program_options;

constexpr std::int64_t kMostSamples = 1'000'000;  // in a global batch
constexpr std::int64_t kMostIterations = 100'000;

[[noreturn]] void refuse(const std::string& option, const std::string& expected, const std::string& found) {
  throw Error(ErrorKind::usage,
              fmt::format("option '--{}': expected {}, found '{}'", option, expected, found));
}

/// "640x480".
std::optional<ImageSize> parse_size(std::string_view text) {
  ImageSize size;
  const char* end = text.data() + text.size();
  const auto width = std::from_chars(text.data(), end, size.width);
  if (width.ec != std::errc() || width.ptr == end || *width.ptr != 'x') return std::nullopt;
  const auto height = std::from_chars(width.ptr + 1, end, size.height);
  constexpr std::int32_t kMost = 1'000'000;
  if (height.ec != std::errc() || height.ptr != end || size.width < 1 || size.height < 1 ||
      size.width > kMost || size.height > kMost) {
    return std::nullopt;
  }
  return size;
}

/// "640x360@30".
std::optional<VideoAssumption> parse_video(std::string_view text) {
  const std::size_t at = text.find('@');
  if (at == std::string_view::npos) return std::nullopt;
  const std::optional<ImageSize> size = parse_size(text.substr(0, at));
  double fps = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data() + at + 1, end, fps);
  if (!size || problem != std::errc() || stop != end || !(fps > 0 && fps <= 1e4)) return std::nullopt;
  return VideoAssumption{*size, fps};
}

std::vector<Modality> parse_modalities(const std::string& text) {
  std::vector<Modality> modalities;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::optional<Modality> modality = modality_from_string(text.substr(begin, comma - begin));
    if (!modality)
      refuse("modalities", "a comma-separated list of text, image, multi_image, video, audio", text);
    modalities.push_back(*modality);
    begin = comma + 1;
  }
  return modalities;
}

std::string joined(const std::vector<std::string_view>& names) {
  std::string text;
  for (const std::string_view name : names) text += (text.empty() ? "" : "|") + std::string(name);
  return text;
}

}  // namespace

void add_data_options(Options& options) {
  options.add_options()                                                                             //
      ("data", po::value<std::string>()->required()->value_name("FILE"), "data set records (CSV)")  //
      ("modalities", po::value<std::string>()->value_name("LIST"),
       "use only these, as text,image,video; without it a modality that the model lacks is an error")  //
      ("assume-image", po::value<std::string>()->default_value("640x480")->value_name("WxH"),
       "size of images whose record gives none")  //
      ("assume-video", po::value<std::string>()->default_value("640x360@30")->value_name("WxH@FPS"),
       "size and frame rate of videos whose record gives none")  //
      ("strict", po::bool_switch(), "refuse records that need an assumption");
}

void add_target_options(Options& options) {
  options.add_options()                                                                               //
      ("model", po::value<std::string>()->required()->value_name("NAME|FILE"), "see 'dflop models'")  //
      ("cluster", po::value<std::string>()->required()->value_name("NAME[:NODES]|FILE[:NODES]"),
       "see 'dflop clusters'");
}

void add_batch_options(Options& options) {
  options.add_options()                                                                                 //
      ("gbs", po::value<std::int64_t>()->required()->value_name("N"), "global batch size, in samples")  //
      ("iterations", po::value<std::int64_t>()->default_value(8)->value_name("K"),
       "global batches to run")  //
      ("seed", po::value<std::int64_t>()->default_value(1)->value_name("S"), "of all random choices");
}

void add_plan_options(Options& options) {
  options.add_options()  //
      ("pipeline-schedule", po::value<std::string>()->default_value("1f1b")->value_name("1f1b|gpipe"),
       "order of forwards and backwards")  //
      ("recompute", po::value<std::string>()->default_value("full")->value_name("none|selective|full"),
       "activations computed again in the backward pass")                              //
      ("no-zero1", po::bool_switch(), "keep whole optimizer states on every dp rank")  //
      ("no-sequence-parallel", po::bool_switch(), "keep whole activations on every tp rank");
}

void add_scheduler_options(Options& options) {
  static const std::string names = joined(scheduler_names());
  options.add_options()  //
      ("scheduler", po::value<std::string>()->default_value("ilp")->value_name(names),
       "microbatch scheduler")  //
      ("node-budget", po::value<std::int64_t>()->value_name("N"),
       "branch-and-bound nodes of ilp; a budget that gives the same result on every machine")  //
      ("time-limit", po::value<double>()->value_name("SECONDS"),
       "wall-clock limit of ilp for each iteration, in place of the node budget");
}

void add_format_option(Options& options) {
  options.add_options()("format",
                        po::value<std::string>()->default_value("table")->value_name("table|json|csv"),
                        "of the result on standard output");
}

PreprocessOptions read_preprocess_options(const Values& values) {
  PreprocessOptions options;
  const auto image = values["assume-image"].as<std::string>();
  const auto video = values["assume-video"].as<std::string>();
  const std::optional<ImageSize> image_size = parse_size(image);
  const std::optional<VideoAssumption> video_shape = parse_video(video);
  if (!image_size) refuse("assume-image", "WxH, as 640x480", image);
  if (!video_shape) refuse("assume-video", "WxH@FPS, as 640x360@30", video);
  options.assume_image = *image_size;
  options.assume_video = *video_shape;
  options.strict = values["strict"].as<bool>();
  if (const auto list = read_text(values, "modalities")) options.modalities = parse_modalities(*list);
  return options;
}

PlanOptions read_plan_options(const Values& values) {
  PlanOptions options;
  const auto schedule = values["pipeline-schedule"].as<std::string>();
  const auto recompute = values["recompute"].as<std::string>();
  const auto known_schedule = pipeline_schedule_from_string(schedule);
  const auto known_recompute = recomputation_from_string(recompute);
  if (!known_schedule) refuse("pipeline-schedule", "1f1b or gpipe", schedule);
  if (!known_recompute) refuse("recompute", "none, selective or full", recompute);
  options.schedule = *known_schedule;
  options.recomputation = *known_recompute;
  options.zero1 = !values["no-zero1"].as<bool>();
  options.sequence_parallel = !values["no-sequence-parallel"].as<bool>();
  return options;
}

Format read_format(const Values& values) {
  const auto name = values["format"].as<std::string>();
  const std::optional<Format> format = format_from_string(name);
  if (!format) refuse("format", "table, json or csv", name);
  return *format;
}

std::optional<Seconds> read_time_limit(const Values& values) {
  if (values.count("time-limit") == 0) return std::nullopt;
  const double limit = read_number(values, "time-limit", 0);
  if (limit == 0) refuse("time-limit", "more than 0 seconds", "0");
  return Seconds(limit);
}

std::int64_t read_integer(const Values& values, const std::string& name, std::int64_t lowest,
                          std::int64_t highest) {
  const auto value = values[name].as<std::int64_t>();
  if (value < lowest || value > highest) {
    refuse(name, fmt::format("a whole number from {} to {}", lowest, highest), std::to_string(value));
  }
  return value;
}

double read_number(const Values& values, const std::string& name, double lowest) {
  const auto value = values[name].as<double>();
  if (!std::isfinite(value) || value < lowest)
    refuse(name, fmt::format("a number of at least {}", lowest), shortest(value));
  return value;
}

std::optional<std::string> read_text(const Values& values, const std::string& name) {
  if (values.count(name) == 0) return std::nullopt;
  return values[name].as<std::string>();
}

std::string read_document(const std::string& path) { return gunzip_if_needed(read_text_file(path), path); }

int read_gbs(const Values& values) {
  return static_cast<int>(read_integer(values, "gbs", 1, kMostSamples));
}

int read_iterations(const Values& values) {
  return static_cast<int>(read_integer(values, "iterations", 1, kMostIterations));
}

std::uint64_t read_seed(const Values& values) {
  return static_cast<std::uint64_t>(read_integer(values, "seed", 0, INT64_MAX));
}

}  // namespace dflop
