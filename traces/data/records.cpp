#include "traces/data/records.hpp"

#include <algorithm>
#include <array>
#include <optional>

#include "core/refuse.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/first_bytes.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

enum class Column : std::size_t {
  id,
  source,
  subset,
  modality,
  media,
  n_images,
  images,
  video_s,
  video_fps,
  video_frames,
  video_wh,
  audio_s,
  n_texts,
  prompt_tokens,
  answer_tokens,
  text_tokens,
};
constexpr std::array<std::string_view, 16> kColumns = {
    "id",      "source",        "subset",        "modality",     "media",    "n_images",
    "images",  "video_s",       "video_fps",     "video_frames", "video_wh", "audio_s",
    "n_texts", "prompt_tokens", "answer_tokens", "text_tokens"};
using FieldOfColumn = std::array<std::size_t, kColumns.size()>;

std::string_view name_of(Column column) {
  return kColumns[static_cast<std::size_t>(column)];
}

/// Returns the found text, shortened to one line of an error message.
std::string quoted(std::string_view found) {
  constexpr std::size_t kLongest = 60;
  if (found.empty()) return "an empty field";
  std::string text(found.substr(0, kLongest));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return fmt::format("'{}{}'", text, found.size() > kLongest ? "..." : "");
}

/// Reads a size such as "640x480".
bool read_size(std::string_view text, ImageSize& size) {
  const auto in_range = [](std::int32_t side) { return side >= 1 && side <= kMaxImageSide; };
  const std::size_t cross = text.find('x');
  return cross != std::string_view::npos && parse_number(text.substr(0, cross), size.width) &&
         parse_number(text.substr(cross + 1), size.height) && in_range(size.width) && in_range(size.height);
}

/// A Row gives typed access to the fields of one row by column.
class Row {
 public:
  Row(const CsvReader& reader, const FieldOfColumn& field_of, const std::vector<std::string_view>& fields)
      : reader_(reader), field_of_(field_of), fields_(fields) {}

  std::int64_t row() const { return reader_.row(); }
  std::string_view text(Column column) const { return fields_[field_of_[static_cast<std::size_t>(column)]]; }
  bool has(Column column) const { return !text(column).empty(); }

  std::optional<std::int64_t> integer(Column column, std::int64_t min, std::int64_t max) const {
    if (!has(column)) return std::nullopt;
    std::int64_t value = 0;
    if (!parse_whole(text(column), value) || value < min || value > max) {
      fail(column, fmt::format("a whole number from {} to {}", min, max));
    }
    return value;
  }

  std::optional<double> real(Column column, double min, double max) const {
    if (!has(column)) return std::nullopt;
    double value = 0;
    // The comparison is written so that NaN fails it.
    if (!parse_number(text(column), value) || !(value >= min && value <= max)) {
      fail(column, fmt::format("a number from {} to {}", min, max));
    }
    return value;
  }

  std::optional<ImageSize> size(Column column) const {
    if (!has(column)) return std::nullopt;
    ImageSize value;
    if (!read_size(text(column), value)) {
      fail(column, fmt::format("WIDTHxHEIGHT with sides from 1 to {}", kMaxImageSide));
    }
    return value;
  }

  std::vector<ImageSize> sizes(Column column) const {
    std::vector<ImageSize> values;
    if (!has(column)) return values;
    std::string_view rest = text(column);
    values.reserve(static_cast<std::size_t>(std::count(rest.begin(), rest.end(), '|')) + 1);
    for (;;) {
      const std::size_t bar = rest.find('|');
      if (!read_size(rest.substr(0, bar), values.emplace_back())) {
        fail(column, fmt::format("WIDTHxHEIGHT|WIDTHxHEIGHT|... with sides from 1 to {}", kMaxImageSide));
      }
      if (bar == std::string_view::npos) return values;
      rest.remove_prefix(bar + 1);
    }
  }

  [[noreturn]] void fail(Column column, std::string_view expected) const {
    refuse_input(reader_.place(name_of(column)), "expected {}, found {}", expected, quoted(text(column)));
  }

  [[noreturn]] void fail_without(Column a, Column b, std::string_view expected) const {
    refuse_input(fmt::format("{}, columns '{}' and '{}'", reader_.place(), name_of(a), name_of(b)),
                 "expected {}, found empty fields", expected);
  }

  std::string id() const { return reader_.id(text(Column::id), name_of(Column::id)); }

 private:
  const CsvReader& reader_;
  const FieldOfColumn& field_of_;
  const std::vector<std::string_view>& fields_;
};

void read_images(const Row& row, Record& record) {
  record.image_count = static_cast<std::int32_t>(row.integer(Column::n_images, 1, kMaxImages).value_or(0));
  record.images = row.sizes(Column::images);
  if (!record.images.empty() && record.images.size() != static_cast<std::size_t>(record.image_count)) {
    row.fail(Column::n_images, fmt::format("{}, the number of sizes in 'images'", record.images.size()));
  }
}

/// Checks that the fields required by the row's modality are present.
void require_fields(const Row& row, const Record& record) {
  switch (record.modality) {
    case Modality::text:
      if (record.text_tokens == std::int64_t{0})
        row.fail(Column::text_tokens, "at least 1 token in a text record");
      break;
    case Modality::image:
      if (record.image_count != 1) row.fail(Column::n_images, "1 for an image record");
      break;
    case Modality::multi_image:
      if (record.image_count < 2) row.fail(Column::n_images, "at least 2 for a multi_image record");
      break;
    case Modality::video:
      if (!record.video_frames && !record.video_s) {
        row.fail_without(Column::video_frames, Column::video_s, "one of the two for a video record");
      }
      break;
    case Modality::audio:
      if (!record.audio_s) row.fail(Column::audio_s, "the seconds of an audio record");
      break;
  }
}

/// Reads the number of tokens of all text, else the sum of prompt and answer; nothing if a record has
/// neither.
std::optional<std::int64_t> read_text_tokens(const Row& row) {
  const auto prompt = row.integer(Column::prompt_tokens, 0, kMaxTextTokens);
  const auto answer = row.integer(Column::answer_tokens, 0, kMaxTextTokens);
  const auto total = row.integer(Column::text_tokens, 0, kMaxTextTokens);
  if (!total && prompt && answer) return *prompt + *answer;
  if (total && prompt && answer && *total != *prompt + *answer) {
    row.fail(Column::text_tokens, fmt::format("{} = prompt_tokens + answer_tokens", *prompt + *answer));
  }
  return total;
}

Record read_record(const Row& row) {
  Record record;
  record.row = row.row();
  record.id = row.id();
  if (record.id.empty()) row.fail(Column::id, "a name");
  const auto modality = from_string<Modality>(row.text(Column::modality));
  if (!modality) row.fail(Column::modality, "text, image, multi_image, video or audio");
  record.modality = *modality;
  read_images(row, record);
  record.video_s = row.real(Column::video_s, kMinSeconds, kMaxSeconds);
  record.video_fps = row.real(Column::video_fps, kMinFps, kMaxFps);
  record.video_frames = row.integer(Column::video_frames, 1, kMaxFrames);
  record.video_size = row.size(Column::video_wh);
  record.audio_s = row.real(Column::audio_s, kMinSeconds, kMaxSeconds);
  row.integer(Column::n_texts, 0, kMaxTextTokens);  // unused, but garbage in it indicates a damaged row
  record.text_tokens = read_text_tokens(row);
  require_fields(row, record);
  return record;
}

FieldOfColumn read_header(const std::vector<std::string_view>& fields, const std::string& file) {
  constexpr std::size_t kAbsent = ~std::size_t{0};
  FieldOfColumn field_of;
  field_of.fill(kAbsent);
  const auto fail = [&](std::string_view column, std::string_view message) {
    refuse_input(fmt::format("{}:row 1, column {}", file, quoted(column)), "{}", message);
  };
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const auto known = std::find(kColumns.begin(), kColumns.end(), fields[i]);
    if (known == kColumns.end()) {
      fail(
          fields[i],
          fmt::format("unknown column; expected {}; conversations are read from tars and JSON lists (.jsonl)",
                      fmt::join(kColumns, ",")));
    }
    std::size_t& field = field_of[static_cast<std::size_t>(known - kColumns.begin())];
    if (field != kAbsent) fail(fields[i], "expected once in the header, found twice");
    field = i;
  }
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < kColumns.size(); ++i) {
    if (field_of[i] == kAbsent) missing.push_back(fmt::format("'{}'", kColumns[i]));
  }
  if (missing.empty()) return field_of;
  refuse_input(
      fmt::format("{}:row 1, column{} {}", file, missing.size() > 1 ? "s" : "", fmt::join(missing, ", ")),
      "missing from the header; all {} columns are required, but fields with unknown values may be empty",
      kColumns.size());
}

}  // namespace

std::vector<Record> load_records(const std::string& path) {
  return parse_records(read_text_file(path), path);
}

std::vector<Record> parse_records(std::string_view text, const std::string& file) {
  if (const std::string_view medium = medium_that_begins(text); !medium.empty()) {
    refuse_input(
        file,
        "expected a data set, found {}: a data set is a CSV of shapes, samples in JSON or, with the folder of "
        "a model, tars or a JSON list (.jsonl) whose conversations name their pictures, sounds and videos",
        medium);
  }
  CsvReader reader(text, file);
  std::vector<std::string_view> fields;
  if (!reader.next(fields)) {
    refuse_input(file, "expected a header and at least one record, found an empty file");
  }
  const FieldOfColumn field_of = read_header(fields, file);
  std::vector<Record> records;
  while (reader.next(fields, kColumns.size())) {
    records.push_back(read_record(Row(reader, field_of, fields)));
  }
  if (records.empty()) refuse_input(file, "expected at least one record, found only the header");
  return records;
}

}  // namespace dflop
