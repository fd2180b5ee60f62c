#include "experiments/sweep/store.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>

#include "core/refuse.hpp"

namespace dflop {
namespace {

constexpr std::int64_t kApplication = 0x64666c70;  // "dflp", in the header of the file
constexpr std::int64_t kVersion = 2;               // of the tables below
constexpr const char* kProgram = "dflop";          // key among the inputs

std::string_view sql_type(CellKind kind) {
  switch (kind) {
    case CellKind::text:
      break;
    case CellKind::whole:
      return "INTEGER";
    case CellKind::real:
      return "REAL";
  }
  return "TEXT";
}

/// Returns "model, cluster, ..."
std::string column_names() {
  std::string names;
  for (const SweepColumn& c : sweep_columns()) names += (names.empty() ? "" : ", ") + c.column.key;
  return names;
}

void make_tables(Database& database) {
  std::string columns;
  for (const SweepColumn& c : sweep_columns())
    columns += fmt::format(", {} {}", c.column.key, sql_type(c.kind));
  database.execute(fmt::format(
      "CREATE TABLE cells (key TEXT PRIMARY KEY{}, run INTEGER NOT NULL) WITHOUT ROWID;CREATE TABLE runs (run INTEGER PRIMARY KEY, made_by TEXT NOT NULL);CREATE TABLE inputs (name TEXT "
      "PRIMARY KEY, fingerprint TEXT NOT NULL);CREATE TABLE specs (text TEXT PRIMARY KEY);PRAGMA "
      "application_id = {};PRAGMA user_version = {};",
      columns, kApplication, kVersion));
}

void require_sweep(Database& database) {
  if (database.number("PRAGMA application_id") != kApplication) {
    database.refuse("expected a database of 'dflop sweep', found another one");
  }
  const std::int64_t version = database.number("PRAGMA user_version");
  if (version != kVersion) {
    database.refuse(
        fmt::format("written by another version: this one reads version {}, found {}", kVersion, version));
  }
}

using Inputs = std::map<std::string, std::string>;

Inputs read_inputs(Database& database) {
  Inputs inputs;
  Statement all(database, "SELECT name, fingerprint FROM inputs");
  while (all.step()) inputs[plain_text(all.column(0))] = plain_text(all.column(1));
  return inputs;
}

/// Throws if the inputs differ: results of different inputs must not be mixed.
void require_same(const Database& database, const Inputs& here, const Inputs& others,
                  std::string_view what_to_do = {}) {
  for (const auto& [name, print] : others) {
    const auto it = here.find(name);
    if (it == here.end() || it->second == print) continue;
    if (name == kProgram) {
      database.refuse(fmt::format("its cells were made by dflop {}, expected {}", it->second, print));
    }
    database.refuse(fmt::format("the contents of '{}' have changed since the database's cells were made{}",
                                name, what_to_do));
  }
}

/// Removes the cells of inputs whose contents have changed, and returns their number.
std::int64_t take_out_changed(Database& database, const Inputs& inputs) {
  std::int64_t count = 0;
  for (const auto& [name, print] : read_inputs(database)) {
    const auto now = inputs.find(name);
    if (name == kProgram || now == inputs.end() || now->second == print) continue;
    Statement cells(database, "DELETE FROM cells WHERE ?1 IN (model, cluster, data)");
    cells.bind(1, name);
    cells.step();
    count += database.number("SELECT changes()");
    Statement input(database, "DELETE FROM inputs WHERE name = ?1");
    input.bind(1, name);
    input.step();
  }
  return count;
}

void add_spec(Database& database, const SweepSpec& spec, const Inputs& inputs) {
  Statement input(database, "INSERT OR IGNORE INTO inputs VALUES (?1, ?2)");
  for (const auto& [name, print] : inputs) {
    input.bind(1, name);
    input.bind(2, print);
    input.step();
  }
  Statement text(database, "INSERT OR IGNORE INTO specs VALUES (?1)");
  text.bind(1, spec.text);
  text.step();
}

/// Rejects a text in place of a number, as in a database that another program has written to.
void check_kind(const Database& database, std::size_t row, std::size_t column, const Cell& cell) {
  const SweepColumn& known = sweep_columns()[column];
  if (known.kind == CellKind::text || !std::holds_alternative<std::string>(cell)) return;
  refuse_input(database.file(), "cells, row {}, column '{}': expected a number, found '{}'", row + 1,
               known.column.key, std::get<std::string>(cell));
}

std::vector<SweepRow> read_rows(Database& database) {
  std::vector<SweepRow> rows;
  Statement all(database, "SELECT " + column_names() + " FROM cells");
  while (all.step()) {
    rows.emplace_back();
    for (std::size_t i = 0; i < rows.back().cells.size(); ++i) {
      rows.back().cells[i] = all.column(static_cast<int>(i));
      check_kind(database, rows.size() - 1, i, rows.back().cells[i]);
    }
  }
  return rows;
}

}  // namespace

SweepStore::SweepStore(const std::string& file, const SweepSpec& spec, const Provenance& made_by,
                       bool redo_changed)
    : database_(file, Database::Mode::write) {
  Inputs inputs = spec.inputs;
  inputs[kProgram] = DFLOP_VERSION;
  // Another process may be creating the same file. An error closes the database, which rolls all of this
  // back.
  database_.execute("BEGIN IMMEDIATE");
  if (database_.number("SELECT count(*) FROM sqlite_master") == 0) make_tables(database_);
  require_sweep(database_);
  if (redo_changed) taken_out_ = take_out_changed(database_, inputs);
  require_same(database_, read_inputs(database_), inputs,
               "; --redo-changed runs these cells again and keeps the others, another --out starts anew");
  add_spec(database_, spec, inputs);
  Statement run(database_, "INSERT INTO runs (made_by) VALUES (?1)");
  run.bind(1, with_provenance("{}", made_by));
  run.step();
  run_ = database_.number("SELECT last_insert_rowid()");
  database_.execute("COMMIT");
}

std::set<std::string> SweepStore::finished(bool with_failed) {
  const std::lock_guard lock(mutex_);
  std::set<std::string> keys;
  Statement all(database_,
                with_failed ? "SELECT key FROM cells" : "SELECT key FROM cells WHERE status <> 'failed'");
  while (all.step()) keys.insert(plain_text(all.column(0)));
  return keys;
}

void SweepStore::record(const SweepRow& row) {
  const std::lock_guard lock(mutex_);
  std::string places = "?1";
  for (std::size_t i = 0; i < row.cells.size(); ++i) places += fmt::format(", ?{}", i + 2);
  // One statement is one transaction.
  Statement insert(database_, fmt::format("INSERT OR REPLACE INTO cells (key, {}, run) VALUES ({}, {})",
                                          column_names(), places, run_));
  insert.bind(1, sweep_key(row));
  for (std::size_t i = 0; i < row.cells.size(); ++i) insert.bind(static_cast<int>(i) + 2, row.cells[i]);
  insert.step();
}

std::vector<SweepRow> read_sweeps(const std::vector<std::string>& files) {
  std::map<std::string, SweepRow> rows;
  Inputs inputs;
  for (const std::string& file : files) {
    Database database(file, Database::Mode::read);
    require_sweep(database);
    Inputs found = read_inputs(database);
    require_same(database, found, inputs);
    inputs.merge(found);
    for (SweepRow& row : read_rows(database)) {
      const auto [it, is_new] = rows.try_emplace(sweep_key(row), row);
      if (is_new || std::ranges::equal(it->second.reproducible(), row.reproducible())) continue;
      if (row.has_status("failed")) continue;
      if (!it->second.has_status("failed")) {
        database.refuse(
            fmt::format("its result for {} differs from the result in an earlier file", it->first));
      }
      it->second = std::move(row);
    }
  }
  std::vector<SweepRow> sorted;
  for (auto& [key, row] : rows) sorted.push_back(std::move(row));
  std::sort(sorted.begin(), sorted.end(), before);
  return sorted;
}

}  // namespace dflop
