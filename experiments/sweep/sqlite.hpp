// This file wraps SQLite databases. A database stays intact if the process that writes it is killed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"
#include "experiments/cli/table.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace dflop {

/// A Database is an open database file. Only one thread may use it at a time; several processes may use the
/// file. All errors name the file. They are Errors of kind output if the file was opened to write, else of
/// kind input.
class Database {
 public:
  enum class Mode : std::uint8_t { write, read };

  /// Opens a database; `write` creates a missing file. A write waits up to a minute while other processes
  /// write.
  Database(const std::string& file, Mode mode);
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  /// Runs statements without results.
  void execute(const std::string& sql);
  /// Runs a query and returns the number in the first column of its first row.
  std::int64_t number(const std::string& sql);
  const std::string& file() const { return file_; }

  [[noreturn]] void refuse(const std::string& message) const;

 private:
  friend class Statement;
  /// Throws the database's own message unless `code` is SQLITE_OK.
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

  /// Sets a parameter, counting from 1; a missing value is NULL.
  void bind(int parameter, const Cell& value);
  /// Steps to the next row. Returns false at the end, after which the statement can be run again.
  bool step();
  /// Returns a column of the row, counting from 0.
  Cell column(int index) const;

 private:
  Database& database_;
  std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)> handle_;
};

}  // namespace dflop
