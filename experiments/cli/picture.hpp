// These functions write pictures. Pictures are made as SVG; rsvg-convert (Debian package librsvg2-bin)
// converts them to PNG or PDF.
#pragma once

#include <string>

#include "experiments/cli/option_values.hpp"

namespace dflop {

/// Reads the path of a picture that option `name` writes: SVG, PNG or PDF, according to its extension.
/// @throws Error (usage) for the extension of another picture format, or if rsvg-convert is needed and not
/// installed; what read_output() throws
std::string read_picture_output(const Values& values, const std::string& name);

/// Converts an SVG to the format of `path`'s extension: PNG with twice as many pixels in each direction, or
/// PDF. For other extensions, returns the SVG unchanged. The same SVG and version of rsvg-convert give the
/// same bytes.
/// @throws Error (output) if the conversion fails, with the converter's first line of output
std::string as_picture(const std::string& svg, const std::string& path);

}  // namespace dflop
