#include "lab/analysis/sequential.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <numbers>
#include <set>
#include <stdexcept>
#include <utility>

#include "lab/error.h"
#include "lab/run/atomic_file.h"
#include "lab/run/json.h"
#include "lab/run/posix_file.h"
#include "lab/run/results.h"

namespace planish::lab {
namespace {

constexpr char kFormat[] = "planish-looks/1";

// Returns the probability above z of a normal distribution.
double Above(double z) { return std::erfc(z / std::numbers::sqrt2) / 2; }

double Density(double z) { return std::exp(-z * z / 2) / std::sqrt(2 * std::numbers::pi); }

void CheckFractions(const std::vector<double>& fractions) {
  double last = 0;
  for (const double fraction : fractions) {
    if (!(fraction > last && fraction <= 1)) {
      throw RunError(
          fmt::format("[LookLevels] fractions must rise and be in (0, 1], got {}", fraction));
    }
    last = fraction;
  }
}

// Normal process S(t) with S(0) = 0 and the mean drift * t and variance t, of which each look keeps
// the part within its bounds (Armitage, McPherson and Rowe 1969).
class Undecided {
 public:
  explicit Undecided(double drift) : drift_(drift) {}

  // Returns the probability that S is above `bound` at `fraction`, undecided before.
  double AboveAt(double fraction, double bound) const {
    const double step = fraction - fraction_, deviation = std::sqrt(step);
    return Integral([&](double s) { return Above((bound - s - drift_ * step) / deviation); });
  }

  double BelowAt(double fraction, double bound) const {
    const double step = fraction - fraction_, deviation = std::sqrt(step);
    return Integral([&](double s) { return Above((s + drift_ * step - bound) / deviation); });
  }

  // Drops what is beyond -bound and bound at `fraction`.
  void Look(double fraction, double bound) {
    // Ten deviations on either side leave out 1e-23.
    const double reach = 10 * std::sqrt(fraction), mean = drift_ * fraction;
    const double low = std::max(-bound, mean - reach), high = std::min(bound, mean + reach);
    const double step = fraction - fraction_, deviation = std::sqrt(step);
    std::vector<double> points, weights;
    const double width = (high - low) / (kPoints - 1);
    for (int i = 0; i < kPoints && high > low; ++i) {
      const double s = low + i * width;
      const double density = Integral(
          [&](double from) { return Density((s - from - drift_ * step) / deviation) / deviation; });
      const int simpson = i == 0 || i == kPoints - 1 ? 1 : i % 2 == 1 ? 4 : 2;
      points.push_back(s);
      weights.push_back(density * simpson * width / 3);
    }
    points_ = std::move(points);
    weights_ = std::move(weights);
    fraction_ = fraction;
  }

 private:
  static constexpr int kPoints = 801;

  template <typename Function>
  double Integral(const Function& function) const {
    double sum = 0;
    for (size_t i = 0; i < points_.size(); ++i) sum += weights_[i] * function(points_[i]);
    return sum;
  }

  double drift_;
  double fraction_ = 0;
  std::vector<double> points_ = {0}, weights_ = {1};  // Simpson's rule times the density
};

// Returns the bounds of the normal statistic.
std::vector<double> Bounds(const std::vector<double>& fractions, double error) {
  CheckFractions(fractions);
  Undecided undecided(0);
  std::vector<double> bounds;
  double spent = 0;
  for (const double fraction : fractions) {
    const double one_sided = (SpentError(fraction, error) - spent) / 2;
    spent = SpentError(fraction, error);
    double low = 0, high = 40;  // Above(38) is the smallest positive number
    for (int i = 0; i < 100; ++i) {
      const double middle = (low + high) / 2;
      (undecided.AboveAt(fraction, middle * std::sqrt(fraction)) > one_sided ? low : high) = middle;
    }
    bounds.push_back(high);
    if (bounds.size() < fractions.size()) undecided.Look(fraction, high * std::sqrt(fraction));
  }
  return bounds;
}

// Returns the probability that a statistic goes beyond its bound.
double DecidedWith(const std::vector<double>& fractions, const std::vector<double>& bounds,
                   double drift) {
  Undecided undecided(drift);
  double decided = 0;
  for (size_t i = 0; i < fractions.size(); ++i) {
    const double bound = bounds[i] * std::sqrt(fractions[i]);
    decided += undecided.AboveAt(fractions[i], bound) + undecided.BelowAt(fractions[i], -bound);
    if (i + 1 < fractions.size()) undecided.Look(fractions[i], bound);
  }
  return decided;
}

SequentialTest TestFrom(const nlohmann::ordered_json& json) {
  constexpr int kMaxSeeds = std::numeric_limits<int>::max();
  SequentialTest test;
  test.column = json.at("column").get<std::string>();
  for (const auto& [norm, weight] : json.at("contrast").items()) {
    test.contrast.emplace_back(norm, weight.get<double>());
  }
  if (json.contains("margin")) {
    test.margin = NumberAt(json, "margin", 0, std::numeric_limits<double>::max());
    if (*test.margin == 0) throw std::invalid_argument("margin must be above 0");
  }
  test.planned = static_cast<int>(IntegerAt(json, "planned_seeds", 2, kMaxSeeds));
  for (const auto& entry : json.at("looks")) {
    Look look;
    look.seeds = static_cast<int>(IntegerAt(entry, "seeds", 2, kMaxSeeds));
    look.p = NumberAt(entry, "p", 0, 1);
    look.level = NumberAt(entry, "level", 0, 1);
    look.sign = static_cast<int>(IntegerAt(entry, "sign", -1, 1));
    if ((look.sign != 0 && look.p >= look.level) ||
        (!test.looks.empty() && look.seeds <= test.looks.back().seeds)) {
      throw std::invalid_argument("its looks contradict each other");
    }
    test.looks.push_back(look);
  }
  return test;
}

}  // namespace

double NormalQuantile(double probability) {
  double low = -40, high = 40;
  for (int i = 0; i < 200; ++i) {
    const double middle = (low + high) / 2;
    (Above(-middle) < probability ? low : high) = middle;
  }
  return high;
}

double SpentError(double fraction, double error) {
  return 4 * Above(NormalQuantile(1 - error / 4) / std::sqrt(fraction));
}

std::vector<double> LookLevels(const std::vector<double>& fractions, double error) {
  std::vector<double> levels;
  for (const double bound : Bounds(fractions, error)) levels.push_back(2 * Above(bound));
  return levels;
}

double DecidedBy(const std::vector<double>& fractions, double drift, double error) {
  return DecidedWith(fractions, Bounds(fractions, error), drift);
}

double DriftFor(const std::vector<double>& fractions, double power, double error) {
  const std::vector<double> bounds = Bounds(fractions, error);
  // The Illinois variant of the false position method: an end that stays counts half.
  double low = 0, high = 20;
  double at_low = error - power, at_high = DecidedWith(fractions, bounds, high) - power;
  double drift = high;
  int kept = 0;
  for (int i = 0; i < 60; ++i) {
    drift = (low * at_high - high * at_low) / (at_high - at_low);
    const double at_drift = DecidedWith(fractions, bounds, drift) - power;
    if (std::abs(at_drift) < 1e-12) break;
    if (at_drift < 0) {
      low = drift;
      at_low = at_drift;
      if (kept == 1) at_high /= 2;
      kept = 1;
    } else {
      high = drift;
      at_high = at_drift;
      if (kept == -1) at_low /= 2;
      kept = -1;
    }
  }
  return drift;
}

double ConditionalPower(const std::vector<double>& fractions, double z, double drift,
                        double error) {
  std::vector<double> with_last = fractions;
  if (fractions.back() >= 1) return 0;
  with_last.push_back(1);
  const double bound = Bounds(with_last, error).back();
  const double now = fractions.back(), left = 1 - now;
  const double mean = z * std::sqrt(now) + drift * left, deviation = std::sqrt(left);
  return Above((bound - mean) / deviation) + Above((bound + mean) / deviation);
}

int Orientation(const Contrast& a, const Contrast& b) {
  const std::map<std::string, double> first(a.begin(), a.end()), second(b.begin(), b.end());
  std::map<std::string, double> negative;
  for (const auto& [norm, weight] : second) negative[norm] = -weight;
  return first == second ? 1 : first == negative ? -1 : 0;
}

int SequentialTest::SignOf(const Contrast& of) const {
  const auto decided = std::ranges::find_if(looks, [](const Look& look) { return look.sign != 0; });
  return decided == looks.end() ? 0 : decided->sign * Orientation(contrast, of);
}

std::vector<double> SequentialTest::Fractions(const std::vector<int>& more) const {
  std::vector<double> fractions;
  const auto add = [&](int seeds) {
    fractions.push_back(std::min(1.0, static_cast<double>(seeds) / planned));
  };
  for (const Look& look : looks) add(look.seeds);
  for (const int seeds : more) add(seeds);
  return fractions;
}

const SequentialTest* SequentialTests::Find(std::string_view column,
                                            const Contrast& contrast) const {
  const auto found = std::ranges::find_if(tests, [&](const SequentialTest& test) {
    return test.column == column && !test.margin && Orientation(test.contrast, contrast) != 0;
  });
  return found == tests.end() ? nullptr : &*found;
}

const SequentialTest* SequentialTests::FindNoWorse(std::string_view column,
                                                   const Contrast& contrast) const {
  const auto found = std::ranges::find_if(tests, [&](const SequentialTest& test) {
    return test.column == column && test.margin && Orientation(test.contrast, contrast) == 1;
  });
  return found == tests.end() ? nullptr : &*found;
}

SequentialTests ReadLooks(const std::filesystem::path& file) {
  const std::string text = ReadRegularFile(file, kMaxJsonBytes);
  try {
    const nlohmann::ordered_json json = ParseJson(text);
    if (json.at("format") != kFormat) {
      throw std::invalid_argument(fmt::format("its format must be {}", kFormat));
    }
    SequentialTests tests;
    tests.paper = json.at("paper").get<std::string>();
    for (const auto& test : json.at("tests")) tests.tests.push_back(TestFrom(test));
    return tests;
  } catch (const std::exception& e) {
    throw RunError(fmt::format("{} is no file of looks: {}", file.string(), JsonReason(e)));
  }
}

void WriteLooks(const std::filesystem::path& file, const SequentialTests& tests) {
  nlohmann::ordered_json json = {
      {"format", kFormat}, {"paper", tests.paper}, {"tests", nlohmann::ordered_json::array()}};
  for (const SequentialTest& test : tests.tests) {
    nlohmann::ordered_json contrast = nlohmann::ordered_json::object();
    for (const auto& [norm, weight] : test.contrast) contrast[norm] = weight;
    nlohmann::ordered_json looks = nlohmann::ordered_json::array();
    for (const Look& look : test.looks) {
      looks.push_back(
          {{"seeds", look.seeds}, {"p", look.p}, {"level", look.level}, {"sign", look.sign}});
    }
    nlohmann::ordered_json entry = {{"column", test.column}, {"contrast", std::move(contrast)}};
    if (test.margin) entry["margin"] = *test.margin;
    entry["planned_seeds"] = test.planned;
    entry["looks"] = std::move(looks);
    json["tests"].push_back(std::move(entry));
  }
  WriteFileAtomically(file, json.dump(2) + "\n");
}

FoundLooks FindLooks(const std::vector<std::filesystem::path>& roots) {
  std::set<std::filesystem::path> files;
  for (const std::filesystem::path& root : roots) {
    if (!std::filesystem::is_directory(root)) continue;
    VisitEntries(root, [&](const std::filesystem::path& path) {
      if (path.filename() == kLooksFile && std::filesystem::is_regular_file(path)) {
        files.insert(path);
      }
    });
  }
  FoundLooks found;
  for (const std::filesystem::path& file : files) {
    try {
      SequentialTests tests = ReadLooks(file);
      if (std::ranges::count(found.papers, tests.paper, &SequentialTests::paper) > 0) {
        found.faults.push_back(fmt::format("{}: left out, because another file has looks at {}",
                                           file.string(), tests.paper));
      } else {
        found.papers.push_back(std::move(tests));
      }
    } catch (const RunError& e) {
      found.faults.push_back(e.what());
    }
  }
  return found;
}

}  // namespace planish::lab
