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

std::string RenderPowerRows(const Paper& paper, const std::vector<ClaimPower>& rows,
                            const std::string& heading, const std::vector<std::string>& cells,
                            const TableOptions& options) {
  std::vector<std::vector<std::string>> table = {
      {"claim, column", "effect", "deviation", "seeds", "needed", heading}};
  for (size_t i = 0; i < rows.size(); ++i) {
    const ClaimPower& row = rows[i];
    table.push_back({fmt::format("{}  {}", row.number, row.column),
                     row.claim->no_worse ? fmt::format("margin {:.3g}", row.effect)
                                         : fmt::format("{:+.3g}", row.effect),
                     fmt::format("{:.3g}", row.deviation), std::to_string(row.seeds),
                     row.needed ? FormatInteger(*row.needed) : "above " + FormatInteger(kMaxSeeds),
                     cells[i]});
  }
  std::string claims;
  int number = 0;
  for (const PaperClaim& claim : paper.claims) {
    claims += Wrapped(fmt::format("{}  {}", ++number, claim.text),
                      static_cast<size_t>(options.width), "   ");
  }
  return Aligned(std::move(table), options) + "\n" + claims;
}

std::string RenderPower(const Paper& paper, const std::vector<Run>& runs,
                        const std::vector<SequentialTests>& looks, const TableOptions& options) {
  const std::vector<Section> sections = Summarize(runs);
  const std::vector<Reproduction> all = FindReproductions(sections, looks);
  const auto reproduction = std::ranges::find(all, &paper, &Reproduction::paper);
  if (reproduction == all.end()) return "";
  const std::vector<ClaimPower> rows = PowerOf(*reproduction);
  std::vector<std::string> hours;
  for (const ClaimPower& row : rows) {
    hours.emplace_back("-");
    if (row.is_decided) {
      hours.back() = "decided";
    } else if (!row.needed) {
      hours.back() = "hopeless";
    } else if (row.minutes) {
      hours.back() = *row.minutes == 0 ? "enough" : HoursText(*row.minutes);
    }
  }
  return RenderPowerRows(paper, rows, "more hours", hours, options);
}

std::string HoursText(double minutes) {
  const double hours = minutes / 60;
  return fmt::format("{:.{}f}", hours, hours < 1 ? 2 : hours < 10 ? 1 : 0);
}

}  // namespace planish::lab
