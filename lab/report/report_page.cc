// report_page RUNS PAGE: writes the report of the runs below RUNS to PAGE, and table and findings
// to stdout. Used by tests/python/test_report.py.
#include <exception>
#include <iostream>

#include "lab/report/report.h"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: report_page RUNS PAGE\n";
    return 2;
  }
  try {
    const std::vector<planish::lab::Run> runs = planish::lab::FindRuns({argv[1]}).runs;
    planish::lab::WriteReport(runs, argv[2]);
    std::cout << planish::lab::RenderTable(runs) << "\n" << planish::lab::Findings(runs);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
