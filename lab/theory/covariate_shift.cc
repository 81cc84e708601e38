#include "lab/theory/covariate_shift.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lab/analysis/format.h"
#include "lab/analysis/statistics.h"
#include "lab/model/norms.h"
#include "lab/theory/analyses.h"
#include "lab/theory/paired_training.h"

// Sections 2 and 3 of Ba, Kiros & Hinton 2016: updates of a layer shift the distributions of the
// next layer's summed inputs, and norms that fix mean and variance reduce this "covariate shift".
namespace planish::lab {
namespace {

// Shifts of normalized values that count as none. Sums are floats of magnitude 1, and the norm is
// computed in double.
constexpr double kFixed = 1e-9;

// Changes are highly correlated from this root mean square of their cosines up.
constexpr double kHighCorrelation = 0.5;

constexpr at::Tensor LayerValues::* kMembers[] = {&LayerValues::sums, &LayerValues::normalized,
                                                  &LayerValues::outputs, &LayerValues::from_below};
enum LayerQuantity : size_t { kOfSums, kOfNormalized, kOfOutputs, kFromBelow, kLayerQuantities };
enum Direction : int64_t { kUnits = 0, kCases = 1 };  // whose distributions

// Root mean squares of moves by seed.
struct Moves {
  SeedValues mean, variance;
};

// What one norm and optimizer did.
struct Shifts {
  // By layer, quantity and Direction.
  std::vector<std::array<std::array<Moves, 2>, kLayerQuantities>> layers;
  std::vector<SeedValues> correlation;    // by layer; the first has none
  SeedValues loss;                        // at the end, on the probe
  std::vector<std::vector<Shift>> steps;  // by layer: of units' outputs, summed over seeds
};

// Values of a layer with the distributions of each quantity, by Direction.
struct MeasuredLayer {
  LayerValues values;
  std::array<std::array<Distributions, 2>, kLayerQuantities> distributions;
};

std::vector<MeasuredLayer> MeasureDistributions(PixelMlp& model, PixelMlp& earlier,
                                                const at::Tensor& x) {
  std::vector<MeasuredLayer> layers;
  for (LayerValues& values : MeasureLayers(model, earlier, x)) {
    MeasuredLayer& layer = layers.emplace_back();
    for (size_t q = 0; q < kLayerQuantities; ++q) {
      for (const Direction along : {kUnits, kCases}) {
        layer.distributions[q][along] = DistributionsOf(values.*kMembers[q], along);
      }
    }
    layer.values = std::move(values);
  }
  return layers;
}

double RootMean(double sum, double count) { return std::sqrt(sum / count); }

SeedValues Logarithms(const SeedValues& values) {
  SeedValues logs;
  for (const auto& [seed, value] : values) {
    if (value > 0) logs[seed] = std::log(value);
  }
  return logs;
}

class ShiftAnalysis {
 public:
  explicit ShiftAnalysis(const AnalysisSettings& settings)
      : settings_(settings),
        depth_(static_cast<size_t>(settings.Whole("depth"))),
        trainings_("shift", settings, settings.Whole("probe"), result_),
        cases_(trainings_.Cases()),
        all_(cases_.size()) {}

  TheoryResult Measure() {
    trainings_.ForEach(cases_, [&](const TrainingCase& which, int64_t index, size_t i) {
      Train(which, index, all_[i]);
    });
    AddTables();
    AddCharts();
    AddStatements();
    return std::move(result_);
  }

 private:
  void Train(const TrainingCase& which, int64_t index, Shifts& to) {
    const auto steps = static_cast<size_t>(trainings_.steps());
    to.layers.resize(depth_);
    to.correlation.resize(depth_);
    to.steps.resize(depth_);
    for (auto& layer : to.steps) layer.resize(steps);

    DigitTraining training = trainings_.Start(which, index);
    PixelMlp& model = training.model();
    PixelMlp earlier(model.options());
    const at::Tensor x = trainings_.data().valid.x;
    std::vector<std::array<std::array<Shift, 2>, kLayerQuantities>> sums(depth_);
    std::vector<double> correlations(depth_);
    std::vector<MeasuredLayer> before = MeasureDistributions(model, model, x);
    for (size_t step = 0; step < steps; ++step) {
      {
        at::NoGradGuard no_grad;
        const std::vector<at::Tensor> from = model.parameters(), copies = earlier.parameters();
        for (size_t i = 0; i < from.size(); ++i) copies[i].copy_(from[i]);
      }
      trainings_.Step(which, training);
      std::vector<MeasuredLayer> after = MeasureDistributions(model, earlier, x);
      for (size_t layer = 0; layer < depth_; ++layer) {
        for (size_t q = 0; q < kLayerQuantities; ++q) {
          for (const Direction along : {kUnits, kCases}) {
            // The distributions that the layers below moved are those of the sums.
            const size_t of = q == kFromBelow ? kOfSums : q;
            const Shift shift = MeasureShift(before[layer].distributions[of][along],
                                             after[layer].distributions[q][along]);
            sums[layer][q][along].Add(shift);
            if (q == kOfOutputs && along == kUnits) to.steps[layer][step].Add(shift);
          }
        }
        if (layer == 0) continue;
        const double r =
            ColumnCorrelation(after[layer].values.from_below - before[layer].values.sums);
        if (std::isfinite(r)) correlations[layer] += r / static_cast<double>(steps);
      }
      before = std::move(after);
    }
    for (size_t layer = 0; layer < depth_; ++layer) {
      for (size_t q = 0; q < kLayerQuantities; ++q) {
        for (const Direction along : {kUnits, kCases}) {
          const Shift& sum = sums[layer][q][along];
          if (sum.count == 0) continue;
          Moves& moves = to.layers[layer][q][along];
          moves.mean[index] = RootMean(sum.mean, sum.count);
          moves.variance[index] = RootMean(sum.variance, sum.count);
        }
      }
      if (layer > 0) to.correlation[layer][index] = correlations[layer];
    }
    at::NoGradGuard no_grad;
    to.loss[index] =
        at::cross_entropy_loss(model.forward(x), trainings_.data().valid.labels).item<double>();
  }

  // Returns the trainings without a norm and with the optimizer of case i, or null.
  const Shifts* Plain(size_t i) const {
    for (size_t k = 0; k < cases_.size(); ++k) {
      if (cases_[k].norm == "none" && cases_[k].optimizer == cases_[i].optimizer) return &all_[k];
    }
    return nullptr;
  }

  std::string Row(size_t i, size_t layer) const {
    return fmt::format("{} {}", cases_[i].Name(), layer + 1);
  }

  void AddMoves(Direction along, std::string caption) {
    TheoryTable table{.caption = std::move(caption),
                      .head = {"case, layer", "a", "var", "xhat", "var", "y", "var"}};
    for (size_t i = 0; i < cases_.size(); ++i) {
      for (size_t layer = 0; layer < depth_; ++layer) {
        std::vector<TheoryCell>& row = table.rows.emplace_back();
        row.emplace_back(Row(i, layer));
        for (const LayerQuantity q : {kOfSums, kOfNormalized, kOfOutputs}) {
          const Moves& moves = all_[i].layers[layer][q][along];
          row.emplace_back(EstimateMean(moves.mean).mean);
          row.emplace_back(EstimateMean(moves.variance).mean);
        }
      }
    }
    result_.tables.push_back(std::move(table));
  }

  // Adds the moves of units relative to those without a norm, from layer `first` up.
  void AddRatios(LayerQuantity q, size_t first, std::string caption) {
    TheoryTable table{.caption = std::move(caption),
                      .head = {"case, layer", "means", "95%", "variances", "95%"}};
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Shifts* plain = Plain(i);
      if (cases_[i].norm == "none" || !plain) continue;
      for (size_t layer = first; layer < depth_; ++layer) {
        std::vector<TheoryCell>& row = table.rows.emplace_back();
        row.emplace_back(Row(i, layer));
        for (SeedValues Moves::* what : {&Moves::mean, &Moves::variance}) {
          AddFactor(LogRatio(all_[i], *plain, layer, q, what), 2, row);
        }
      }
    }
    if (!table.rows.empty()) result_.tables.push_back(std::move(table));
  }

  // Returns the logarithm of the ratio of two cases' moves, paired by seed.
  static Estimate LogRatio(const Shifts& a, const Shifts& b, size_t layer, LayerQuantity q,
                           SeedValues Moves::* what) {
    const auto logs = [&](const Shifts& shifts) {
      return Logarithms(shifts.layers[layer][q][kUnits].*what);
    };
    return PairedDifference(logs(a), logs(b));
  }

  void AddTables() {
    AddMoves(kUnits,
             fmt::format("Moves of the mean of a unit between two updates, in its standard "
                         "deviations, and of the logarithm of its variance (\"var\"): root mean "
                         "squares over units and updates, in {}. Mean and variance are over {} "
                         "validation cases: of the summed inputs a, of the normalized sums xhat, "
                         "and of the norm's outputs y with gain and bias, which ReLU gets.",
                         trainings_.Description(), settings_.Whole("probe")));
    AddMoves(kCases, "The same moves of the mean and the variance of a case over the units.");
    AddRatios(kOfOutputs, 0,
              "Moves of the units' y relative to those without a norm, with 95% intervals of the "
              "ratio over seeds, paired.");
    AddRatios(kFromBelow, 1,
              "The same ratios of the moves of a that the layers below cause: with the layer's own "
              "weights of before the update.");

    TheoryTable changes{
        .caption =
            "Root mean square of the cosine between the changes of two units' a that the "
            "layers below cause, over the cases.",
        .head = {"case, layer", "cosine", "±"}};
    TheoryTable losses{.caption = "Loss of these cases after the last update.",
                       .head = {"case", "loss", "±"}};
    for (size_t i = 0; i < cases_.size(); ++i) {
      for (size_t layer = 1; layer < depth_; ++layer) {
        std::vector<TheoryCell>& row = changes.rows.emplace_back();
        row.emplace_back(Row(i, layer));
        AddCells(EstimateMean(all_[i].correlation[layer]), row);
      }
      std::vector<TheoryCell>& row = losses.rows.emplace_back();
      row.emplace_back(cases_[i].Name());
      AddCells(EstimateMean(all_[i].loss), row);
    }
    if (!changes.rows.empty()) result_.tables.push_back(std::move(changes));
    result_.tables.push_back(std::move(losses));
  }

  void AddCharts() {
    for (const std::string& optimizer : settings_.List("optimizer")) {
      for (size_t layer = 0; layer < depth_; ++layer) {
        for (const bool of_means : {true, false}) {
          TheoryChart chart{
              .heading = fmt::format("Moves of the {} of outputs, layer {}, {}",
                                     of_means ? "means" : "variances", layer + 1, optimizer),
              .x_label = "update",
              .y_label = of_means ? "move in standard deviations" : "move of log variance",
              .log_y = true,
              .lines = {}};
          for (size_t i = 0; i < cases_.size(); ++i) {
            if (cases_[i].optimizer != optimizer) continue;
            std::vector<double> sizes;
            for (const Shift& shift : all_[i].steps[layer]) {
              sizes.push_back(RootMean(of_means ? shift.mean : shift.variance, shift.count));
            }
            chart.lines.push_back(LineOf(cases_[i].norm, sizes));
          }
          result_.charts.push_back(std::move(chart));
        }
      }
    }
  }

  void State(std::string section, std::string text, TheoryVerdict verdict, std::string measured) {
    result_.statements.push_back(
        {.source = "Ba, Kiros & Hinton 2016, section " + std::move(section),
         .text = std::move(text),
         .verdict = verdict,
         .measured = std::move(measured)});
  }

  bool Has(const std::string& norm) const {
    return std::ranges::count(cases_, norm, &TrainingCase::norm) > 0;
  }

  void AddStatements() {
    SignedCases correlated("yes", "no");
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (cases_[i].norm != "none") continue;
      for (size_t layer = 1; layer < depth_; ++layer) {
        SeedValues above;
        for (const auto& [seed, r] : all_[i].correlation[layer]) above[seed] = r - kHighCorrelation;
        correlated.Add(Row(i, layer), EstimateMean(above));
      }
    }
    if (correlated.all() > 0) {
      State(
          "3",
          "Without a norm, changes in the output of one layer cause highly correlated changes in "
          "the summed inputs of the next layer.",
          VerdictOf(correlated.above(), correlated.below(), correlated.all()),
          fmt::format("root mean square cosine above {}: {}", kHighCorrelation, correlated.Text()));
    }
    if (Has("batch")) {
      StateFixed("2", "Batch norm fixes mean and variance of each unit's summed inputs.", "batch",
                 kUnits, "of units over the cases of a batch. Gains and biases move them again");
    }
    if (Has("layer")) {
      StateFixed("3", "Layer norm fixes mean and variance of the summed inputs within each layer.",
                 "layer", kCases,
                 "of cases over the units. Means and variances of single units over the cases move "
                 "(first table)");
    }
    constexpr std::array<std::array<const char*, 3>, 3> kNorms = {
        {{"batch", "Batch norm", "2"},
         {"layer", "Layer norm", "3"},
         {"weight", "Weight norm", "5.1"}}};
    for (const auto& [norm, name, section] : kNorms) StateReduction(norm, name, section);
  }

  void StateFixed(std::string section, std::string text, const std::string& norm, Direction along,
                  std::string_view more) {
    double largest = 0;
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (cases_[i].norm != norm) continue;
      for (const auto& layer : all_[i].layers) {
        const Moves& moves = layer[kOfNormalized][along];
        largest =
            std::max({largest, EstimateMean(moves.mean).max, EstimateMean(moves.variance).max});
      }
    }
    State(std::move(section), std::move(text),
          largest <= kFixed ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
          fmt::format("moves of at most {:.1e} {}", largest, more));
  }

  // Adds the statement that a norm reduces the shift, if it and the model without one were trained.
  void StateReduction(const std::string& norm, const std::string& name, const char* section) {
    SignedCases outputs("more", "less"), below("more", "less");
    std::string losses;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Shifts* plain = Plain(i);
      if (cases_[i].norm != norm || !plain) continue;
      const std::string& optimizer = cases_[i].optimizer;
      for (SeedValues Moves::* what : {&Moves::mean, &Moves::variance}) {
        for (size_t layer = 0; layer < depth_; ++layer) {
          const auto add = [&](LayerQuantity q, SignedCases& to) {
            to.Add(fmt::format("{} {} {}", optimizer, what == &Moves::mean ? "mean" : "variance",
                               layer + 1),
                   LogRatio(all_[i], *plain, layer, q, what));
          };
          add(kOfOutputs, outputs);
          if (layer > 0) add(kFromBelow, below);
        }
      }
      losses += fmt::format("{}{} with it and {} without with {}", losses.empty() ? "" : ", ",
                            FormatSignificant(EstimateMean(all_[i].loss).mean, 3),
                            FormatSignificant(EstimateMean(plain->loss).mean, 3), optimizer);
    }
    if (outputs.all() > 0) {
      State(section,
            name +
                " reduces covariate shift: mean and variance of each unit's input of the "
                "nonlinearity move less than without a norm.",
            VerdictOf(outputs.below(), outputs.above(), outputs.all()),
            fmt::format("by optimizer and layer, {}. What learns faster moves more: the loss is {}",
                        outputs.Text(), losses));
    }
    if (below.all() > 0) {
      State(section,
            name +
                " reduces covariate shift: layers below move mean and variance of each unit's "
                "summed inputs less than without a norm.",
            VerdictOf(below.below(), below.above(), below.all()),
            "by optimizer and layer, " + below.Text());
    }
  }

  const AnalysisSettings& settings_;
  size_t depth_;
  TheoryResult result_;
  PairedTrainings trainings_;
  std::vector<TrainingCase> cases_;
  std::vector<Shifts> all_;
};

}  // namespace

std::vector<LayerValues> MeasureLayers(PixelMlp& model, PixelMlp& earlier, const at::Tensor& x) {
  at::NoGradGuard no_grad;
  const PixelMlp::Options& options = model.options();
  NormOptions exact = options.norm_options;
  exact.epsilon = 1e-30;  // far below a variance, but prevents 0/0
  std::vector<LayerValues> values;
  at::Tensor h = x;
  for (size_t layer = 0; layer + 1 < model.layers().size(); ++layer) {
    const at::Tensor sums = model.Sums(layer, h);
    const at::Tensor below = &earlier == &model ? sums : earlier.Sums(layer, h);
    // A new norm has gains of 1 and biases of 0.
    const auto norm = MakeNorm(options.norm, {options.width}, exact);
    norm->to(at::kDouble);
    const at::Tensor outputs = model.layers()[layer].norm->forward(sums);
    h = outputs.relu();
    const at::Tensor exact_sums = sums.to(at::kDouble);
    values.push_back({.sums = exact_sums,
                      .normalized = norm->forward(exact_sums),
                      .outputs = outputs.to(at::kDouble),
                      .from_below = below.to(at::kDouble)});
  }
  return values;
}

void Shift::Add(const Shift& other) {
  mean += other.mean;
  variance += other.variance;
  count += other.count;
}

Distributions DistributionsOf(const at::Tensor& values, int64_t dim) {
  const at::Tensor mean = values.mean(dim);
  return {mean, (values - mean.unsqueeze(dim)).square().mean(dim)};
}

Shift MeasureShift(const Distributions& before, const Distributions& after) {
  const at::Tensor used = before.variance.gt(0).logical_and(after.variance.gt(0));
  const at::Tensor moved = (after.mean - before.mean).square() / before.variance;
  const at::Tensor scaled = (after.variance / before.variance).log().square();
  const auto sum = [&](const at::Tensor& t) { return t.masked_select(used).sum().item<double>(); };
  return {.mean = sum(moved), .variance = sum(scaled), .count = used.sum().item<double>()};
}

double ColumnCorrelation(const at::Tensor& t) {
  const at::Tensor lengths = t.norm(2, at::IntArrayRef{0});
  const at::Tensor used = lengths.gt(0);
  const at::Tensor columns = (t / lengths).index({at::indexing::Slice(), used});
  const auto count = static_cast<double>(columns.size(1));
  const double squares = columns.t().matmul(columns).square().sum().item<double>();
  return std::sqrt(std::max(0.0, squares - count) / (count * (count - 1)));
}

TheoryAnalysis CovariateShift() {
  std::vector<AnalysisSetting> settings = PairedTrainings::SettingsWith(/*depth=*/3, /*steps=*/100);
  settings.push_back(
      {"probe", "validation cases on which the layers are measured", 256, 4, 10'000});
  return {.name = "shift",
          .summary = "Shift of each layer's sums between updates (sections 2-3 of Ba et al. 2016)",
          .settings = std::move(settings),
          .lists = PairedTrainings::ListsWith({"none", "batch", "layer"}, {}),
          .files = AnalysisFiles::kData,
          .measure = [](const AnalysisSettings& given) { return ShiftAnalysis(given).Measure(); }};
}

}  // namespace planish::lab
