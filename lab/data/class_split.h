#ifndef PLANISH_LAB_DATA_CLASS_SPLIT_H_
#define PLANISH_LAB_DATA_CLASS_SPLIT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

// Classes of labelled cases, and their sets for training, validation and test.
namespace planish::lab {

/// Set of a case.
enum Role : size_t { kTrain, kValid, kTest, kRoles };

/// Returns the set that a file, a folder or a field is called after, in capitals or not: train or
/// training; valid, validation, val or dev; test. Returns nullopt for other names.
std::optional<Role> RoleOf(std::string_view name);

/// Class of some cases.
struct Class {
  std::string_view label;
  int64_t count = 0;
  size_t first = 0;  ///< its first case
};

/// Classes of cases.
struct Classes {
  std::vector<Class> classes;
  std::vector<int64_t> of_case;  ///< index of each case's class

  /// Returns the class with a single case whose case is the first one, or null.
  const Class* Single() const;

  /// Returns text like `3 classes: "no" (12), "so" (8), "yes" (9)`. Names twelve classes at most.
  std::string Text() const;
};

/// Returns the distinct labels as classes: in the order of their numbers if all are whole numbers,
/// else of their bytes. The labels must outlive the result.
Classes NumberClasses(std::span<const std::string_view> labels);

/// Choices of SplitByClass.
struct SplitOptions {
  int64_t seed = 1;          ///< of random sets, of the order and of max_train
  double valid_share = 0.1;  ///< of each class, for validation
  double test_share = 0.1;   ///< of each class, for the test
  int64_t max_train = std::numeric_limits<int64_t>::max();  ///< maximum number of training cases
  bool shuffle = false;  ///< shuffle the training cases even if no set is drawn
};

/// Cases of the three sets.
struct ClassSplit {
  std::array<std::vector<size_t>, kRoles> cases;
  std::optional<size_t> untrained;  ///< first case of a class that no training case has
  std::string description;          ///< of the sets that were drawn; empty if none was
};

/// Draws the sets that no case of `roles` has, for validation or test, from the training cases: the
/// same share of each class, rounded so that the totals are right. Each class keeps a training
/// case. Drawing shuffles the training cases; otherwise they keep their order. More than max_train
/// are reduced to a random choice in their order.
ClassSplit SplitByClass(const SplitOptions& options, const Classes& classes,
                        std::vector<Role> roles);

}  // namespace planish::lab

#endif  // PLANISH_LAB_DATA_CLASS_SPLIT_H_
