#include "experiments/sweep/sqlite.hpp"

#include <sqlite3.h>

#include <filesystem>

#include "traces/text/text_file.hpp"

namespace dflop {
namespace {

constexpr int kBusyMilliseconds = 60'000;

/// Gives a reason that SQLite does not: it reports only that it cannot open the file.
void require_openable(const Database& database, Database::Mode mode) {
  std::error_code problem;
  const std::filesystem::file_status status = std::filesystem::status(database.file(), problem);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    database.refuse("expected a regular file");
  }
  if (mode == Database::Mode::write) check_output(database.file());
  if (mode == Database::Mode::read && !std::filesystem::exists(status)) database.refuse("no such file");
}

}  // namespace

Database::Database(const std::string& file, Mode mode)
    : file_(file), mode_(mode), handle_(nullptr, sqlite3_close_v2) {
  require_openable(*this, mode);
  // Even reading may have to roll back the unfinished transaction of a killed process, so the file is opened
  // for writing. SQLite falls back to reading if the file is write-protected.
  const int flags = SQLITE_OPEN_READWRITE | (mode == Mode::write ? SQLITE_OPEN_CREATE : 0);
  sqlite3* handle = nullptr;
  const int code = sqlite3_open_v2(file.c_str(), &handle, flags, nullptr);
  handle_.reset(handle);
  require(code);
  sqlite3_extended_result_codes(handle, 1);
  require(sqlite3_busy_timeout(handle, kBusyMilliseconds));
  if (mode == Mode::write && sqlite3_db_readonly(handle, "main") == 1)
    refuse("cannot write: write-protected");
}

void Database::execute(const std::string& sql) {
  require(sqlite3_exec(handle_.get(), sql.c_str(), nullptr, nullptr, nullptr));
}

std::int64_t Database::number(const std::string& sql) {
  Statement statement(*this, sql);
  statement.step();
  return std::get<std::int64_t>(statement.column(0));
}

void Database::refuse(const std::string& message) const {
  throw Error(mode_ == Mode::write ? ErrorKind::output : ErrorKind::input, message, file_);
}

void Database::require(int code) const {
  if (code == SQLITE_OK) return;
  if ((code & 0xff) == SQLITE_NOTADB) refuse("expected an SQLite database, found another kind of file");
  refuse(handle_ == nullptr ? sqlite3_errstr(code) : sqlite3_errmsg(handle_.get()));
}

Statement::Statement(Database& database, const std::string& sql)
    : database_(database), handle_(nullptr, sqlite3_finalize) {
  sqlite3_stmt* handle = nullptr;
  database.require(sqlite3_prepare_v2(database.handle_.get(), sql.c_str(), static_cast<int>(sql.size()),
                                      &handle, nullptr));
  handle_.reset(handle);
}

void Statement::bind(int parameter, const Cell& value) {
  sqlite3_stmt* const handle = handle_.get();
  if (const auto* text = std::get_if<std::string>(&value)) {
    database_.require(
        sqlite3_bind_text64(handle, parameter, text->data(), text->size(), SQLITE_TRANSIENT, SQLITE_UTF8));
  } else if (const auto* whole = std::get_if<std::int64_t>(&value)) {
    database_.require(sqlite3_bind_int64(handle, parameter, *whole));
  } else if (const auto* real = std::get_if<double>(&value)) {
    database_.require(sqlite3_bind_double(handle, parameter, *real));
  } else {
    database_.require(sqlite3_bind_null(handle, parameter));
  }
}

bool Statement::step() {
  const int code = sqlite3_step(handle_.get());
  if (code == SQLITE_ROW) return true;
  const int end = sqlite3_reset(handle_.get());
  database_.require(code == SQLITE_DONE ? end : code);
  return false;
}

Cell Statement::column(int index) const {
  sqlite3_stmt* const handle = handle_.get();
  switch (sqlite3_column_type(handle, index)) {
    case SQLITE_INTEGER:
      return static_cast<std::int64_t>(sqlite3_column_int64(handle, index));
    case SQLITE_FLOAT:
      return sqlite3_column_double(handle, index);
    case SQLITE_NULL:
      return {};
    default:
      const void* bytes = sqlite3_column_blob(handle, index);  // must precede the call for its size, as
                                                               // SQLite requires
      const auto size = static_cast<std::size_t>(sqlite3_column_bytes(handle, index));
      return std::string(static_cast<const char*>(bytes), size);
  }
}

}  // namespace dflop
