#include "lab/report/power_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "lab/analysis/power.h"
#include "lab/analysis/reproduction.h"
#include "lab/analysis/summary.h"
#include "lab/base/format_integer.h"

namespace planish::lab {

std::string RenderPower(const Paper& paper, const std::vector<Run>& runs,
                        const TableOptions& options) {
  const std::vector<Section> sections = Summarize(runs);
  const std::vector<Reproduction> all = FindReproductions(sections);
  const auto reproduction =
      std::ranges::find_if(all, [&](const Reproduction& one) { return one.paper == &paper; });
  if (reproduction == all.end()) return "";
  std::vector<std::vector<std::string>> cells = {
      {"claim, column", "printed", "deviation", "seeds", "needed", "more hours"}};
  for (const ClaimPower& row : PowerOf(*reproduction)) {
    std::string hours = "-";
    if (row.is_decided) {
      hours = "decided";
    } else if (!row.needed) {
      hours = "hopeless";
    } else if (row.minutes) {
      const double more = *row.minutes / 60;
      hours = more == 0 ? "enough" : fmt::format("{:.{}f}", more, more < 1 ? 2 : more < 10 ? 1 : 0);
    }
    cells.push_back({fmt::format("{}  {}", row.number, row.column),
                     fmt::format("{:+.3g}", row.printed), fmt::format("{:.3g}", row.deviation),
                     std::to_string(row.seeds),
                     row.needed ? FormatInteger(*row.needed) : "above " + FormatInteger(kMaxSeeds),
                     std::move(hours)});
  }
  std::string claims;
  int number = 0;
  for (const PaperClaim& claim : paper.claims) {
    claims += Wrapped(fmt::format("{}  {}", ++number, claim.text),
                      static_cast<size_t>(options.width), "   ");
  }
  return Aligned(std::move(cells), options) + "\n" + claims;
}

}  // namespace planish::lab
