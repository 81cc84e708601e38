#include "lab/tasks/draw/cases.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <numeric>
#include <random>

#include "lab/base/random.h"
#include "lab/error.h"
#include "lab/tasks/draw/binary_images.h"

namespace planish::lab {

namespace {

// Returns the numbers below `count` in a random order that is equal on every machine.
std::vector<int64_t> Shuffled(int64_t count) {
  std::vector<int64_t> order(static_cast<size_t>(count));
  std::iota(order.begin(), order.end(), int64_t{0});
  std::mt19937_64 random(1);
  Shuffle(order, random);
  return order;
}

at::Tensor Take(const std::vector<uint8_t>& pixels, int64_t wanted, const char* setting) {
  const int64_t count = std::ssize(pixels) / kBinaryImagePixels;
  if (wanted > count) {
    throw UsageError(fmt::format("[draw] {} must be at most the {} images there are, got {}",
                                 setting, count, wanted));
  }
  std::vector<int64_t> order = Shuffled(count);
  order.resize(static_cast<size_t>(wanted));
  const at::Tensor all =
      at::from_blob(const_cast<uint8_t*>(pixels.data()), {count, kBinaryImagePixels},
                    at::TensorOptions().dtype(at::kByte));
  return all.index_select(0, at::tensor(order, at::kLong));
}

}  // namespace

std::vector<SettingSpec> BinaryCaseSettings() {
  constexpr double kMaxCases = 10'000'000;
  return {
      {"train_cases", 50000, "training cases", 1, kMaxCases, {}},
      {"valid_cases", 10000, "validation cases", 1, kMaxCases, {}},
      {"test_cases", 10000, "test cases", 1, kMaxCases, {}},
  };
}

std::unique_ptr<BinaryCases> LoadBinaryCases(const Settings& settings,
                                             const std::optional<std::filesystem::path>& folder) {
  const int64_t train = settings.Int("train_cases"), valid = settings.Int("valid_cases"),
                test = settings.Int("test_cases");
  BinaryImageSet set = folder ? LoadBinaryMnist(*folder) : DrawBinaryDigits(train, valid, test);
  auto data = std::make_unique<BinaryCases>();
  data->train = Take(set.train, train, "train_cases");
  data->valid = Take(set.valid, valid, "valid_cases");
  data->test = Take(set.test, test, "test_cases");
  data->about = AboutSplits(set, set.description, train, valid, test);
  return data;
}

}  // namespace planish::lab
