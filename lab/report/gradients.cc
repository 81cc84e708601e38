#include "lab/report/gradients.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>

#include "lab/analysis/format.h"
#include "lab/report/chart.h"
#include "lab/report/pieces.h"

namespace planish::lab {
namespace {

// Returns the last evaluation of a run that has gradients, or null.
const Evaluation* LastGradients(const Run& run) {
  const auto found = std::find_if(run.evaluations.rbegin(), run.evaluations.rend(),
                                  [](const Evaluation& e) { return !e.gradients.empty(); });
  return found == run.evaluations.rend() ? nullptr : &*found;
}

// Values of one norm for each seed. A norm without a gradient, because nothing depends on it, has
// no ratio.
struct OneNorm {
  std::vector<double> mean_ratio, variance_ratio, variance;
  std::vector<const Run*> runs;

  void Add(const NormGradients& gradients, const Run& run) {
    const double mean = gradients.mean_after / gradients.mean_detached;
    const double spread = gradients.variance_after / gradients.variance_detached;
    if (!std::isfinite(mean) || !std::isfinite(spread)) return;
    mean_ratio.push_back(mean);
    variance_ratio.push_back(spread);
    variance.push_back(gradients.variance_after);
    runs.push_back(&run);
  }
};

using Field = Estimate LayerGradients::*;

// Returns a field over the norms of the model as a curve whose steps are 1, 2, ...
Curve CurveOver(const std::vector<LayerGradients>& layers, Field field) {
  Curve curve;
  for (size_t i = 0; i < layers.size(); ++i) {
    curve.mean.push_back({static_cast<int64_t>(i) + 1, 0, layers[i].*field});
  }
  for (const LayerGradients& layer : layers)
    curve.seeds = std::max(curve.seeds, (layer.*field).count);
  // One line represents all seeds and determines the chart's extent.
  curve.single.push_back({layers[0].runs[0], curve.mean});
  return curve;
}

std::string RangeText(const std::vector<LayerGradients>& layers, Field field) {
  double low = (layers[0].*field).mean;
  double high = low;
  for (const LayerGradients& layer : layers) {
    low = std::min(low, (layer.*field).mean);
    high = std::max(high, (layer.*field).mean);
  }
  const auto text = [](double value) { return FormatSignificant(value, 3); };
  return text(low) == text(high) ? text(low) : text(low) + " to " + text(high);
}

struct GroupGradients {
  const Group* group;
  std::vector<LayerGradients> layers;
};

Markup RenderNumbers(const Section& section, const std::vector<GroupGradients>& groups) {
  Markup head = Head("norm in the model");
  std::vector<std::string> names;
  for (const GroupGradients& group : groups) {
    head += NumberHead(group.group->value + ": mean") + NumberHead("variance");
    for (const LayerGradients& layer : group.layers) {
      if (std::ranges::find(names, layer.layer) == names.end()) names.push_back(layer.layer);
    }
  }
  Markup rows;
  for (const std::string& name : names) {
    Markup row = RowHead(name);
    for (const GroupGradients& group : groups) {
      const auto found = std::ranges::find(group.layers, name, &LayerGradients::layer);
      const auto cell = [&](Field field) {
        return NumberCell(found == group.layers.end()
                              ? std::string(kMissing)
                              : FormatSignificant(((*found).*field).mean, 3));
      };
      row += cell(&LayerGradients::mean_ratio) + cell(&LayerGradients::variance_ratio);
    }
    rows += Tag("tr", {}, row);
  }
  return Details(
      "Values: gradients at each norm",
      ScrollingTable("Gradients of " + section.config->report.title, Tag("tr", {}, head), rows));
}

}  // namespace

std::vector<LayerGradients> GradientsOf(const Group& group) {
  const bool finished = group.CountOf(Status::kFinished) > 0;
  std::vector<std::string> order;
  std::map<std::string, OneNorm> values;
  for (const Run* run : group.runs) {
    if (finished && StatusOf(*run) != Status::kFinished) continue;
    const Evaluation* evaluation = LastGradients(*run);
    if (!evaluation) continue;
    for (const NormGradients& gradients : evaluation->gradients) {
      if (!values.contains(gradients.norm)) order.push_back(gradients.norm);
      values[gradients.norm].Add(gradients, *run);
    }
  }
  std::vector<LayerGradients> layers;
  for (const std::string& name : order) {
    const OneNorm& of = values[name];
    if (of.runs.empty()) continue;
    layers.push_back({name, EstimateMean(of.mean_ratio), EstimateMean(of.variance_ratio),
                      EstimateMean(of.variance), of.runs});
  }
  return layers;
}

TheoremLine TheoremOf(std::string_view norm) {
  if (norm == "none" || norm == "detach") return {"1", "1"};
  if (norm == "detach-mean") return {"1", "at most 1"};
  if (norm == "detach-std") return {"0", "1"};
  if (norm == "layer" || norm == "layer-simple" || norm == "ada" || norm == "ada-as-coded" ||
      norm == "batch") {
    return {"0", "at most 1"};
  }
  return {kMissing, kMissing};
}

Markup RenderGradients(const Section& section, const Panel& panel, const std::string& id) {
  std::vector<GroupGradients> groups;
  for (const Group& group : panel.groups) {
    std::vector<LayerGradients> layers = GradientsOf(group);
    if (!layers.empty()) groups.push_back({&group, std::move(layers)});
  }
  if (groups.empty()) return {};

  Markup rows;
  for (const GroupGradients& group : groups) {
    const TheoremLine theorem = TheoremOf(group.group->value);
    rows += Tag("tr", {},
                RowHead(RenderSample(StyleOf(section, group.group->value)) + group.group->value),
                NumberCell(std::to_string(group.layers[0].runs.size())), NumberCell(theorem.mean),
                NumberCell(RangeText(group.layers, &LayerGradients::mean_ratio)),
                NumberCell(theorem.variance),
                NumberCell(RangeText(group.layers, &LayerGradients::variance_ratio)));
  }
  const Markup head = Head(Words(section.config->report.compare)) + NumberHead("seeds") +
                      NumberHead("mean, Theorem 1") + NumberHead("mean, measured") +
                      NumberHead("variance, Theorem 1") + NumberHead("variance, measured");
  Markup content =
      Tag("h4", {}, "Gradients at the norms (Xu et al. 2019, Theorem 1)") +
      ScrollingTable("Gradients at the norms " + panel.title, Tag("tr", {}, head), rows) +
      Tag("p", {{"class", "note"}},
          "Absolute mean and variance of the gradient with respect to a norm's input, each divided "
          "by its value with the norm's statistics detached (treated as constants). A ratio other "
          "than 1 is due to the derivatives of the statistics. Measured in the update before the "
          "last evaluation and averaged over rows and seeds; the range covers the norms of the "
          "model. The theorem holds for exact arithmetic.");

  const std::pair<Field, MetricSpec> drawn[] = {
      {&LayerGradients::variance_ratio,
       {"variance_ratio", "variance of the input gradient, relative to detached statistics", "",
        true}},
      {&LayerGradients::variance, {"variance_after", "variance of the input gradient", "", true}}};
  Markup charts;
  for (const auto& [field, metric] : drawn) {
    Chart chart;
    std::vector<Curve> curves;
    for (const GroupGradients& group : groups) {
      if (group.layers.size() < 2) continue;
      if (group.layers.size() > chart.places.size()) {
        chart.places.clear();
        for (const LayerGradients& layer : group.layers) chart.places.push_back(layer.layer);
      }
      Curve curve = CurveOver(group.layers, field);
      curves.push_back(curve);
      chart.series.push_back(
          {group.group->value, StyleOf(section, group.group->value), std::move(curve)});
    }
    if (chart.series.empty()) continue;
    chart.id = fmt::format("{}-{}", id, metric.name);
    chart.heading = metric.label;
    chart.heading[0] = 'V';
    chart.metric = metric;
    chart.axis = ValueAxis(curves, true);
    charts += RenderFigure(chart);
  }
  if (!charts.empty()) content += Tag("div", {{"class", "charts"}}, charts);
  return content + RenderNumbers(section, groups);
}

}  // namespace planish::lab
