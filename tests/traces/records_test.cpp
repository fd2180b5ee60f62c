#include "traces/data/records.hpp"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "core/support/random.hpp"
#include "traces/text/csv.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace records_test {

constexpr const char* kHeader =
    "id,source,subset,modality,media,n_images,images,video_s,video_fps,video_frames,video_wh,audio_s,n_texts,"
    "prompt_tokens,answer_tokens,text_tokens\n";
constexpr const char* kImage = "a,coco,,image,7,1,640x480,,,,,,1,5,2,7\n";
constexpr const char* kVideo = "v,nextqa,,video,8,,,10.5,29.97,315,640x360,,2,10,3,13\n";

std::string table(const std::string& rows) {
  return kHeader + rows;
}

/// Returns the error that a table must cause, as "context: message".
std::string error_of(const std::string& text) {
  try {
    parse_records(text, "t.csv");
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::input);
    return error.what();
  }
  ADD_FAILURE() << "no error for:\n" << text;
  return "";
}

void expect_error(const std::string& text, const std::string& begin) {
  EXPECT_EQ(error_of(text).substr(0, begin.size()), begin);
}

TEST(Records, AByteOrderMarkMayComeFirst) {
  EXPECT_EQ(parse_records("\xEF\xBB\xBF" + table(kImage), "t.csv").size(), 1u);
  // But only one byte order mark, and only at the start.
  expect_error("\xEF\xBB\xBF\xEF\xBB\xBF" + table(kImage), "t.csv:row 1, column '???id'");
}

/// A picture, sound or video is no table.
TEST(Records, MediaAreRejectedWithWhatADataSetIs) {
  for (const auto& [name, kind] : {std::pair{"photo.jpg", "a picture"},
                                   {"wide.png", "a picture"},
                                   {"sound.wav", "a sound"},
                                   {"frames.mp4", "a video"}}) {
    const std::string found =
        error_of(read_text_file(std::string(DFLOP_SOURCE_DIR "/tests/golden/io/") + name));
    EXPECT_EQ(found.substr(0, found.find(": a data set is")),
              std::string("t.csv: expected a data set, found ") + kind);
    EXPECT_NE(found.find("a CSV of shapes"), std::string::npos) << found;
    EXPECT_NE(found.find(".jsonl"), std::string::npos) << found;
  }
}

TEST(Records, ReadsEveryColumn) {
  const auto records =
      parse_records(table(std::string(kImage) + kVideo + "s,libri,,audio,9,,,,,,,4.41,1,0,12,12\n" +
                          "m,docs,,multi_image,9,2,10x20|30x40,,,,,,1,0,1,1\n"),
                    "t.csv");
  ASSERT_EQ(records.size(), 4u);
  EXPECT_EQ(records[0].id, "a");
  EXPECT_EQ(records[0].modality, Modality::image);
  EXPECT_EQ(records[0].image_count, 1);
  EXPECT_EQ(records[0].images, (std::vector<ImageSize>{{640, 480}}));
  EXPECT_FALSE(records[0].video_s || records[0].video_fps || records[0].video_frames ||
               records[0].video_size);
  EXPECT_EQ(records[0].text_tokens, 7);
  EXPECT_EQ(records[0].row, 2);  // the header is row 1
  EXPECT_EQ(records[1].video_s, 10.5);
  EXPECT_EQ(records[1].video_fps, 29.97);
  EXPECT_EQ(records[1].video_frames, 315);
  EXPECT_EQ(records[1].video_size, (ImageSize{640, 360}));
  EXPECT_EQ(records[1].row, 3);
  EXPECT_EQ(records[2].audio_s, 4.41);
  EXPECT_EQ(records[3].images, (std::vector<ImageSize>{{10, 20}, {30, 40}}));
}

TEST(Records, AcceptsCrlfQuotesAndNoLastLineEnd) {
  std::string header = kHeader;
  header.insert(header.size() - 1, "\r");
  // The quoted id holds a comma, a quote and a line break, so the second record begins on line 4.
  const auto records =
      parse_records(header + "\"a,\"\"b\"\"\n\",coco,,image,7,1,\"640x480\",,,,,,1,5,2,7\r\n" +
                        "b,coco,,image,7,1,640x480,,,,,,1,5,2,7",
                    "t.csv");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].id, "a,\"b\"\n");
  EXPECT_EQ(records[0].images.front(), (ImageSize{640, 480}));
  EXPECT_EQ(records[1].row, 4);
}

TEST(Records, TablesOfPandasAndEditorsAreRead) {
  // pandas writes whole numbers of a column with empty cells with a decimal.
  const auto records = parse_records(table("a,coco,,image,7,1.0,640x480,,,,,,1.0,5.0,2.0,7.0\n"
                                           "v,nextqa,,video,8,,,10.5,29.97,315.00,640x360,,2,,,\n"),
                                     "t.csv");
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].image_count, 1);
  EXPECT_EQ(records[0].text_tokens, 7);
  EXPECT_EQ(records[1].video_frames, 315);
  EXPECT_EQ(records[1].text_tokens, std::nullopt);
  for (const std::string wrong : {"726.5", "726.", ".0", "726.0e0", "7 26.0", "726.01", "-1.0", "1e3"}) {
    expect_error(table("a,coco,,image,7,1,640x480,,,,,,1,,," + wrong + "\n"),
                 "t.csv:row 2, column 'text_tokens': expected a whole number from 0 to 1000000000, found '" +
                     wrong + "'");
  }
  // Editors leave empty lines at the end, and only there.
  for (const std::string end : {"\n", "\n\n", "\r\n", "\r\n\n\r\n"})
    EXPECT_EQ(parse_records(table(kImage) + end, "t.csv").size(), 1u);
  expect_error(table(std::string(kImage) + "\n" + kImage), "t.csv:row 3: expected 16 fields, found 1");
  expect_error(table(std::string(kImage) + "\n\r"), "t.csv:row 3: expected");
  expect_error("\n\n", "t.csv: expected a header");
  // The header may be quoted, after a byte order mark, with CRLF.
  std::string quoted = "\xEF\xBB\xBF\"";
  for (const char c : std::string(kHeader).substr(0, std::string(kHeader).size() - 1))
    quoted += c == ',' ? std::string("\",\"") : std::string(1, c);
  EXPECT_EQ(parse_records(quoted + "\"\r\n\"a\",coco,,\"image\",7,\"1.0\",640x480,,,,,,1,5,2,\"7\"\r\n\r\n",
                          "t.csv")
                .size(),
            1u);
}

TEST(Records, RepeatedIdsAreAllowed) {
  EXPECT_EQ(parse_records(table(std::string(kImage) + kImage), "t.csv").size(), 2u);
}

TEST(Records, FilesWithoutRecordsAreErrors) {
  expect_error("", "t.csv: expected a header and at least one record, found an empty file");
  expect_error(kHeader, "t.csv: expected at least one record, found only the header");
}

TEST(Records, HeaderMustHoldExactlyTheKnownColumns) {
  const std::string header = kHeader;
  expect_error("color," + header + kImage,
               "t.csv:row 1, column 'color': unknown column; expected id,source,");
  expect_error("id," + header + kImage, "t.csv:row 1, column 'id': expected once in the header, found twice");
  expect_error(header.substr(3) + kImage, "t.csv:row 1, column 'id': missing from the header");
  expect_error(
      "id,modality,text_tokens\n",
      "t.csv:row 1, columns 'source', 'subset', 'media', 'n_images', 'images', 'video_s', 'video_fps', "
      "'video_frames', 'video_wh', 'audio_s', 'n_texts', 'prompt_tokens', 'answer_tokens': missing from "
      "the header; all 16 columns are required");
}

TEST(Records, RowsMustBeWellFormed) {
  const std::string image = kImage;
  expect_error(table(image + image.substr(2)), "t.csv:row 3: expected 16 fields, found 15");
  expect_error(table("x," + image), "t.csv:row 2: expected 16 fields, found 17");
  expect_error(table("\n" + image), "t.csv:row 2: expected 16 fields, found 1");
  expect_error(table("\"" + image), "t.csv:row 2: expected a closing quote, found the end of the file");
  expect_error(table("a\"" + image),
               "t.csv:row 2: expected a comma or the end of the line after a field, found a quote");
  expect_error(table("\"a\"b" + image),
               "t.csv:row 2: expected a comma or the end of the line after a field, found text");
  expect_error(table("a\rb" + image),
               "t.csv:row 2: expected a comma or the end of the line after a field, found a lone");
}

/// One field of a good video row replaced by a bad value: its index in the row, the column, the value.
struct BadField {
  std::size_t field;
  const char* column;
  const char* value;
};

/// The video row above with one field replaced.
std::string video_row_with(const BadField& bad) {
  std::vector<std::string_view> fields;
  CsvReader(kVideo, "t.csv").next(fields);
  fields.at(bad.field) = bad.value;
  std::string row(fields[0]);
  for (std::size_t i = 1; i < fields.size(); ++i) row += "," + std::string(fields[i]);
  return row + "\n";
}

TEST(Records, LengthsOfTextMayBeLeftOut) {
  const std::string head = table("");
  const auto record_of = [&](const std::string& lengths) {
    return parse_records(head + "x,s,,image,m,1,640x480,,,,,,2," + lengths + "\n", "t.csv").at(0);
  };
  EXPECT_EQ(record_of("10,7,").text_tokens, 17);  // the sum of both parts
  EXPECT_EQ(record_of("10,,").text_tokens, std::nullopt);
  EXPECT_EQ(record_of(",,").text_tokens, std::nullopt);
  EXPECT_EQ(record_of(",,5").text_tokens, 5);
}

TEST(Records, BadFieldsAreNamedByRowColumnAndValue) {
  const std::vector<BadField> bad_fields = {{0, "id", ""},
                                            {3, "modality", "film"},
                                            {3, "modality", ""},
                                            {5, "n_images", "0"},
                                            {5, "n_images", "-1"},
                                            {5, "n_images", "100001"},
                                            {6, "images", "0x0"},
                                            {6, "images", "640x"},
                                            {6, "images", "640"},
                                            {6, "images", "640x480|"},
                                            {6, "images", "1000001x1"},
                                            {7, "video_s", "nan"},
                                            {7, "video_s", "inf"},
                                            {7, "video_s", "1e400"},
                                            {7, "video_s", "-2"},
                                            {7, "video_s", "0"},
                                            {7, "video_s", "2s"},
                                            {7, "video_s", " 2"},
                                            {7, "video_s", "10000001"},
                                            {8, "video_fps", "0"},
                                            {8, "video_fps", "10001"},
                                            {9, "video_frames", "1.5"},
                                            {9, "video_frames", "0"},
                                            {9, "video_frames", "1000000001"},
                                            {9, "video_frames", "99999999999999999999"},
                                            {10, "video_wh", "0x360"},
                                            {10, "video_wh", "-640x360"},
                                            {11, "audio_s", "NaN"},
                                            {12, "n_texts", "two"},
                                            {13, "prompt_tokens", "-1"},
                                            {14, "answer_tokens", "1000000001"},
                                            {15, "text_tokens", "14"},
                                            {15, "text_tokens", "0x10"}};
  for (const BadField& bad : bad_fields) {
    const std::string error = error_of(table(kImage + video_row_with(bad)));
    EXPECT_EQ(error.find(std::string("t.csv:row 3, column '") + bad.column + "': expected "), 0u) << error;
    const std::string found =
        bad.value[0] == '\0' ? "found an empty field" : std::string("found '") + bad.value + "'";
    EXPECT_NE(error.find(found), std::string::npos) << error;
  }
}

TEST(Records, ModalitiesNeedTheirFields) {
  expect_error(table("i,n,,image,8,,,,,,,,1,1,0,1\n"),
               "t.csv:row 2, column 'n_images': expected 1 for an image record, found an empty field");
  expect_error(
      table("i,n,,image,8,,9x9,,,,,,1,1,0,1\n"),
      "t.csv:row 2, column 'n_images': expected 1, the number of sizes in 'images', found an empty field");
  expect_error(table("m,n,,multi_image,8,,,,,,,,1,1,0,1\n"),
               "t.csv:row 2, column 'n_images': expected at least 2");
  expect_error(table("s,n,,audio,8,,,,,,,,1,1,0,1\n"), "t.csv:row 2, column 'audio_s': expected the seconds");
  expect_error(
      table("v,n,,video,8,,,,29.97,,640x360,,2,10,3,13\n"),
      "t.csv:row 2, columns 'video_frames' and 'video_s': expected one of the two for a video record");
  expect_error(table("t,n,,text,,,,,,,,,1,0,0,0\n"),
               "t.csv:row 2, column 'text_tokens': expected at least 1 token");
  expect_error(table("i,n,,image,8,2,,,,,,,1,1,0,1\n"),
               "t.csv:row 2, column 'n_images': expected 1 for an image");
  expect_error(table("m,n,,multi_image,8,1,,,,,,,1,1,0,1\n"),
               "t.csv:row 2, column 'n_images': expected at least 2");
  expect_error(table("m,n,,multi_image,8,3,1x1|2x2,,,,,,1,1,0,1\n"),
               "t.csv:row 2, column 'n_images': expected 2, the number of sizes in 'images', found '3'");
}

/// E9 is e with an acute accent in Latin-1. In UTF-8 (C3 A9) it is an ordinary id.
TEST(Records, IdsAreUtf8) {
  EXPECT_EQ(parse_records(table("caf\xC3\xA9,n,,text,,,,,,,,,1,1,0,1\n"), "t.csv")[0].id, "caf\xC3\xA9");
  expect_error(table("a,n,,text,,,,,,,,,1,1,0,1\ncaf\xE9,n,,text,,,,,,,,,1,1,0,1\n"),
               "t.csv:row 3, column 'id': expected UTF-8");
}

TEST(Records, FoundValuesAreShortAndPrintable) {
  const std::string error = error_of(table("a,n,,\x01\xff" + std::string(100, 'y') + ",,1,,,,,,,1,1,0,1\n"));
  // 60 bytes of the value are shown, the two unprintable ones as '?'.
  EXPECT_NE(error.find("found '??" + std::string(58, 'y') + "...'"), std::string::npos) << error;
}

TEST(Records, ColumnOrderIsFree) {
  // Property: permuting the header and every row in the same way gives the same records.
  Random random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::array<std::size_t, 16> order;
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    random.shuffle<std::size_t>(order);
    const std::string plain = table(kVideo);
    std::string shuffled;
    CsvReader reader(plain, "t.csv");
    std::vector<std::string_view> fields;
    while (reader.next(fields)) {
      for (std::size_t i = 0; i < order.size(); ++i) {
        shuffled += std::string(fields[order[i]]) + (i + 1 < order.size() ? "," : "\n");
      }
    }
    const Record record = parse_records(shuffled, "t.csv").at(0);
    EXPECT_EQ(record.id, "v");
    EXPECT_EQ(record.video_s, 10.5);
    EXPECT_EQ(record.video_fps, 29.97);
    EXPECT_EQ(record.video_frames, 315);
    EXPECT_EQ(record.text_tokens, 13);
  }
}

TEST(Records, DamagedFilesGiveRecordsOrAnError) {
  // Property: whatever bytes are inserted, removed or changed, only Error is thrown.
  const std::string good = table(std::string(kImage) + kVideo);
  const std::string_view bytes = "0123456789.,-x|\"\r\neinfa\0\xff";
  Random random(2);
  int errors = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    std::string text = good;
    for (std::uint64_t edits = 1 + random.below(4); edits > 0; --edits) {
      const std::size_t place = random.below(text.size());
      const char byte = bytes[random.below(bytes.size())];
      if (random.below(3) == 0) text.erase(place, 1 + random.below(20));
      if (text.empty()) break;
      text.insert(random.below(text.size()), 1, byte);
      text[random.below(text.size())] = byte;
    }
    try {
      for (const Record& record : parse_records(text, "t.csv")) EXPECT_LE(record.text_tokens, kMaxTextTokens);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      ++errors;
    }
  }
  EXPECT_GT(errors, 1000);
}

TEST(TextFile, MissingFilesAndDirectoriesAreInputErrors) {
  for (const std::string& path :
       std::vector<std::string>{DFLOP_SOURCE_DIR "/traces/no_such.csv", DFLOP_SOURCE_DIR "/traces"}) {
    try {
      read_text_file(path);
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::input);
      EXPECT_EQ(error.context(), path);
    }
  }
}

TEST(Records, BundledTablesLoad) {
  // Row counts and shares as stated in traces/datasets/SOURCES.md.
  std::array<int, kModalities> vision{};
  for (const Record& record : load_records(DFLOP_SOURCE_DIR "/traces/datasets/vision_mix.csv")) {
    ++vision[static_cast<std::size_t>(record.modality)];
  }
  EXPECT_EQ(vision, (std::array<int, kModalities>{0, 9600, 3200, 3200, 0}));
  std::array<int, kModalities> omni{};
  for (const Record& record : load_records(DFLOP_SOURCE_DIR "/traces/datasets/omni_mix.csv")) {
    ++omni[static_cast<std::size_t>(record.modality)];
  }
  EXPECT_EQ(omni, (std::array<int, kModalities>{3260, 6000, 1180, 2800, 2760}));
}

}  // namespace records_test
}  // namespace dflop
