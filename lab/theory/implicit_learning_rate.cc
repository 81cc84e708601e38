#include "lab/theory/implicit_learning_rate.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lab/analysis/format.h"
#include "lab/analysis/statistics.h"
#include "lab/engine/adam.h"
#include "lab/engine/sgd.h"
#include "lab/error.h"
#include "lab/theory/analyses.h"
#include "lab/theory/paired_training.h"

// Section 5.2.2 of Ba, Kiros & Hinton 2016: the weight vectors of normalized models grow, which
// makes them harder to turn, "an implicit early stopping". docs/math.md has the closed forms.
namespace planish::lab {
namespace {

// Errors of closed forms in double. Sums of up to 4,096 products round by less.
constexpr double kClosedFormError = 1e-9;

// Weights of a layer that are scale-invariant together: the rows of a matrix.
at::Tensor InvariantVectors(const PixelMlp& model, size_t layer, bool of_gradients) {
  const auto& linear = model.layers()[layer].linear;
  const auto pick = [&](const at::Tensor& t) { return of_gradients ? t.grad() : t.detach(); };
  const std::string& norm = model.options().norm;
  if (norm == "weight" || norm == "batch") return pick(linear->weight);
  return at::cat({pick(linear->weight).flatten(), pick(linear->bias)}).unsqueeze(0);
}

// Returns a copy in double with eps = 1e-30 whose hidden layers' weights are multiplied by `scale`,
// also their biases where the vectors of InvariantVectors have them.
std::shared_ptr<PixelMlp> ScaledCopy(const PixelMlp& model, double scale) {
  at::NoGradGuard no_grad;
  PixelMlp::Options options = model.options();
  options.norm_options.epsilon = 1e-30;  // far below a variance, but prevents 0/0
  auto copy = std::make_shared<PixelMlp>(options);
  copy->to(at::kDouble);
  const std::vector<at::Tensor> from = model.parameters(), to = copy->parameters();
  for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  for (size_t layer = 0; layer + 1 < copy->layers().size(); ++layer) {
    const auto& linear = copy->layers()[layer].linear;
    linear->weight.mul_(scale);
    if (options.norm != "weight" && options.norm != "batch") linear->bias.mul_(scale);
  }
  return copy;
}

void Differentiate(PixelMlp& model, const Tensors& batch) {
  at::cross_entropy_loss(model.forward(batch[0].to(at::kDouble)), batch[1]).backward();
}

// Returns ||dw|| / ||w|| of each neuron of the hidden layers for an update of the copy.
at::Tensor RelativeUpdates(const PixelMlp& model, double scale, const Tensors& batch, bool adam,
                           double learning_rate) {
  const std::shared_ptr<PixelMlp> copy = ScaledCopy(model, scale);
  Differentiate(*copy, batch);
  std::vector<at::Tensor> before, relative;
  for (const auto& layer : copy->layers()) before.push_back(layer.linear->weight.detach().clone());
  if (adam) {
    // epsilon is far below all gradients, so that their scale cancels.
    Adam(ParametersOf(*copy), {.learning_rate = learning_rate, .epsilon = 1e-30}).Step();
  } else {
    Sgd(ParametersOf(*copy), learning_rate).Step();
  }
  for (size_t layer = 0; layer + 1 < before.size(); ++layer) {
    const WeightMoves moves = MeasureMoves(before[layer], copy->layers()[layer].linear->weight);
    relative.push_back(moves.turned.sqrt() / moves.length);
  }
  return at::cat(relative);
}

// The ratio of relative updates of doubled weights, and the largest difference of a neuron from
// `expected`, relative to the largest update.
std::pair<double, double> RatioOfDoubled(const PixelMlp& model, const Tensors& batch, bool adam,
                                         double learning_rate, double expected) {
  const at::Tensor once = RelativeUpdates(model, 1, batch, adam, learning_rate);
  const at::Tensor twice = RelativeUpdates(model, 2, batch, adam, learning_rate);
  const auto size = [](const at::Tensor& t) { return t.norm().item<double>(); };
  return {size(twice) / size(once),
          (twice - expected * once).abs().max().item<double>() / once.max().item<double>()};
}

// What one norm and optimizer did, by seed.
struct Trainings {
  SeedValues growth;     // mean over neurons of log(||w|| at the end / at the start)
  SeedValues turned;     // sums of ||dw||^2 and 2 w . dw over updates and neurons, over the sum of
  SeedValues pulled;     // the first ||w||^2
  SeedValues slowing;    // log of the mean angle, last tenth of the updates over the first tenth
  SeedValues by_growth;  // part of `slowing`: log of the effective learning rate
  SeedValues by_rest;    // the other part
  SeedValues first, last;                      // mean angles of these tenths
  SeedValues start;                            // mean ||w|| before the first update
  std::vector<double> factors;                 // growth of each neuron of each seed
  std::vector<double> lengths, angles, rates;  // means by step, over neurons and seeds
  ScaleInvariance worst;                       // over seeds; ratios are means
};

// Weights of the hidden layers.
std::vector<at::Tensor> HiddenWeights(const PixelMlp& model) {
  std::vector<at::Tensor> weights;
  for (size_t layer = 0; layer + 1 < model.layers().size(); ++layer) {
    weights.push_back(model.layers()[layer].linear->weight.detach().to(at::kDouble));
  }
  return weights;
}

double MeanOf(const std::vector<double>& values, size_t begin, size_t end) {
  double sum = 0;
  for (size_t i = begin; i < end; ++i) sum += values[i];
  return sum / static_cast<double>(end - begin);
}

class ImplicitRate {
 public:
  explicit ImplicitRate(const AnalysisSettings& settings)
      : settings_(settings),
        trainings_("implicit-lr", settings, /*probe=*/1, result_),
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
  // The effective learning rate is lr / ||w||^power: the direction of w, scale-invariant, turns by
  // lr ||dL/dw|| / ||w|| with SGD, and dL/dw is proportional to 1 / ||w||. Adam's update does not
  // depend on the scale of dL/dw.
  static double Power(const TrainingCase& which) { return which.optimizer == "sgd" ? 2 : 1; }

  void Train(const TrainingCase& which, int64_t index, Trainings& to) {
    const auto steps = static_cast<size_t>(trainings_.steps());
    const double rate = trainings_.LearningRate(which.optimizer), power = Power(which);
    DigitTraining training = trainings_.Start(which, index);
    std::vector<at::Tensor> before = HiddenWeights(training.model());
    at::Tensor first_length, last_length;
    double turned = 0, pulled = 0;
    std::vector<double> angles, log_lengths;
    for (std::vector<double>* means : {&to.lengths, &to.angles, &to.rates}) means->resize(steps);
    for (size_t step = 0; step < steps; ++step) {
      trainings_.Step(which, training);
      std::vector<at::Tensor> after = HiddenWeights(training.model());
      std::vector<at::Tensor> all_lengths, all_angles;
      for (size_t layer = 0; layer < before.size(); ++layer) {
        const WeightMoves moves = MeasureMoves(before[layer], after[layer]);
        all_lengths.push_back(moves.length);
        all_angles.push_back(moves.angle);
        turned += moves.turned.sum().item<double>();
        pulled += moves.pulled.sum().item<double>();
      }
      const at::Tensor length = at::cat(all_lengths);
      if (step == 0) first_length = length;
      angles.push_back(at::cat(all_angles).mean().item<double>());
      log_lengths.push_back(length.log().mean().item<double>());
      to.lengths[step] += length.mean().item<double>() / Seeds();
      to.angles[step] += angles.back() / Seeds();
      to.rates[step] += rate * length.pow(-power).mean().item<double>() / Seeds();
      before = std::move(after);
    }
    std::vector<at::Tensor> last;
    for (const at::Tensor& w : before) last.push_back(w.norm(2, at::IntArrayRef{1}));
    last_length = at::cat(last);

    const at::Tensor growth = (last_length / first_length).log();
    const double squares = first_length.square().sum().item<double>();
    to.start[index] = first_length.mean().item<double>();
    to.growth[index] = growth.mean().item<double>();
    to.turned[index] = turned / squares;
    to.pulled[index] = pulled / squares;
    const at::Tensor factors = growth.exp();
    const double* data = factors.const_data_ptr<double>();
    to.factors.insert(to.factors.end(), data, data + factors.numel());

    const size_t tenth = std::max<size_t>(1, steps / 10);
    to.first[index] = MeanOf(angles, 0, tenth);
    to.last[index] = MeanOf(angles, steps - tenth, steps);
    const double slowing = std::log(to.last[index] / to.first[index]);
    if (std::isfinite(slowing)) {
      to.slowing[index] = slowing;
      to.by_growth[index] =
          -power * (MeanOf(log_lengths, steps - tenth, steps) - MeanOf(log_lengths, 0, tenth));
      to.by_rest[index] = slowing - to.by_growth[index];
    }
    AddInvariance(training, to.worst);
  }

  void AddInvariance(DigitTraining& training, ScaleInvariance& worst) {
    const ScaleInvariance found = MeasureInvariance(
        training.model(), TakeCases(trainings_.data().train, training.NextBatch()));
    if (found.sgd_ratio == 0) {
      throw UsageError(
          fmt::format("[analyze implicit-lr] --width and --depth must leave gradients after the "
                      "training with norm "
                      "{}, got none",
                      training.model().options().norm));
    }
    worst.orthogonality = std::max(worst.orthogonality, found.orthogonality);
    worst.growth = std::max(worst.growth, found.growth);
    worst.sgd_error = std::max(worst.sgd_error, found.sgd_error);
    worst.adam_error = std::max(worst.adam_error, found.adam_error);
    worst.sgd_ratio += found.sgd_ratio / Seeds();
    worst.adam_ratio += found.adam_ratio / Seeds();
  }

  double Seeds() const { return static_cast<double>(trainings_.seeds()); }

  // Returns the trainings without a norm and with the optimizer of case i, or null.
  const Trainings* Plain(size_t i) const {
    for (size_t k = 0; k < cases_.size(); ++k) {
      if (cases_[k].norm == "none" && cases_[k].optimizer == cases_[i].optimizer) return &all_[k];
    }
    return nullptr;
  }

  void AddTables() {
    TheoryTable growth{
        .caption = fmt::format(
            "Growth of the weight vectors w of the hidden neurons in {}: ||w|| at the end over "
            "||w|| at the start (geometric mean over neurons; 95% intervals over seeds), then "
            "that of quantiles of the neurons, and the percentage of neurons that shrank. "
            "\"weight\": w is the trained vector v.",
            trainings_.Description()),
        .head = {"norm, optimizer", "growth", "95%", "10%", "90%", "shrank %"}};
    TheoryTable budget{
        .caption =
            "Where the growth comes from: ||w + dw||^2 = ||w||^2 + 2 w.dw + ||dw||^2, summed over "
            "updates and neurons, relative to the first ||w||^2, with 95% intervals. For "
            "scale-invariant vectors w.dw = 0 with SGD.",
        .head = {"norm, optimizer", "2 w.dw", "±", "||dw||^2", "±"}};
    TheoryTable turning{
        .caption = fmt::format(
            "Angle by which an update turns w, in degrees, mean over neurons: in the first and the "
            "last tenth of the updates, and their ratio. \"by rate\": ratio of the effective "
            "learning rates, lr / ||w||^2 with SGD and lr / ||w|| with Adam. \"by rest\": what "
            "remains, smaller gradients."),
        .head = {"norm, optimizer", "first", "last", "ratio", "95%", "by rate", "by rest"}};
    TheoryTable forms{
        .caption =
            "Closed forms in double, with eps = 1e-30, after the training: the largest |w.g| over "
            "the "
            "largest ||w|| ||g||, g = dL/dw; the relative error of SGD's growth of ||w||^2, lr^2 "
            "||g||^2; and ||dw|| / "
            "||w|| after all hidden weights are doubled, relative to before, with SGD and in the "
            "first update of Adam. w is a neuron's vector (weight, batch) or all weights and "
            "biases of a layer (layer, none).",
        .head = {"norm, optimizer", "cosine", "growth", "doubled, SGD", "Adam"}};
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Trainings& t = all_[i];
      std::vector<double> factors = t.factors;
      std::ranges::sort(factors);
      const auto quantile = [&](double q) {
        return factors[static_cast<size_t>(q * static_cast<double>(factors.size() - 1))];
      };
      const double shrank =
          static_cast<double>(std::ranges::count_if(factors, [](double f) { return f < 1; }));
      std::vector<TheoryCell>& row = growth.rows.emplace_back();
      row.emplace_back(cases_[i].Name());
      AddFactor(EstimateMean(t.growth), 4, row);
      row.insert(row.end(), {quantile(0.1), quantile(0.9),
                             100 * shrank / static_cast<double>(factors.size())});

      std::vector<TheoryCell>& parts = budget.rows.emplace_back();
      parts.emplace_back(cases_[i].Name());
      AddCells(EstimateMean(t.pulled), parts);
      AddCells(EstimateMean(t.turned), parts);

      constexpr double kDegrees = 57.29577951308232;
      std::vector<TheoryCell>& angles = turning.rows.emplace_back();
      angles.insert(angles.end(), {cases_[i].Name(), EstimateMean(t.first).mean * kDegrees,
                                   EstimateMean(t.last).mean * kDegrees});
      AddFactor(EstimateMean(t.slowing), 3, angles);
      for (const SeedValues* part : {&t.by_growth, &t.by_rest}) {
        angles.emplace_back(part->empty() ? NAN : std::exp(EstimateMean(*part).mean));
      }

      forms.rows.push_back({cases_[i].Name(), t.worst.orthogonality, t.worst.growth,
                            t.worst.sgd_ratio, t.worst.adam_ratio});
    }
    for (TheoryTable* table : {&growth, &budget, &turning, &forms}) {
      result_.tables.push_back(std::move(*table));
    }
  }

  void AddCharts() {
    for (const std::string& optimizer : settings_.List("optimizer")) {
      const auto add = [&](std::string what, std::string label, bool log_y,
                           std::vector<double> Trainings::* values) {
        TheoryChart chart{.heading = fmt::format("{}, {}", what, optimizer),
                          .x_label = "update",
                          .y_label = std::move(label),
                          .log_y = log_y,
                          .lines = {}};
        for (size_t i = 0; i < cases_.size(); ++i) {
          if (cases_[i].optimizer != optimizer) continue;
          chart.lines.push_back(LineOf(cases_[i].norm, all_[i].*values));
        }
        result_.charts.push_back(std::move(chart));
      };
      add("Length of the weight vectors", "mean ||w||", false, &Trainings::lengths);
      add("Angle turned by an update", "mean angle, radians", true, &Trainings::angles);
      add("Effective learning rate", optimizer == "sgd" ? "mean lr / ||w||^2" : "mean lr / ||w||",
          true, &Trainings::rates);
    }
  }

  // Adds a statement about the sign of a measure of all normalized cases; `sign` is the one that
  // agrees. With `paired`, about its difference from that without a norm.
  void State(std::string text, int sign, SeedValues Trainings::* measure, bool paired,
             SignedCases cases) {
    for (size_t i = 0; i < cases_.size(); ++i) {
      const Trainings* plain = Plain(i);
      if (cases_[i].norm == "none" || (paired && !plain)) continue;
      const SeedValues& values = all_[i].*measure;
      cases.Add(cases_[i].Name(),
                paired ? PairedDifference(values, plain->*measure) : EstimateMean(values));
    }
    Add(std::move(text), sign, cases);
  }

  void Add(std::string text, int sign, const SignedCases& cases) {
    if (cases.all() == 0) return;
    result_.statements.push_back(
        {.source = "Ba, Kiros & Hinton 2016, section 5.2.2",
         .text = std::move(text),
         .verdict = sign > 0 ? VerdictOf(cases.above(), cases.below(), cases.all())
                             : VerdictOf(cases.below(), cases.above(), cases.all()),
         .measured = cases.Text()});
  }

  void AddStatements() {
    StateClosedForms();
    State("The weight vectors of normalized models grow during learning.", 1, &Trainings::growth,
          false, {"grow", "shrink"});
    State("They grow more than those of the model without a norm (implied, not stated).", 1,
          &Trainings::growth, true, {"more", "less"});
    State("The weight vectors of normalized models turn less and less.", -1, &Trainings::slowing,
          false, {"more", "less"});
    State("Their turning slows down more than without a norm (implied, not stated).", -1,
          &Trainings::slowing, true, {"slows down less", "slows down more"});
    State("The growth lowers the effective learning rate.", -1, &Trainings::by_growth, false,
          {"raised", "lowered"});
    SignedCases cases("mostly something else, or no slow-down", "mostly the growth");
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (cases_[i].norm == "none") continue;
      SeedValues excess;  // of the part of the growth, below 0 where it is the larger one
      for (const auto& [seed, slowing] : all_[i].slowing) {
        excess[seed] =
            slowing > 0 ? slowing : all_[i].by_growth.at(seed) - all_[i].by_rest.at(seed);
      }
      cases.Add(cases_[i].Name(), EstimateMean(excess));
    }
    Add("It is the growth that slows the turning down, an implicit \"early stopping\" (here: more "
        "than the gradients, which get smaller as the model learns).",
        -1, cases);
  }

  void StateClosedForms() {
    double invariance = 0, ratio = 0;
    bool any = false;
    double plain = 0;
    std::string ratios;
    for (size_t i = 0; i < cases_.size(); ++i) {
      const ScaleInvariance& worst = all_[i].worst;
      if (cases_[i].norm == "none") {
        plain = std::max(plain, worst.orthogonality);
        ratios += fmt::format("{}{} with SGD and {} with Adam after training with {}",
                              ratios.empty() ? ". Without a norm: " : ", ",
                              FormatSignificant(worst.sgd_ratio, 3),
                              FormatSignificant(worst.adam_ratio, 3), cases_[i].optimizer);
        continue;
      }
      any = true;
      invariance = std::max({invariance, worst.orthogonality, worst.growth});
      ratio = std::max({ratio, worst.sgd_error, worst.adam_error});
    }
    if (!any) return;
    const std::string without =
        plain > 0 ? fmt::format(". Without a norm, the cosine is up to {:.1e}", plain) : "";
    const auto state = [&](std::string text, double error, TheoryVerdict verdict,
                           std::string measured) {
      result_.statements.push_back(
          {.source = "Ba, Kiros & Hinton 2016, section 5.2.2",
           .text = std::move(text),
           .verdict = error <= kClosedFormError ? verdict : TheoryVerdict::kFails,
           .measured = std::move(measured)});
    };
    state(
        "The output does not depend on the length of w, so gradients are orthogonal to w, and "
        "SGD makes ||w||^2 grow by lr^2 ||dL/dw||^2 (implied, not stated).",
        invariance, TheoryVerdict::kHoldsCorrected,
        fmt::format("up to {:.1e}. w is the vector of a neuron with weight and batch. With layer "
                    "it is all weights and biases of a layer: single vectors can shrink{}",
                    invariance, without));
    state("It is harder to change the orientation of a weight vector with a large norm.", ratio,
          TheoryVerdict::kHolds,
          fmt::format("twice the weights: ||dw|| / ||w|| is 1/4 with SGD and 1/2 in the first "
                      "update of Adam, up to {:.1e}{}",
                      ratio, ratios));
  }

  const AnalysisSettings& settings_;
  TheoryResult result_;
  PairedTrainings trainings_;
  std::vector<TrainingCase> cases_;
  std::vector<Trainings> all_;
};

}  // namespace

WeightMoves MeasureMoves(const at::Tensor& before, const at::Tensor& after) {
  at::NoGradGuard no_grad;
  const at::Tensor w = before.detach().to(at::kDouble), dw = after.detach().to(at::kDouble) - w;
  const auto lengths = [](const at::Tensor& t) { return t.norm(2, at::IntArrayRef{1}); };
  const at::Tensor length = lengths(w), other = lengths(w + dw);
  // Kahan's formula: accurate for small angles, unlike acos.
  const at::Tensor u = w * other.unsqueeze(1), v = (w + dw) * length.unsqueeze(1);
  return {.length = length,
          .angle = 2 * at::atan2(lengths(u - v), lengths(u + v)),
          .turned = dw.square().sum(1),
          .pulled = 2 * (w * dw).sum(1)};
}

ScaleInvariance MeasureInvariance(const PixelMlp& model, const Tensors& batch) {
  ScaleInvariance found;
  const std::shared_ptr<PixelMlp> copy = ScaledCopy(model, 1);
  Differentiate(*copy, batch);
  std::vector<at::Tensor> vectors;
  double weights = 0, gradients = 0;  // squared lengths
  double product = 0, largest = 0;
  for (size_t layer = 0; layer + 1 < copy->layers().size(); ++layer) {
    const at::Tensor w = InvariantVectors(*copy, layer, false).clone();
    const at::Tensor g = InvariantVectors(*copy, layer, true);
    const auto lengths = [](const at::Tensor& t) { return t.norm(2, at::IntArrayRef{1}); };
    product = std::max(product, (w * g).sum(1).abs().max().item<double>());
    largest = std::max(largest, (lengths(w) * lengths(g)).max().item<double>());
    weights += w.square().sum().item<double>();
    gradients += g.square().sum().item<double>();
    vectors.push_back(w);
  }
  if (!(gradients > 0)) return found;
  found.orthogonality = product / largest;
  const double learning_rate = std::sqrt(weights / gradients);
  Sgd(ParametersOf(*copy), learning_rate).Step();
  double growth = 0;
  for (size_t layer = 0; layer < vectors.size(); ++layer) {
    const WeightMoves moves = MeasureMoves(vectors[layer], InvariantVectors(*copy, layer, false));
    growth += (moves.turned + moves.pulled).sum().item<double>();
  }
  found.growth = std::abs(growth / (learning_rate * learning_rate * gradients) - 1);
  std::tie(found.sgd_ratio, found.sgd_error) =
      RatioOfDoubled(model, batch, false, learning_rate, 0.25);
  std::tie(found.adam_ratio, found.adam_error) =
      RatioOfDoubled(model, batch, true, learning_rate, 0.5);
  return found;
}

TheoryAnalysis ImplicitLearningRate() {
  return {
      .name = "implicit-lr",
      .summary = "Growth and turning of weight vectors in training (5.2.2 of Ba et al. 2016)",
      .settings = PairedTrainings::SettingsWith(/*depth=*/2, /*steps=*/200),
      .lists = PairedTrainings::ListsWith({}, {}),
      .files = AnalysisFiles::kData,
      .measure = [](const AnalysisSettings& settings) { return ImplicitRate(settings).Measure(); }};
}

}  // namespace planish::lab
