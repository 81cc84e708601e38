#ifndef PLANISH_SRC_RNN_CELL_H_
#define PLANISH_SRC_RNN_CELL_H_

#include <array>
#include <cstdint>
#include <string>

#include "planish/rnn.h"

// The table of cells. A cell is data: kernels and reference read a CellRecipe, and this file holds
// the only switch over cells.
namespace planish::internal {

/// How gates and state make the next state.
enum class Arithmetic : uint8_t { kRnn, kRnnRelu, kLstm, kGru };

/// Which sums are normalised.
enum class Sums : uint8_t {
  kPlain,     ///< none
  kJoint,     ///< zx + zh, the one sum of both products
  kSeparate,  ///< zx and zh, each by its own norm, before they are added
};

/// The gates whose sums one norm takes together: the first groups[0] gates, the next groups[1], ...
/// up to a 0. Over the batch every sum has moments of its own, and groups mean nothing.
using Groups = std::array<int8_t, 4>;

/// What the norms of the sums have beside their moments.
enum class Affine : uint8_t { kNothing, kGain, kGainAndBias };

/// Where the norm of c is.
enum class CellNorm : uint8_t {
  kNone,
  kOutput,   ///< h sees the normalised c, the next step the c before
  kCarried,  ///< h and the next step see the normalised c
};

/// What moments are taken over.
enum class Over : uint8_t { kRow, kBatch };

struct CellRecipe {
  Arithmetic arithmetic;
  Sums sums;
  Groups groups;
  Affine affine;
  bool bias;  ///< whether a bias is added to the sums after their norms, in the GRU to zx alone
  CellNorm cell;
  Over over = Over::kRow;

  constexpr bool is_lstm() const { return arithmetic == Arithmetic::kLstm; }
  constexpr bool is_gru() const { return arithmetic == Arithmetic::kGru; }
  constexpr int gates() const { return is_lstm() ? 4 : is_gru() ? 3 : 1; }
  /// The norms of one sum, or of one product.
  constexpr int norms() const {
    int n = 0;
    for (const int8_t group : groups) n += group > 0;
    return n;
  }
};

/// The cell's recipe. Throws Error for a value that is no cell.
///
/// Where the LN-LSTMs of the sources part:
/// - Of the paper there are Eq. 20-22 and its authors' code, which adds the bias twice, to zx
/// before
///   its norm, and after the norms. Here it is added after, as printed. (The LN-GRU of that code
///   has a bias before the norm of zx, and none after; the paper has none.) What a bias before the
///   norm does, a constant input of 1 does, too. The code's norm of c is kOutput's.
/// - haste has gains alone on the two products. Its gates are in the order i, g, f, o.
/// - fastrnns has no bias beside those of the norms; TensorFlow Addons has one: otherwise they are
///   the same cell, which is the paper's but for the normalised c being carried.
/// - contrib takes one product of x and h together, so that a norm sees zx + zh. Every gate has its
///   norm, with gain and bias, and there is no other bias. Its gates are in the order i, g, f, o.
///   Its eps is 1e-12.
/// The supplement starts the gains of Eq. 15 at 0 and the biases at 1: the two are exchanged there.
constexpr CellRecipe RecipeOf(Cell cell) {
  using enum Arithmetic;
  using enum Sums;
  using enum Affine;
  using enum CellNorm;
  constexpr Groups kOne = {1}, kFour = {4}, kEach = {1, 1, 1, 1}, kTwoOne = {2, 1};
  constexpr Over kBatch = Over::kBatch;
  // clang-format off
  switch (cell) {
    //                             gates     which sums  together  their norms'  bias   norm of c
    case Cell::kRnn:            return {kRnn,     kPlain,    {},       kNothing,     true,  kNone};
    case Cell::kRnnRelu:        return {kRnnRelu, kPlain,    {},       kNothing,     true,  kNone};
    case Cell::kLstm:           return {kLstm,    kPlain,    {},       kNothing,     true,  kNone};
    case Cell::kGru:            return {kGru,     kPlain,    {},       kNothing,     true,  kNone};
    case Cell::kLnRnn:          return {kRnn,     kJoint, kOne,     kGainAndBias, false, kNone};
    case Cell::kLnRnnRelu:      return {kRnnRelu, kJoint, kOne,     kGainAndBias, false, kNone};
    case Cell::kLnLstm:         return {kLstm,    kSeparate,    kFour,    kGainAndBias, true,  kOutput};
    case Cell::kLnLstmHaste:    return {kLstm,    kSeparate,    kFour,    kGain,        true,  kOutput};
    case Cell::kLnLstmFastRnns: return {kLstm,    kSeparate,    kFour,    kGainAndBias, false, kCarried};
    case Cell::kLnLstmTfa:      return {kLstm,    kSeparate,    kFour,    kGainAndBias, true,  kCarried};
    case Cell::kLnLstmContrib:  return {kLstm,    kJoint, kEach,    kGainAndBias, false, kCarried};
    case Cell::kDrawLstm:       return {kLstm,    kPlain,    {},       kNothing,     true,  kOutput};
    case Cell::kLnGru:          return {kGru,     kSeparate,    kTwoOne,  kGainAndBias, false, kNone};
    case Cell::kBnRnn:          return {kRnn,     kJoint, kOne,     kGainAndBias, false, kNone, kBatch};
    case Cell::kBnLstm:         return {kLstm,    kSeparate,    kFour,    kGain,        true,  kOutput, kBatch};
    case Cell::kBnGru:          return {kGru,     kSeparate,    kTwoOne,  kGainAndBias, false, kNone, kBatch};
  }
  // clang-format on
  throw ArgumentError("[Cell] cell must be a value of planish::Cell but has " +
                      std::to_string(static_cast<int>(cell)));
}

/// Every cell, in the order of Cell.
inline constexpr Cell kCells[] = {
    Cell::kRnn,       Cell::kRnnRelu,       Cell::kLstm,
    Cell::kGru,       Cell::kLnRnn,         Cell::kLnRnnRelu,
    Cell::kLnLstm,    Cell::kLnLstmHaste,   Cell::kLnLstmFastRnns,
    Cell::kLnLstmTfa, Cell::kLnLstmContrib, Cell::kDrawLstm,
    Cell::kLnGru,     Cell::kBnRnn,         Cell::kBnLstm,
    Cell::kBnGru,
};

/// A parameter of a layer.
template <class E>
struct Param {
  const char* name;
  E* RnnParams<E>::* member;
  bool taken;    ///< whether the cell has it
  int64_t size;  ///< in numbers
};

inline constexpr int kParams = 12;

/// All parameters that RnnParams names, with what the cell makes of them.
template <class E>
constexpr std::array<Param<E>, kParams> ParamsOf(const CellRecipe& recipe, const RnnShape& shape) {
  using P = RnnParams<E>;
  const int64_t hidden = shape.hidden, columns = recipe.gates() * hidden;
  const bool apart = recipe.sums == Sums::kSeparate, together = recipe.sums == Sums::kJoint;
  const bool biases = recipe.affine == Affine::kGainAndBias;
  const bool cell = recipe.cell != CellNorm::kNone;
  const bool bias_hn = recipe.is_gru() && recipe.sums == Sums::kPlain;
  return {{{"weight_ih", &P::weight_ih, true, columns * shape.inputs},
           {"weight_hh", &P::weight_hh, true, columns * hidden},
           {"bias", &P::bias, recipe.bias, columns},
           {"bias_hn", &P::bias_hn, bias_hn, hidden},
           {"ln_ih_weight", &P::ln_ih_weight, apart, columns},
           {"ln_ih_bias", &P::ln_ih_bias, apart && biases, columns},
           {"ln_hh_weight", &P::ln_hh_weight, apart, columns},
           {"ln_hh_bias", &P::ln_hh_bias, apart && biases, columns},
           {"ln_weight", &P::ln_weight, together, columns},
           {"ln_bias", &P::ln_bias, together && biases, columns},
           {"ln_c_weight", &P::ln_c_weight, cell, hidden},
           {"ln_c_bias", &P::ln_c_bias, cell, hidden}}};
}

}  // namespace planish::internal

#endif  // PLANISH_SRC_RNN_CELL_H_
