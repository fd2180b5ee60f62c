// What the HTML pages have in common.
#pragma once

#include <string>
#include <string_view>

namespace dflop {

/// With <, >, &, ' and " as entities.
std::string html_escaped(std::string_view text);

/// A page with style and title, which is also its first heading, around `body`. It refers to nothing outside.
std::string html_page(std::string_view title, std::string_view body);

}  // namespace dflop
