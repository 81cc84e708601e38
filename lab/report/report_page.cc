// report_page RUNS PAGE: writes the report of the runs below RUNS to PAGE, and table and findings
// to stdout. report_page STYLES: writes docs/norm-styles.svg to STYLES. Used by tests/python.
#include <exception>
#include <iostream>

#include "lab/report/plot.h"
#include "lab/report/report.h"
#include "lab/run/atomic_file.h"

int main(int argc, char** argv) {
  if (argc != 2 && argc != 3) {
    std::cerr << "usage: report_page RUNS PAGE, or report_page STYLES\n";
    return 2;
  }
  try {
    if (argc == 2) {
      planish::lab::WriteOutputFile(argv[1], planish::lab::RenderNormStyles());
      return 0;
    }
    const std::vector<planish::lab::Run> runs = planish::lab::FindRuns({argv[1]}).runs;
    const planish::lab::ReportExtras extras{.looks = planish::lab::FindLooks({argv[1]}).papers};
    planish::lab::WriteReport(runs, argv[2], extras);
    std::cout << planish::lab::RenderTable(runs) << "\n" << planish::lab::Findings(runs, 2, extras);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
