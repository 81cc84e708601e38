#include "lab/tasks/digit_cases.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>

#include "lab/data/source.h"
#include "lab/error.h"

namespace planish::lab {

namespace {

constexpr int64_t kPixels = 28 * 28;

// Rows [begin, end) of `images` as tensors.
Cases Slice(const Images& images, int64_t begin, int64_t end) {
  const auto bytes = at::TensorOptions().dtype(at::kByte);
  auto* pixels = const_cast<uint8_t*>(images.pixels.data()) + begin * kPixels;
  auto* labels = const_cast<uint8_t*>(images.labels.data()) + begin;
  return {at::from_blob(pixels, {end - begin, kPixels}, bytes).to(at::kFloat).div_(255),
          at::from_blob(labels, {end - begin}, bytes).to(at::kLong)};
}

}  // namespace

std::vector<SettingSpec> DigitCaseSettings() {
  const double most = 10'000'000;
  return {
      {"train_cases", 55000, "training cases: the first of the training images", 1, most, {}},
      {"valid_cases", 5000, "validation cases: the training images after those", 1, most, {}},
      {"test_cases", 10000, "test cases: the first of the test images", 1, most, {}},
  };
}

std::vector<std::string> DigitCaseSettingNames() {
  return {"train_cases", "valid_cases", "test_cases"};
}

std::unique_ptr<DigitCases> LoadDigitCases(std::string_view task, const Settings& settings,
                                           const std::optional<std::filesystem::path>& folder) {
  const int64_t train = settings.Int("train_cases"), valid = settings.Int("valid_cases"),
                test = settings.Int("test_cases");
  const ImageSet set = OpenDigits(folder, {.train = train + valid, .test = test});
  if (train + valid > set.train.count || test > set.test.count) {
    throw UsageError(
        fmt::format("[{}] train_cases + valid_cases and test_cases must be at most {} and {}, the "
                    "images there are, but have {} and {}",
                    task, set.train.count, set.test.count, train + valid, test));
  }
  auto data = std::make_unique<DigitCases>();
  data->train = Slice(set.train, 0, train);
  data->valid = Slice(set.train, train, train + valid);
  data->test = Slice(set.test, 0, test);
  data->about = {set.name,
                 set.source,
                 set.description,
                 set.sha256,
                 {{"train", train}, {"valid", valid}, {"test", test}}};
  return data;
}

Tensors TakeCases(const Cases& cases, const at::Tensor& numbers) {
  return {cases.x.index_select(0, numbers), cases.labels.index_select(0, numbers)};
}

Cases FirstCases(const Cases& cases, int64_t count) {
  return {cases.x.slice(0, 0, count), cases.labels.slice(0, 0, count)};
}

Scores Score(const std::function<at::Tensor(const at::Tensor&)>& logits, const Cases& cases,
             int64_t at_once) {
  double nll = 0;
  int64_t wrong = 0;
  const int64_t count = cases.x.size(0);
  for (int64_t begin = 0; begin < count; begin += at_once) {
    const int64_t end = std::min(begin + at_once, count);
    const at::Tensor answers = logits(cases.x.slice(0, begin, end));
    const at::Tensor labels = cases.labels.slice(0, begin, end);
    nll += at::cross_entropy_loss(answers, labels, {}, at::Reduction::Sum).item<double>();
    wrong += answers.argmax(1).ne(labels).sum().item<int64_t>();
  }
  const auto all = static_cast<double>(count);
  return {nll / all, static_cast<double>(wrong) / all, static_cast<double>(count - wrong) / all};
}

}  // namespace planish::lab
