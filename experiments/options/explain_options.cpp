#include "experiments/options/explain_options.hpp"

#include <fmt/format.h>

#include "experiments/options/shared_options.hpp"

namespace dflop {

void add_explain_options(Options& options) {
  options.add(
      OptionGroup::output,
      {{"explain", flag().common(),
        "also print the critical path and the possible gains of the slowest iteration (as table or json)"}});
  add_html_option(options);
}

void require_room_for_explanation(const Values& values, Format format) {
  if (!values["explain"].as<bool>() || format == Format::table || format == Format::json) return;
  refuse_option("explain",
                fmt::format("expected '--format table' or 'json', which can hold its tables, found '{}'",
                            to_string(format)));
}

bool wants_explanation(const Values& values) {
  return values["explain"].as<bool>() || values.count("html") > 0;
}

const Explanation* printed(const Values& values, const std::optional<Explanation>& explanation) {
  return values["explain"].as<bool>() ? &*explanation : nullptr;
}

}  // namespace dflop
