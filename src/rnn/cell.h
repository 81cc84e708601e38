#ifndef PLANISH_SRC_RNN_CELL_H_
#define PLANISH_SRC_RNN_CELL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "planish/rnn.h"
#include "planish/types.h"

// The table of cells. Kernels and the reference read a cell's CellRecipe. RecipeOf has the only
// switch over cells.
namespace planish::internal {

/// The equations from gates and state to the next state. In kGru, r multiplies only ah_n; in
/// kGruOfSum, whose gates use only zx + zh, it multiplies the whole sum of n.
enum class Arithmetic : uint8_t { kRnn, kRnnRelu, kLstm, kSlstm, kGru, kGruOfSum };

constexpr bool IsGru(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kGru || arithmetic == Arithmetic::kGruOfSum;
}

/// Returns whether there are a cell state and the gates i, f, g, o.
constexpr bool IsLstm(Arithmetic arithmetic) {
  return arithmetic == Arithmetic::kLstm || arithmetic == Arithmetic::kSlstm;
}

constexpr int GatesOf(Arithmetic arithmetic) {
  return IsLstm(arithmetic) ? 4 : IsGru(arithmetic) ? 3 : 1;
}

/// The sums that are normalized.
enum class Sums : uint8_t {
  kPlain,     ///< none
  kJoint,     ///< zx + zh by one norm
  kSeparate,  ///< zx and zh by separate norms, before they are added
};

/// The gates that share a norm: the first groups[0] gates, the next groups[1] gates, ... up to a 0.
/// Not used over the batch, where each sum has its own statistics.
using Groups = std::array<int8_t, 4>;

/// The affine parameters of the norms of the sums.
enum class Affine : uint8_t { kNothing, kGain, kGainAndBias };

/// The place of the norm of c.
enum class CellNorm : uint8_t {
  kNone,
  kOutput,   ///< h uses the normalized c; the cell state is c
  kCarried,  ///< h uses the normalized c, which is also the cell state
};

/// The dimension of the statistics.
enum class Over : uint8_t { kRow, kBatch };

struct CellRecipe {
  Arithmetic arithmetic;
  Sums sums;
  Groups groups;
  Affine affine;
  bool bias;  ///< a bias is added to the sums after their norms; in a GRU to zx, and one to ah_n
  CellNorm cell;
  Over over = Over::kRow;

  constexpr bool is_lstm() const { return IsLstm(arithmetic); }
  constexpr bool is_slstm() const { return arithmetic == Arithmetic::kSlstm; }
  constexpr bool has_cuda_kernels() const { return over == Over::kRow; }
  /// Returns the vectors of H elements in the cell state.
  constexpr int cell_parts() const { return is_slstm() ? 2 : is_lstm() ? 1 : 0; }
  constexpr bool is_gru() const { return IsGru(arithmetic); }
  /// Returns whether the sum of n has two parts, ax_n and ah_n.
  constexpr bool splits_n() const { return arithmetic == Arithmetic::kGru; }
  /// Returns whether zx and zh are only used as zx + zh, so that their gradients are equal.
  constexpr bool uses_only_sum() const { return sums != Sums::kSeparate && !splits_n(); }
  /// Returns whether a bias is added to ah_n.
  constexpr bool has_bias_hn() const { return splits_n() && bias; }
  constexpr int gates() const { return GatesOf(arithmetic); }
  /// Returns the number of norms of zx, zh or zx + zh.
  constexpr int norms() const {
    int n = 0;
    for (const int8_t group : groups) n += group > 0;
    return n;
  }
};

/// Returns the cell's recipe. Throws Error for a value outside the enum. planish/rnn.h has the
/// equations, docs/converters.md the differences between the sources. The authors' code adds the
/// bias of an LN-LSTM twice: to zx before its norm, and after the norms. Its LN-GRU has a bias
/// before the norm of zx; the paper's has none. The supplement swaps the initial values of gains
/// and biases in Eq. 15.
constexpr CellRecipe RecipeOf(Cell cell) {
  using enum Arithmetic;
  using enum Sums;
  using enum Affine;
  using enum CellNorm;
  constexpr Groups kOne = {1}, kFour = {4}, kEach = {1, 1, 1, 1}, kTwoOne = {2, 1}, kThree = {3};
  constexpr Over kBatch = Over::kBatch;
  // clang-format off
  switch (cell) {
    //                                  arithmetic  sums       groups   affine        bias   norm of c  over
    case Cell::kRnn:            return {kRnn,       kPlain,    {},      kNothing,     true,  kNone};
    case Cell::kRnnRelu:        return {kRnnRelu,   kPlain,    {},      kNothing,     true,  kNone};
    case Cell::kLstm:           return {kLstm,      kPlain,    {},      kNothing,     true,  kNone};
    case Cell::kGru:            return {kGru,       kPlain,    {},      kNothing,     true,  kNone};
    case Cell::kLnRnn:          return {kRnn,       kJoint,    kOne,    kGainAndBias, false, kNone};
    case Cell::kLnRnnRelu:      return {kRnnRelu,   kJoint,    kOne,    kGainAndBias, false, kNone};
    case Cell::kLnLstm:         return {kLstm,      kSeparate, kFour,   kGainAndBias, true,  kOutput};
    case Cell::kLnLstmHaste:    return {kLstm,      kSeparate, kFour,   kGain,        true,  kOutput};
    case Cell::kLnLstmFastRnns: return {kLstm,      kSeparate, kFour,   kGainAndBias, false, kCarried};
    case Cell::kLnLstmTfa:      return {kLstm,      kSeparate, kFour,   kGainAndBias, true,  kCarried};
    case Cell::kLnLstmContrib:  return {kLstm,      kJoint,    kEach,   kGainAndBias, false, kCarried};
    case Cell::kDrawLstm:       return {kLstm,      kPlain,    {},      kNothing,     true,  kOutput};
    case Cell::kLnGru:          return {kGru,       kSeparate, kTwoOne, kGainAndBias, false, kNone};
    case Cell::kBnRnn:          return {kRnn,       kJoint,    kOne,    kGainAndBias, false, kNone,     kBatch};
    case Cell::kBnLstm:         return {kLstm,      kSeparate, kFour,   kGain,        true,  kOutput,   kBatch};
    case Cell::kBnGru:          return {kGru,       kSeparate, kTwoOne, kGainAndBias, false, kNone,     kBatch};
    case Cell::kLnLstmTorchaudio: return {kLstm,    kJoint,    kFour,   kGainAndBias, false, kCarried};
    case Cell::kLnLstmTflite:   return {kLstm,      kJoint,    kEach,   kGain,        true,  kNone};
    case Cell::kLnGruHaste:     return {kGru,       kSeparate, kThree,  kGain,        true,  kNone};
    case Cell::kLnGruDreamer:   return {kGruOfSum,  kJoint,    kThree,  kGainAndBias, false, kNone};
    case Cell::kSlstm:          return {kSlstm,     kPlain,    {},      kNothing,     true,  kNone};
  }
  // clang-format on
  throw ArgumentError("[Cell] cell must be a value of planish::Cell, got " +
                      std::to_string(static_cast<int>(cell)));
}

/// A cell and its name in operators, tests and programs.
struct NamedCell {
  Cell cell;
  const char* name;
};

/// All cells, in the order of Cell. The only table of their names.
inline constexpr std::array kNamedCells = {
    NamedCell{Cell::kRnn, "rnn"},
    NamedCell{Cell::kRnnRelu, "rnn_relu"},
    NamedCell{Cell::kLstm, "lstm"},
    NamedCell{Cell::kGru, "gru"},
    NamedCell{Cell::kLnRnn, "ln_rnn"},
    NamedCell{Cell::kLnRnnRelu, "ln_rnn_relu"},
    NamedCell{Cell::kLnLstm, "ln_lstm"},
    NamedCell{Cell::kLnLstmHaste, "ln_lstm_haste"},
    NamedCell{Cell::kLnLstmFastRnns, "ln_lstm_fastrnns"},
    NamedCell{Cell::kLnLstmTfa, "ln_lstm_tfa"},
    NamedCell{Cell::kLnLstmContrib, "ln_lstm_contrib"},
    NamedCell{Cell::kDrawLstm, "draw_lstm"},
    NamedCell{Cell::kLnGru, "ln_gru"},
    NamedCell{Cell::kBnRnn, "bn_rnn"},
    NamedCell{Cell::kBnLstm, "bn_lstm"},
    NamedCell{Cell::kBnGru, "bn_gru"},
    NamedCell{Cell::kLnLstmTorchaudio, "ln_lstm_torchaudio"},
    NamedCell{Cell::kLnLstmTflite, "ln_lstm_tflite"},
    NamedCell{Cell::kLnGruHaste, "ln_gru_haste"},
    NamedCell{Cell::kLnGruDreamer, "ln_gru_dreamer"},
    NamedCell{Cell::kSlstm, "slstm"},
};

inline constexpr auto kCells = [] {
  std::array<Cell, kNamedCells.size()> cells{};
  for (size_t i = 0; i < cells.size(); ++i) cells[i] = kNamedCells[i].cell;
  return cells;
}();
static_assert(
    [] {
      for (size_t i = 0; i < kCells.size(); ++i) {
        if (static_cast<size_t>(kCells[i]) != i) return false;
      }
      return true;
    }(),
    "kNamedCells is in the order of Cell");

/// Returns the name of a cell. Throws Error for a value outside the enum.
constexpr const char* NameOf(Cell cell) {
  RecipeOf(cell);
  return kNamedCells[static_cast<size_t>(cell)].name;
}

/// A type of weights and its name in operators and messages.
struct NamedWeightType {
  WeightType type;
  const char* name;
};

/// All types of weights, in the order of WeightType.
inline constexpr std::array kWeightTypes = {
    NamedWeightType{WeightType::kFull, "full"},
    NamedWeightType{WeightType::kBfloat16, "bfloat16"},
    NamedWeightType{WeightType::kInt8, "int8"},
};

/// A parameter of a layer: its name, its member in RnnParams and its size.
template <class E>
struct Param {
  const char* name;
  E* RnnParams<E>::* member;
  bool taken;    ///< whether the cell has the parameter
  int64_t size;  ///< in elements
};

inline constexpr int kParams = 13;

/// Returns all members of RnnParams, with their sizes for a cell.
template <class E>
constexpr std::array<Param<E>, kParams> ParamsOf(const CellRecipe& recipe, const RnnShape& shape) {
  using P = RnnParams<E>;
  const int64_t hidden = shape.hidden, columns = recipe.gates() * hidden;
  const bool separate = recipe.sums == Sums::kSeparate, joint = recipe.sums == Sums::kJoint;
  const bool biases = recipe.affine == Affine::kGainAndBias;
  const bool cell = recipe.cell != CellNorm::kNone;
  const bool projects = recipe.is_lstm() && shape.projected > 0;
  return {{{"weight_ih", &P::weight_ih, true, columns * shape.inputs},
           {"weight_hh", &P::weight_hh, true, columns * shape.outputs() / shape.heads},
           {"bias", &P::bias, recipe.bias, columns},
           {"bias_hn", &P::bias_hn, recipe.has_bias_hn(), hidden},
           {"ln_ih_weight", &P::ln_ih_weight, separate, columns},
           {"ln_ih_bias", &P::ln_ih_bias, separate && biases, columns},
           {"ln_hh_weight", &P::ln_hh_weight, separate, columns},
           {"ln_hh_bias", &P::ln_hh_bias, separate && biases, columns},
           {"ln_weight", &P::ln_weight, joint, columns},
           {"ln_bias", &P::ln_bias, joint && biases, columns},
           {"ln_c_weight", &P::ln_c_weight, cell, hidden},
           {"ln_c_bias", &P::ln_c_bias, cell, hidden},
           {"weight_hr", &P::weight_hr, projects, shape.projected * hidden}}};
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CELL_H_
