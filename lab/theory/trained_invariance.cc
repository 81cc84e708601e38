#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lab/error.h"
#include "lab/theory/invariance_parts.h"
#include "lab/theory/trained_run.h"

// Invariances of the layers of a trained run.
namespace planish::lab {
namespace {

std::vector<double> ToDoubles(const at::Tensor& t) {
  const at::Tensor doubles = t.detach().to(at::kCPU, at::kDouble).contiguous();
  const double* begin = doubles.const_data_ptr<double>();
  return {begin, begin + doubles.numel()};
}

// Returns the line of Table 1, or null.
const PaperInvariances::Line* PrintedLine(const std::string& norm) {
  for (const PaperInvariances::Line& line : FindPaper("ba2016").invariances->lines) {
    if (line.norm == norm) return &line;
  }
  return nullptr;
}

// Measures the layers of a trained run.
class TrainedInvariance {
 public:
  explicit TrainedInvariance(const AnalysisSettings& settings)
      : settings_(settings), opened_(OpenAnalyzedRun(settings, result_)) {}

  TheoryResult Measure() {
    const at::NoGradGuard no_grad;
    const std::vector<Layer> layers = Layers();
    norm_ = layers.front().norm;
    if (std::ranges::count(settings_.List("norm"), norm_) == 0) {
      throw UsageError(
          fmt::format("[analyze invariance] --norm must have that of the run, {}, got {}", norm_,
                      fmt::join(settings_.List("norm"), ",")));
    }
    const NormOptions& options = layers.front().options;
    options_ = {.eps = options.epsilon, .scale = options.ada_c, .slope = options.ada_k};
    exact_ = options_;
    exact_.eps = 0;
    result_.settings["eps"] = options_.eps;
    line_ = PrintedLine(norm_);
    expected_ = line_ != nullptr ? line_->invariant : OnRandomData();
    EpsReport eps(options_.eps, settings_.Number("change"), "layer");
    for (const Layer& of : layers) {
      LinearLayer layer = LayerInDouble(of);
      if (HasEps(norm_)) {
        eps.Add(
            of.name,
            {.norm = norm_, .cases = layer.cases, .units = layer.units, .a = SumsOf(norm_, layer)});
      }
      MeasureLayer(of.name, std::move(layer));
    }
    result_.tables.push_back(std::move(joint_));
    State();
    eps.MoveTo(result_);
    return std::move(result_);
  }

 private:
  using Layer = LinearLayersWithNorms::Layer;

  // Throws UsageError if the run has none.
  std::vector<Layer> Layers() {
    auto* network = dynamic_cast<LinearLayersWithNorms*>(opened_.trained.experiment.get());
    if (network == nullptr) {
      throw UsageError(fmt::format("[analyze invariance] {} must be of a task that {}, got task {}",
                                   opened_.run.folder.string(), LinearLayersWithNorms::kTask,
                                   opened_.run.config.task));
    }
    opened_.trained.experiment->model().to(at::kDouble);
    std::vector<Layer> layers = network->LayersWithNorms(settings_.Whole("cases"));
    if (layers.empty()) {
      throw UsageError(fmt::format("[analyze invariance] {} must have layers with a norm, got {}",
                                   opened_.run.folder.string(), opened_.Description()));
    }
    return layers;
  }

  InvariantColumns OnRandomData() const {
    const LinearLayer layer = RandomLinearLayer();
    return ChangesOf([&](const LinearLayer& of) { return NormalizedOutputs(norm_, of, exact_); },
                     layer, RandomTransformationParameters(layer))
        .Invariant();
  }

  LayerChanges Changes(const LinearLayer& layer, const InvarianceOptions& options) const {
    const auto seed = static_cast<uint64_t>(settings_.Whole("seed"));
    return ChangesOf([&](const LinearLayer& of) { return NormalizedOutputs(norm_, of, options); },
                     layer, RandomTransformationParameters(layer, seed + 1));
  }

  static std::string Explanation() {
    return fmt::format(
        "d = 2, 1/2, 3. At most {:g}: invariant. {} Re-scaling weights also re-scales "
        "biases before the norm.",
        kInvariant, kColumnsText);
  }

  void MeasureLayer(const std::string& name, LinearLayer layer) {
    TheoryTable table{
        .caption = fmt::format(
            "{} of {}, {} inputs and {} units: the largest change of its normalized outputs, "
            "relative to the largest, for {} cases of test data. {}",
            name, opened_.Description(), layer.inputs, layer.units, layer.cases,
            result_.tables.empty() ? Explanation() : "Columns as above."),
        .head = ChangeHead(name)};
    const auto add = [&](const std::string& variant, const LayerChanges& changes) {
      table.rows.push_back(ChangeRow(variant, changes));
      joint_.rows.push_back({name, variant, changes.joint});
    };
    if (!layer.mean.empty() || layer.state) {
      const LayerChanges changes = Changes(layer, options_);
      add("running estimates", changes);
      for (size_t i = 0; i < expected_.size(); ++i) {
        if (!expected_[i]) continue;
        least_with_estimates_ = std::min(least_with_estimates_, changes.columns[i]);
        most_with_estimates_ = std::max(most_with_estimates_, changes.columns[i]);
      }
      layer.mean.clear();
      layer.variance.clear();
      layer.state.reset();
    }
    if (HasEps(norm_)) add(fmt::format("eps = {:g}", options_.eps), Changes(layer, options_));
    const std::string exact = HasEps(norm_) ? "eps = 0" : "as trained";
    const bool has_offset = !layer.offset.empty();
    if (has_offset) {
      const LayerChanges changes = Changes(layer, exact_);
      add(exact, changes);
      with_biases_.Add(changes, expected_);
      with_biases_data_ = std::max(with_biases_data_, changes.Of(Transformation::kDataScale));
      layer.offset.clear();
    }
    const LayerChanges changes = Changes(layer, exact_);
    add(has_offset ? exact + ", no bias" : exact, changes);
    without_biases_.Add(changes, expected_);
    largest_joint_ = std::max(largest_joint_, changes.joint);
    result_.tables.push_back(std::move(table));
  }

  void Add(std::string source, std::string text, TheoryVerdict verdict, std::string measured) {
    result_.statements.push_back({.source = std::move(source),
                                  .text = std::move(text),
                                  .verdict = verdict,
                                  .measured = std::move(measured)});
  }

  void State() {
    Add(line_ != nullptr ? SourceInBa("Table 1") : "as measured on random data",
        LineText(line_ != nullptr ? line_->label : norm_, expected_), without_biases_.Verdict(),
        fmt::format("with the trained weights and the run's data, eps = 0 and no biases before the "
                    "norm: {}",
                    without_biases_.Text()));
    if (with_biases_data_ > 0 && expected_[static_cast<size_t>(Transformation::kDataScale)]) {
      const TheoryVerdict verdict = with_biases_.Verdict();
      Add(SourceInBa("Table 1; its layers have no biases before the norm"),
          "The trained layers have these invariances with their biases before the norm.",
          verdict == TheoryVerdict::kFails ? TheoryVerdict::kHoldsInPart : verdict,
          fmt::format("re-scaling the data does not re-scale the biases, and changes outputs by "
                      "{:.2g} at most. {}",
                      with_biases_data_,
                      verdict == TheoryVerdict::kHolds
                          ? "The norm subtracts the bias of each unit with its mean"
                          : "Those to the weights hold if biases are re-scaled with them"));
    }
    if (std::isfinite(least_with_estimates_)) {
      Add(SourceInBa("Table 1; evaluation with running estimates"),
          "The invariances hold with the running estimates that evaluation uses.",
          least_with_estimates_ > kInvariant   ? TheoryVerdict::kFails
          : most_with_estimates_ <= kInvariant ? TheoryVerdict::kHolds
                                               : TheoryVerdict::kHoldsInPart,
          fmt::format("transformations to which the norm is invariant in training change outputs "
                      "by {:.2g} to {:.2g}: the estimates are those of the training's weights and "
                      "data",
                      least_with_estimates_, most_with_estimates_));
    }
    if (norm_ == "layer") {
      Add(SourceInBa("Eq. 6"), "Layer norm is invariant to W -> d W + 1 gamma^T.",
          largest_joint_ <= kInvariant ? TheoryVerdict::kHolds : TheoryVerdict::kFails,
          fmt::format("outputs change by {:.1e}", largest_joint_));
    }
  }

  const AnalysisSettings& settings_;
  TheoryResult result_;
  AnalyzedRun opened_;
  std::string norm_;
  InvarianceOptions options_, exact_;
  const PaperInvariances::Line* line_ = nullptr;
  InvariantColumns expected_{};
  TheoryTable joint_{.caption = "Eq. 6, W -> d W + 1 gamma^T: the largest change of the outputs.",
                     .head = {"layer", "variant", "change"}};
  ChangeRange without_biases_, with_biases_;
  double with_biases_data_ = 0, largest_joint_ = 0;
  // Of the running estimates, where the norm is invariant in training.
  double least_with_estimates_ = std::numeric_limits<double>::infinity(), most_with_estimates_ = 0;
};

}  // namespace

LinearLayer LayerInDouble(const LinearLayersWithNorms::Layer& of) {
  LinearLayer layer{.cases = of.x.size(0),
                    .inputs = of.weight.size(1),
                    .units = of.weight.size(0),
                    .x = ToDoubles(of.x),
                    .w = ToDoubles(of.weight)};
  std::map<std::string, at::Tensor> values;
  for (const auto& item : of.of_norm->named_parameters()) values[item.key()] = item.value();
  for (const auto& item : of.of_norm->named_buffers()) values[item.key()] = item.value();
  // Row norms and batch norm are modules of their own inside of the lab's.
  const auto find = [&](const std::string& name) -> std::optional<std::vector<double>> {
    for (const std::string& key : {name, "norm." + name}) {
      if (values.contains(key)) return ToDoubles(values.at(key));
    }
    return std::nullopt;
  };
  const bool is_weight = of.norm == "weight";
  layer.gain = find(is_weight ? "gain" : "weight").value_or(std::vector<double>{});
  layer.bias = find("bias").value_or(std::vector<double>{});
  layer.mean = find("running_mean").value_or(std::vector<double>{});
  layer.variance = find("running_var").value_or(std::vector<double>{});
  if (const auto state = find("state")) layer.state = {(*state)[0], (*state)[1]};
  if (const auto alpha = find("alpha")) layer.alpha = alpha->front();
  if (const auto shift = find("shift")) layer.shift = shift->front();
  // Weight norm's own bias is that of the linear layer, which it does not normalize.
  if (of.bias.defined()) (is_weight ? layer.bias : layer.offset) = ToDoubles(of.bias);
  return layer;
}

TheoryResult MeasureTrainedInvariance(const AnalysisSettings& settings) {
  return TrainedInvariance(settings).Measure();
}

}  // namespace planish::lab
