#ifndef PLANISH_LAB_THEORY_INVARIANCE_PARTS_H_
#define PLANISH_LAB_THEORY_INVARIANCE_PARTS_H_

#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "lab/engine/capabilities.h"
#include "lab/papers/paper.h"
#include "lab/theory/analyses.h"
#include "lab/theory/invariance.h"
#include "lab/theory/result.h"

// Parts of `planish analyze invariance` for random and trained layers: tables, charts, statements.
namespace planish::lab {

/// Explains the columns of ChangeHead.
inline constexpr const char* kColumnsText =
    "W scale: W -> d W. W centre: W -> W + 1 gamma^T. w_i scale: weights of one unit. x scale: all "
    "cases. x centre: x -> x + gamma. One case: x -> d x of one case.";

/// Returns "Ba, Kiros & Hinton 2016, " and the place.
std::string SourceInBa(const std::string& place);

/// Invariance to each column of Table 1.
using InvariantColumns = std::array<bool, kTransformations.size()>;

/// Largest changes of outputs for the columns of Table 1, and for Eq. 6.
struct LayerChanges {
  std::array<double, kTransformations.size()> columns{};
  double joint = 0;

  double Of(Transformation column) const { return columns[static_cast<size_t>(column)]; }
  InvariantColumns Invariant() const;
};

LayerChanges ChangesOf(const LayerOutputs& outputs, const LinearLayer& layer,
                       const std::vector<TransformationParameters>& parameters);

std::vector<std::string> ChangeHead(const std::string& first);
std::vector<TheoryCell> ChangeRow(const std::string& name, const LayerChanges& changes);

/// Changes of several layers against what is expected.
class ChangeRange {
 public:
  void Add(const LayerChanges& changes, const InvariantColumns& expected);
  TheoryVerdict Verdict() const;
  std::string Text() const;

 private:
  double rounding_ = 0;                                        // the largest where invariant
  double smallest_ = std::numeric_limits<double>::infinity();  // elsewhere
  bool any_invariant_ = false, has_nan_ = false;
};

/// Returns the line of Table 1 as a sentence.
std::string LineText(const std::string& label, const InvariantColumns& invariant);

/// Table, chart and statement about eps, of several layers.
class EpsReport {
 public:
  EpsReport(double eps, double change, const std::string& first_head);

  void Add(const std::string& name, const NormalizedValues& values);

  /// Adds to `result`; nothing if no layer has been added.
  void MoveTo(TheoryResult& result);

 private:
  double eps_, change_;
  TheoryTable table_;
  TheoryChart chart_;
  double error_ = 0;        // of the closed form, relative
  bool has_coded_ = false;  // whether ada-as-coded was added
  std::vector<std::string> scales_;
};

/// Adds what a call measures of its recurrent cells. `shape` has their sizes.
void AddRecurrentInvariance(const AnalysisSettings& settings, const RnnShape& shape,
                            TheoryResult& result);

/// Returns the layer with the parameters of its norm.
LinearLayer LayerInDouble(const LinearLayersWithNorms::Layer& layer);

/// Measures the layers of the run of a call.
TheoryResult MeasureTrainedInvariance(const AnalysisSettings& settings);

}  // namespace planish::lab

#endif  // PLANISH_LAB_THEORY_INVARIANCE_PARTS_H_
