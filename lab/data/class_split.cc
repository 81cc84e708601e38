#include "lab/data/class_split.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <numeric>
#include <random>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "lab/base/escape.h"
#include "lab/base/format_integer.h"
#include "lab/base/lower_case.h"
#include "lab/base/random.h"

namespace planish::lab {

namespace {

// Classes that a description names.
constexpr size_t kMaxNamedClasses = 12;

struct RoleName {
  std::string_view name;
  Role role;
};
constexpr RoleName kRoleNames[] = {{"train", kTrain},      {"training", kTrain}, {"valid", kValid},
                                   {"validation", kValid}, {"val", kValid},      {"dev", kValid},
                                   {"test", kTest}};

std::optional<int64_t> IntegerOf(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Moves shares of each class from the training cases to the sets without cases. `order` is
// shuffled.
void DrawSets(const SplitOptions& options, const std::array<bool, kRoles>& has,
              const Classes& classes, const std::vector<size_t>& order, std::vector<Role>* roles) {
  std::vector<std::vector<size_t>> training(classes.classes.size());
  for (const size_t i : order) {
    if ((*roles)[i] == kTrain) training[static_cast<size_t>(classes.of_case[i])].push_back(i);
  }
  // Rounds totals, not classes: otherwise small classes would all lose or gain.
  int64_t seen = 0;
  std::array<int64_t, kRoles> taken{};
  for (const std::vector<size_t>& members : training) {
    seen += std::ssize(members);
    size_t next = 0;
    for (const auto& [role, share] :
         {std::pair(kTest, options.test_share), {kValid, options.valid_share}}) {
      if (has[role]) continue;
      const int64_t due = std::llround(share * static_cast<double>(seen)) - taken[role];
      for (int64_t i = 0; i < due && next + 1 < members.size(); ++i, ++next) {
        (*roles)[members[next]] = role;
        ++taken[role];
      }
    }
  }
}

}  // namespace

std::optional<Role> RoleOf(std::string_view name) {
  const std::string lower = LowerCase(name);
  const auto* const found = std::ranges::find(kRoleNames, lower, &RoleName::name);
  return found == std::end(kRoleNames) ? std::nullopt : std::optional(found->role);
}

const Class* Classes::Single() const {
  const Class* single = nullptr;
  for (const Class& of : classes) {
    if (of.count == 1 && (!single || of.first < single->first)) single = &of;
  }
  return single;
}

std::string Classes::Text() const {
  std::vector<std::string> names;
  for (const Class& of : std::span(classes).first(std::min(classes.size(), kMaxNamedClasses))) {
    names.push_back(fmt::format("{} ({})", Quoted(of.label, 24), FormatInteger(of.count)));
  }
  if (classes.size() > kMaxNamedClasses) {
    names.push_back(fmt::format("{} more", classes.size() - kMaxNamedClasses));
  }
  return fmt::format("{} classes: {}", FormatInteger(std::ssize(classes)), fmt::join(names, ", "));
}

Classes NumberClasses(std::span<const std::string_view> labels) {
  std::map<std::string_view, Class> found;
  for (size_t i = 0; i < labels.size(); ++i) {
    Class& of = found[labels[i]];
    if (of.count++ == 0) of.first = i;
    of.label = labels[i];
  }
  Classes result;
  for (const auto& [label, of] : found) result.classes.push_back(of);
  if (std::ranges::all_of(result.classes,
                          [](const Class& c) { return IntegerOf(c.label).has_value(); })) {
    std::ranges::stable_sort(result.classes, {},
                             [](const Class& c) { return *IntegerOf(c.label); });
  }
  std::unordered_map<std::string_view, int64_t> numbers;
  for (const Class& of : result.classes) numbers.emplace(of.label, std::ssize(numbers));
  result.of_case.reserve(labels.size());
  for (const std::string_view label : labels) result.of_case.push_back(numbers.at(label));
  return result;
}

ClassSplit SplitByClass(const SplitOptions& options, const Classes& classes,
                        std::vector<Role> roles) {
  ClassSplit split;
  std::array<bool, kRoles> has{};
  for (const Role role : roles) has[role] = true;
  std::vector<size_t> order(roles.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const bool draws = !has[kValid] || !has[kTest];
  if (draws || options.shuffle) {
    std::mt19937_64 random(static_cast<uint64_t>(options.seed));
    Shuffle(order, random);
  }
  if (draws) {
    DrawSets(options, has, classes, order, &roles);
    std::vector<std::string> shares;
    if (!has[kValid]) shares.push_back(fmt::format("valid_share={}", options.valid_share));
    if (!has[kTest]) shares.push_back(fmt::format("test_share={}", options.test_share));
    split.description = fmt::format("{} at random in each class (split_seed={})",
                                    fmt::join(shares, " and "), options.seed);
  }
  std::vector<bool> in_training(classes.classes.size());
  for (const size_t i : order) {
    split.cases[roles[i]].push_back(i);
    if (roles[i] == kTrain) in_training[static_cast<size_t>(classes.of_case[i])] = true;
  }
  for (size_t i = 0; i < roles.size() && !split.untrained; ++i) {
    if (!in_training[static_cast<size_t>(classes.of_case[i])]) split.untrained = i;
  }
  std::vector<size_t>& training = split.cases[kTrain];
  if (std::cmp_greater(training.size(), options.max_train)) {
    std::vector<size_t> places(training.size());
    std::iota(places.begin(), places.end(), size_t{0});
    std::mt19937_64 random(MixedSeed({options.seed, 1}));
    Shuffle(places, random);
    places.resize(static_cast<size_t>(options.max_train));
    std::ranges::sort(places);
    std::ranges::transform(places, places.begin(), [&](size_t place) { return training[place]; });
    training = std::move(places);
  }
  return split;
}

}  // namespace planish::lab
