// This file stores samples, the shapes that a model sees, so that users can supply data from their own
// preprocessor.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.hpp"
#include "traces/text/strict_json.hpp"

namespace dflop {

/// Returns a sample as a JSON object on one line: {"id": "a", "modality": "image", "encoder_sequences":
/// [[count, tokens, attention pairs], ...] (with a 2 as fourth number for a second encoder),
/// "encoder_output_tokens": 4, "llm_tokens": 9}.
std::string sample_line(const Sample& sample);

/// Reads a sample in the form that sample_line() writes.
/// @throws Error (input) naming the key; also for encoder outputs without encoder work, or for more outputs
/// than encoder tokens
Sample read_sample(const JsonValue& json);

/// Checks that the work of a whole batch fits the 64-bit sums in schedules and simulations.
/// @throws Error (input) naming the batch's place
void check_batch(const JsonValue& json, const std::vector<Sample>& samples);

/// Tells whether a data set's text is a file of samples rather than a CSV of records.
bool holds_samples(std::string_view text);

/// Returns a file of schema "dflop.samples", version 1.
std::string samples_json(std::span<const Sample> samples);

/// Reads a file of samples. @throws Error (input) naming the key; also for a file without samples, or for a
/// sample so large that sums over a batch could overflow
std::vector<Sample> parse_samples(std::string_view json, const std::string& file);

}  // namespace dflop
