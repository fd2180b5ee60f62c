// Pictures are made as SVG. rsvg-convert, from Debian's librsvg2-bin, converts them to other formats.
#pragma once

#include <string>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Reads the path of a picture that option `name` writes: SVG, PNG or PDF, according to its extension.
/// @throws what read_output() throws; Error (usage) for the extension of another picture format, or if the
/// converter to PNG and PDF is not installed
std::string read_picture_output(const Values& values, const std::string& name);

/// Converts an SVG to the format of the extension of `path`: PNG with twice as many pixels in each direction,
/// PDF, or else the unchanged SVG. The same SVG and version of rsvg-convert give the same bytes.
/// @throws Error (output) if the conversion fails, with the converter's first line of output
std::string as_picture(const std::string& svg, const std::string& path);

}  // namespace dflop
