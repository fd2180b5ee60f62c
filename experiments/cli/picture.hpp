// Pictures are made as SVG. Those of another format are converted by rsvg-convert, of Debian's librsvg2-bin.
#pragma once

#include <string>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Reads the path of a picture that option `name` writes: SVG, or PNG or PDF by its ending.
/// @throws Error as read_output(), and (usage) for another ending of pictures, or where what converts to PNG
/// and PDF is not installed
std::string read_picture_output(const Values& values, const std::string& name);

/// Returns an SVG as the ending of `path` asks for it: PNG at twice the pixels, PDF, or else as it is. The
/// same SVG and version of rsvg-convert give the same bytes.
/// @throws Error (output) where the conversion fails, with the first line that it says
std::string as_picture(const std::string& svg, const std::string& path);

}  // namespace dflop
