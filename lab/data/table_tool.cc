// Reads tables for tests/python/test_tables.py.
//   table_tool FILE [HEADER]   prints JSON lines: the columns, then [line, fields] for each row;
//                              HEADER is 0 for a file without a header

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <nlohmann/json.hpp>
#include <string_view>

#include "lab/data/table.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  try {
    const planish::lab::Table table =
        planish::lab::ReadTable(argv[1], argc < 3 || std::string_view(argv[2]) != "0");
    fmt::print("{}\n", nlohmann::json(table.columns).dump());
    for (const planish::lab::TableRow& row : table.rows) {
      nlohmann::json fields = nlohmann::json::array();
      for (const auto& field : row.fields) {
        fields.push_back(field ? nlohmann::json(*field) : nlohmann::json());
      }
      fmt::print("{}\n", nlohmann::json({row.line, fields}).dump());
    }
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
  return 0;
}
