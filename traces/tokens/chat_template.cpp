#include "traces/tokens/chat_template.hpp"

#include <filesystem>
#include <optional>

#include "traces/text/strict_json.hpp"
#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr std::string_view kKey = "chat_template";

std::string template_in(const std::string& json, const std::string& file) {
  const JsonDocument document(json, file);
  const JsonValue root = document.root();
  root.require_object();
  if (!root.has(kKey)) return "";
  const JsonValue found = root.at(kKey);
  if (!found.is_array()) return found.text() == "null" ? "" : found.string();
  for (const JsonValue& one : found.elements()) {
    if (one.at("name").string() == "default") return one.at("template").string();
  }
  return "";
}

}  // namespace

std::string read_chat_template(const std::string& folder) {
  const auto path = [&](const char* name) { return (std::filesystem::path(folder) / name).string(); };
  if (const auto jinja = read_file_if_there(path("chat_template.jinja"))) return *jinja;
  for (const char* name : {"chat_template.json", "tokenizer_config.json"}) {
    const std::optional<std::string> json = read_file_if_there(path(name));
    std::string text = json ? template_in(*json, path(name)) : "";
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace dflop
