#include "lab/tasks/digit_cases.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lab/data/source.h"
#include "lab/error.h"
#include "lab/tasks/class_predictions.h"

namespace planish::lab {

namespace {

// Returns rows [begin, end) of `images` as tensors.
Cases Slice(const Images& images, int64_t begin, int64_t end) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  const int64_t size = images.height * images.width;
  auto* pixels = const_cast<uint8_t*>(images.pixels.data()) + begin * size;
  auto* labels = const_cast<uint8_t*>(images.labels.data()) + begin;
  return {at::from_blob(pixels, {end - begin, size}, bytes).to(at::kFloat).div_(255),
          at::from_blob(labels, {end - begin}, bytes).to(at::kLong)};
}

}  // namespace

std::unique_ptr<DigitCases> CutCases(std::string_view task, const Settings& settings,
                                     const ImageSet& set) {
  const int64_t train = settings.Int("train_cases"), valid = settings.Int("valid_cases"),
                test = settings.Int("test_cases");
  if (train + valid > set.train.count || test > set.test.count) {
    throw UsageError(
        fmt::format("[{}] train_cases + valid_cases and test_cases must be at most {} and {}, the "
                    "images there are, got {} and {}",
                    task, set.train.count, set.test.count, train + valid, test));
  }
  return CutCases(set, {train, valid, test});
}

std::unique_ptr<DigitCases> CutCases(const ImageSet& set, const CaseCounts& counts) {
  const auto [train, valid, test] = counts;
  auto data = std::make_unique<DigitCases>();
  data->train = Slice(set.train, 0, train);
  data->valid = Slice(set.train, train, train + valid);
  data->test = Slice(set.test, 0, test);
  data->shape = {set.train.height, set.train.width, 1};
  data->about = AboutSplits(set, set.description, train, valid, test);
  return data;
}

Tensors TakeCases(const Cases& cases, const at::Tensor& indices) {
  return {cases.x.index_select(0, indices), cases.labels.index_select(0, indices)};
}

Cases FirstCases(const Cases& cases, int64_t count) {
  return {cases.x.slice(0, 0, count), cases.labels.slice(0, 0, count)};
}

Scores Score(const std::function<at::Tensor(const at::Tensor&)>& logits, const Cases& cases,
             int64_t at_once) {
  double nll = 0;
  int64_t wrong = 0;
  Tensors answers;
  const int64_t count = cases.x.size(0);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t end = std::min(begin + at_once, count);
    const at::Tensor part = logits(cases.x.slice(0, begin, end));
    const at::Tensor labels = cases.labels.slice(0, begin, end);
    nll += at::cross_entropy_loss(part, labels, {}, at::Reduction::Sum).item<double>();
    answers.push_back(part.argmax(1));
    wrong += answers.back().ne(labels).sum().item<int64_t>();
  }
  const auto all = static_cast<double>(count);
  return {nll / all, static_cast<double>(wrong) / all, static_cast<double>(count - wrong) / all,
          at::cat(answers)};
}

EpochPlan DigitExperiment::PlanEpoch(at::Generator& generator) {
  return ShuffledBatches(data_.train.x.size(0), options_.batch_size, generator);
}

Tensors DigitExperiment::Batch(const at::Tensor& cases) { return TakeCases(data_.train, cases); }

at::Tensor DigitExperiment::Loss(const Tensors& batch) {
  return at::cross_entropy_loss(Logits(batch[0]), batch[1]);
}

Values DigitExperiment::Evaluate() {
  Values values;
  Measure("train", FirstCases(data_.train, options_.train_probe), &values);
  Measure("valid", data_.valid, &values);
  if (options_.test_curves) Measure("test", data_.test, &values);
  return values;
}

Values DigitExperiment::Test() {
  Values values;
  const Scores scores = Measure("test", data_.test, &values);
  SetPredictions(ClassPredictions(data_.test.labels, scores.answers));
  return values;
}

Scores DigitExperiment::Measure(const std::string& split, const Cases& cases, Values* values) {
  const Scores scores =
      Score([this](const at::Tensor& x) { return Poll(), Logits(OnDevice(x)).cpu(); }, cases,
            options_.evaluation_batch);
  (*values)[split + "_nll"] = scores.nll;
  const bool error = options_.metric == "error";
  (*values)[split + "_" + options_.metric] = error ? scores.error : scores.accuracy;
  return scores;
}

std::unique_ptr<Dataset> DigitTask::Load(const Settings& s,
                                         const std::optional<std::filesystem::path>& folder) const {
  const int64_t train = s.Int("train_cases") + s.Int("valid_cases");
  return CutCases(name, s, OpenDigits(folder, {.train = train, .test = s.Int("test_cases")}));
}

std::unique_ptr<Experiment> ImageTask::Make(const Settings& s, const Dataset& data) const {
  if (s.Text("norm") == "batch" && s.Int("batch_size") < 2) {
    throw UsageError(fmt::format("[{}] batch_size must be at least 2 for batch norm, got 1", name));
  }
  return MakeExperiment(s, dynamic_cast<const DigitCases&>(data));
}

void DigitTask::AddDigits(const std::string& metric) {
  constexpr double kMaxCases = 10'000'000;
  AddDataSettings({
      {"train_cases", 55000, "training cases: the first of the training images", 1, kMaxCases, {}},
      {"valid_cases", 5000, "validation cases: the training images after those", 1, kMaxCases, {}},
      {"test_cases", 10000, "test cases: the first of the test images", 1, kMaxCases, {}},
  });
  AddMetrics(metric);
}

void ImageTask::AddMetrics(const std::string& metric) {
  metrics = {{kTrainLoss, "training loss of the batches", "nats", true}};
  for (const auto& [split, label] :
       {std::pair("train", "training"), {"valid", "validation"}, {"test", "test"}}) {
    const std::string key = std::string(split) + "_", words = std::string(label) + " ";
    metrics.push_back({key + "nll", words + "NLL", "nats", true});
    metrics.push_back({key + metric, words + metric, "%", metric == "error"});
  }
  choose_by = "valid_" + metric;
}

}  // namespace planish::lab
