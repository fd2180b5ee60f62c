// The fields of one event of a PyTorch-profiler trace as the parser meets them, and their checks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "traces/profiler/events.hpp"

namespace dflop {

/// Keys of an event, then keys of its "args".
enum class KinetoField : std::uint8_t {
  ph,
  cat,
  name,
  ts,
  dur,
  tid,
  correlation,
  device,
  stream,
  bytes,
  autograd_sequence,
  forward_thread,
  collective,
  dtype,
  in_elements,
  out_elements,
  group_size,
  group_name,
  group_ranks,
  sequence,
  source,
  destination,
  input_dims,
  input_types,
  none,
};
inline constexpr std::size_t kKinetoFields = static_cast<std::size_t>(KinetoField::none);

/// The field of a key, `none` for one that is not used.
KinetoField kineto_event_field(std::string_view key);
KinetoField kineto_args_field(std::string_view key);

/// Collects the fields of one event, in any order, and checks them when it is complete. One object serves all
/// events of a file, so that its memory is used again.
class KinetoFields {
 public:
  explicit KinetoFields(const std::string& file) : file_(file) {}

  void clear(std::size_t index);
  void set_whole(KinetoField field, std::int64_t number);
  /// `digits` is the number as it stands in the file: a double would lose nanoseconds of absolute times.
  void set_real(KinetoField field, std::string_view digits);
  void set_text(KinetoField field, const std::string& text);
  /// What is neither number nor text.
  void set_other(KinetoField field);

  /// Arrays, of which three fields are used.
  void begin_list(KinetoField field);
  void begin_inner_list();
  void list_number(std::int64_t number);
  void list_text(const std::string& text);
  void list_other();
  void end_inner_list();

  /// Whether the event is of use: complete, or the instant that ends the record.
  bool is_used() const;

  /// @throws Error (input) as read_kineto_events().
  const KinetoEvent& finish();

  /// Whether a time of any event so far has decimals.
  bool fractions() const { return fractions_; }

  /// "file: traceEvents[3] 'name'".
  std::string place() const;

 private:
  enum class Type : std::uint8_t { absent, whole, real, text, other };
  struct Value {
    Type type = Type::absent;
    std::int64_t whole = 0;
    std::string text;  ///< of a text, and the digits of a real number
  };

  const Value& value(KinetoField field) const { return values_[static_cast<std::size_t>(field)]; }
  Value& value(KinetoField field) { return values_[static_cast<std::size_t>(field)]; }
  [[noreturn]] void refuse(std::string_view key, const std::string& expected, const Value& found) const;
  Nanoseconds time(KinetoField field, std::string_view key, std::int64_t least, std::int64_t most);
  std::optional<std::int64_t> whole(KinetoField field, std::string_view key, std::int64_t least,
                                    std::int64_t most) const;
  std::string text(KinetoField field, std::string_view key) const;
  void finish_device();
  void finish_collective();
  void read_group_ranks();

  const std::string& file_;
  std::array<Value, kKinetoFields> values_;
  KinetoEvent event_;
  KinetoField list_ = KinetoField::none;
  bool list_complete_ = true;  ///< all items were of the expected type
  bool innermost_ = false;     ///< the list that ends next holds numbers, not lists
  std::int64_t elements_ = 1;  ///< product of the innermost list
  bool fractions_ = false;
};

}  // namespace dflop
