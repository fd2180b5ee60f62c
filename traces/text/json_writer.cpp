#include "traces/text/json_writer.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"

namespace dflop {

void append_json_string(std::string& text, std::string_view value) {
  text += nlohmann::json(value).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

void append_json_number(std::string& text, double value) {
  if (!std::isfinite(value)) {
    throw Error(ErrorKind::internal, "expected a finite number to write as JSON, found NaN or infinity");
  }
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

std::string JsonWriter::finish() {
  end_object();
  text_ += '\n';
  return std::exchange(text_, {});
}

void JsonWriter::begin_item(std::string_view key) {
  if (!first_) text_ += ',';
  first_ = false;
  if (depth_ > 0) new_line();
  if (key.empty()) return;
  append_json_string(text_, key);
  text_ += ": ";
}

void JsonWriter::begin(std::string_view key, char bracket) {
  begin_item(key);
  text_ += bracket;
  ++depth_;
  first_ = true;
}

void JsonWriter::end(char bracket) {
  --depth_;
  if (!first_) new_line();
  text_ += bracket;
  first_ = false;
}

void JsonWriter::new_line() {
  text_ += '\n';
  text_.append(static_cast<std::size_t>(depth_) * 2, ' ');
}

}  // namespace dflop
