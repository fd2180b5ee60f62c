#include "experiments/cli/say.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

namespace dflop {
namespace {

constexpr std::chrono::milliseconds kSilence{2000};
constexpr std::chrono::milliseconds kPeriod{100};

std::atomic<bool> another_lives = false;

/// Returns the estimated remaining time, such as ", 40 s left", at the average pace so far.
std::string time_left(std::chrono::duration<double> elapsed, std::int64_t done, std::int64_t total) {
  if (done <= 0 || done >= total) return "";
  const double seconds = elapsed.count() * static_cast<double>(total - done) / static_cast<double>(done);
  return seconds < 100 ? fmt::format(", {:.0f} s left", seconds)
                       : fmt::format(", {:.0f} min left", seconds / 60);
}

int bar_width(std::size_t used) {
  winsize size{};
  const int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
  return std::clamp(columns - static_cast<int>(used), 0, 40);
}

}  // namespace

std::string printable(std::string text) {
  bool is_ascii = true;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = '?';
    is_ascii = is_ascii && static_cast<unsigned char>(c) < 0x80;
  }
  if (is_ascii) return text;
  using Json = nlohmann::json;  // validates UTF-8
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

void say_text(const std::string& text) noexcept {
  static_cast<void>(std::fwrite(text.data(), 1, text.size(), stderr));
}

void say_once(const std::string& text) {
  static std::mutex mutex;
  static std::set<std::string> said;
  const std::lock_guard lock(mutex);
  if (said.insert(text).second) say_text(text);
}

Progress::Progress(std::string label)
    : label_(std::move(label)),
      first_(!another_lives.exchange(true)),
      visible_(first_ && isatty(STDERR_FILENO) != 0) {}

Progress::~Progress() {
  if (drawn_) say("\r\033[K");
  if (first_) another_lives = false;
}

void Progress::note(const std::string& line) {
  say("{}{}\n", drawn_ ? "\r\033[K" : "", line);
}

void Progress::update(std::int64_t done, std::int64_t total) {
  const Clock::time_point now = Clock::now();
  if (!visible_ || total <= 0 || now - start_ < kSilence || now - last_ < kPeriod) return;
  last_ = now;
  drawn_ = true;
  const std::string count = fmt::format(" {}/{}{}", done, total, time_left(now - start_, done, total));
  const int width = bar_width(label_.size() + count.size() + 4);
  const int filled = static_cast<int>(width * std::min(done, total) / total);
  say("\r{} [{:#<{}}{:.<{}}]{}\033[K", label_, "", filled, "", width - filled, count);
  std::fflush(stderr);
}

}  // namespace dflop
