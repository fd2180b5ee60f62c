// SQLite databases are files that stay whole when the process that writes them is killed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "experiments/cli/table.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace dflop {

/// A Database is an open database file. It is for one thread at a time; several processes may use the file.
/// All of its errors are Errors that name the file, of kind output where it was opened to write, else input.
class Database {
 public:
  enum class Mode : std::uint8_t { write, read };

  /// Opens a database: `write` makes a file that is not there. A write waits up to a minute for those of
  /// other processes.
  Database(const std::string& file, Mode mode);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Runs statements without result.
  void execute(const std::string& sql);
  /// Returns the first column of the first row of a result.
  std::int64_t number(const std::string& sql);
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& message) const;

 private:
  friend class Statement;
  /// Fails with the database's own words unless `code` is SQLITE_OK.
  void require(int code) const;

  const std::string file_;
  const Mode mode_;
  std::unique_ptr<sqlite3, int (*)(sqlite3*)> handle_;
};

/// A Statement is a compiled SQL statement with parameters ?1, ?2, ...
class Statement {
 public:
  /// Compiles SQL. `database` must outlive it.
  Statement(Database& database, const std::string& sql);

  /// Sets a parameter. They count from 1; a missing value is NULL.
  void bind(int parameter, const Cell& value);
  /// Steps to the next row; false at the end, after which the statement can be run again.
  bool step();
  /// Returns a column of the row. They count from 0.
  Cell column(int index) const;

 private:
  Database& database_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> handle_;
};

}  // namespace dflop
