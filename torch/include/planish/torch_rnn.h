#ifndef PLANISH_TORCH_RNN_H_
#define PLANISH_TORCH_RNN_H_

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/common.h>
#include <torch/nn/pimpl.h>
#include <torch/nn/utils/rnn.h>

#include <atomic>
#include <cstdint>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/rnn.h"
#include "planish/version.h"

// Recurrent layers for C++ users of PyTorch: RNN, LSTM and GRU, each plain, with layer
// normalization or with recurrent batch normalization. The equations of the cells and the meaning
// of T, B, I, H and G are in planish/rnn.h.
//
// Example: an LN-LSTM over 4 steps of 2 sequences. Its last output is its hidden state.
//   planish::nn::LayerNormLSTM lstm(planish::nn::LayerNormLSTMOptions(3, 5));
//   const auto [y, state] = lstm(at::randn({4, 2, 3}));
//   const auto& [h_n, c_n] = state;
//   std::printf("%d", y[3].equal(h_n[0]));
//   // prints 1
namespace planish {
namespace internal {
class RnnLayer;  // torch/rnn/layer.h
}  // namespace internal

inline namespace PLANISH_API {

/// Returns the name of a cell in operators: "lstm", "ln_lstm", "ln_lstm_haste", ... Throws
/// planish::Error for a value outside the enum.
const char* cell_name(Cell cell);

/// Returns the name of a type of packed weights in operators: "full", "bfloat16" or "int8". Throws
/// planish::Error for a value outside the enum.
const char* weight_type_name(WeightType type);

/// Input tensors of a layer, contiguous or not, all on one device and of one type: float, double,
/// bfloat16 or float16. 16-bit types are computed in float. Absent tensors are undefined.
/// planish/rnn.h explains each tensor and says which parameters a cell has.
struct RnnTensors {
  at::Tensor x;             ///< [T, B, I]
  at::Tensor weight_ih;     ///< [G, I]
  at::Tensor weight_hh;     ///< [G, O / N] for N heads; without a projection, its sizes define N
  at::Tensor bias;          ///< [G]
  at::Tensor bias_hn;       ///< [H]
  at::Tensor ln_ih_weight;  ///< [G]
  at::Tensor ln_ih_bias;    ///< [G]
  at::Tensor ln_hh_weight;  ///< [G]
  at::Tensor ln_hh_bias;    ///< [G]
  at::Tensor ln_weight;     ///< [G]
  at::Tensor ln_bias;       ///< [G]
  at::Tensor ln_c_weight;   ///< [H]
  at::Tensor ln_c_bias;     ///< [H]
  at::Tensor weight_hr;     ///< [O, H] the projection of an LSTM, O < H; undefined: none, O = H
  at::Tensor h0;            ///< [B, O] the initial hidden state; undefined: zeros
  at::Tensor c0;       ///< [B, H] the initial cell state (LSTMs), in kSlstm [B, 2H] as all cell
                       ///< states; undefined: zeros, in kSlstm n = 0
  at::Tensor h_reset;  ///< [O] the hidden state after a reset; undefined: zeros
  at::Tensor c_reset;  ///< [H] the cell state after a reset (LSTMs); undefined: zeros
  at::Tensor lengths;  ///< [B] int64, each from 1 to T, in any order; undefined: all are T
  at::Tensor resets;   ///< [T, B] bool: true resets the state before this step; undefined: never
};

/// A reference-counted handle of packed weights, as returned by rnn_pack, or null. The packed
/// weights are a copy that does not refer to the parameters. They are freed with the last handle
/// and the last object that uses them, such as RnnSteps.
using RnnPacked = c10::intrusive_ptr<torch::CustomClassHolder>;

/// Options of rnn_forward.
struct RnnSettings {
  bool reverse = false;     ///< true: run from the last step of each sequence to its first
  double eps = 1e-5;        ///< added to variances, inside the root
  bool checkpoint = false;  ///< true: save less for backward, which recomputes it
  /// true: compute with PyTorch's operators, for comparison; slower, and with much more memory. Not
  /// allowed with packed weights or under autocast.
  bool composed = false;
};

/// Outputs of rnn_forward.
struct RnnOutputs {
  at::Tensor y;    ///< [T, B, O] the hidden state after every step; 0 past the length of a sequence
  at::Tensor h_n;  ///< [B, O] the hidden state after the last step of each sequence
  at::Tensor c_n;  ///< [B, H] the cell state after it; [0] for cells without one
};

/// Computes a recurrent layer in one direction. Safe to call from several threads at once.
///
/// Differentiable with respect to x, the parameters, h0, c0, h_reset and c_reset. Only the
/// gradients that are needed are computed, and nothing is saved if none is. Second and higher
/// derivatives, and those in forward mode, run the layer with PyTorch's operators, which takes much
/// more time and memory.
///
/// `packed` must hold the parameters of this layer. `tensors` then needs only weight_ih, weight_hh
/// and, with a projection, weight_hr, for their sizes, and there are no derivatives.
///
/// Under autocast, 16-bit tensors are converted to float, and y, h_n and c_n have x's type.
///
/// Checks all arguments before any work. Throws c10::ValueError (ValueError in Python) for an
/// invalid type, shape, length or eps, and for a tensor that the cell does not have.
RnnOutputs rnn_forward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings = {},
                       const RnnPacked& packed = {});

/// Computes one step of a layer from x [B, I], the parameters, h0 and c0. Returns the next hidden
/// state [B, O] and cell state [B, H]; the latter is [0] for cells without one.
///
/// The results equal those of rnn_forward with T = 1 bit for bit; if gradients are needed, this
/// calls rnn_forward. Throws as rnn_forward does, and if the cell has batch norm or one of the
/// other tensors is given.
std::tuple<at::Tensor, at::Tensor> rnn_step(Cell cell, const RnnTensors& tensors, double eps = 1e-5,
                                            const RnnPacked& packed = {});

/// Returns packed weights: a copy of the parameters in `params`, which must be on the CPU,
/// rearranged for the kernels. The parameters can be changed or freed after the call; the copy
/// stays as it is. A call without packed weights packs them itself, which takes longer than a
/// single step. `weight_type` is the type in which the weight matrices are stored; RnnPackedParams
/// says how each rounds. Throws as rnn_forward does, and for another type than kFull if the
/// parameters are double.
RnnPacked rnn_pack(Cell cell, const RnnTensors& params, WeightType weight_type = WeightType::kFull);

/// Single steps of one layer, for a decoder with attention or DRAW, where the next input depends on
/// the last output. The parameters are packed once.
///
/// Backward through a step computes only the gradients of x, h and c. The gradients of the
/// parameters are computed for many steps together, in large matrix products. Results equal those
/// of rnn_step bit for bit; RnnGradientSums says how the parameters' gradients are rounded.
///
/// A step can continue from any state, be detached from other steps, or stay unused. Backward can
/// pass through the steps several times; each pass adds to a parameter's gradient once, after its
/// last step. Second derivatives throw; use rnn_step for them.
///
/// A step calls rnn_step if the parameters or its inputs are not plain CPU tensors, have tangents,
/// or are under autocast or a functional transform.
///
/// The object and its copies share the packed weights, and keep them, the parameters and `sources`
/// alive. Graphs of the steps also keep the packed weights alive, and the parameters that require
/// gradients. Several threads can call step() at once.
class RnnSteps {
 public:
  /// Constructs an empty object, which has no layer.
  RnnSteps() = default;
  /// Tensors with their names.
  using Sources = std::vector<std::pair<std::string, at::Tensor>>;

  /// Packs the parameters in `params` as they are now. They are constants unless gradients are
  /// enabled. With `packed`, which must hold the same parameters, only the weights are needed, and
  /// there are no derivatives.
  ///
  /// If the parameters were computed from other tensors, `sources` must list those. If `params` is
  /// empty, `sources` are the parameters themselves, named as in a module's state dict (weight_ih,
  /// bias_ih, ...).
  ///
  /// Each step compares the bytes of the sources with those that were packed. During the call,
  /// another thread may write to the parameters, but not to sources from which they were computed.
  /// Throws as rnn_step does.
  RnnSteps(Cell cell, const RnnTensors& params, double eps = 1e-5, const RnnPacked& packed = {},
           const Sources& sources = {})
      : RnnSteps(cell, params, eps, packed, sources, nullptr) {}

  explicit operator bool() const { return layer_ != nullptr; }

  /// Computes one step from x [B, I] and the state before it, h [B, O] and c [B, H]; undefined
  /// means zeros. Returns the next hidden and cell state; the cell state is [0] for cells without
  /// one. Throws as rnn_step does, and if a parameter has changed.
  std::tuple<at::Tensor, at::Tensor> step(const at::Tensor& x, const at::Tensor& h = {},
                                          const at::Tensor& c = {}) const;

 private:
  friend class internal::RnnLayer;

  struct Layer;
  /// A flag that is true while a module is frozen, or null.
  using Frozen = std::shared_ptr<const std::atomic<bool>>;

  /// While `*frozen` is true, steps compare only the addresses and version counters of the sources,
  /// which misses writes that do not bump the version.
  RnnSteps(Cell cell, const RnnTensors& params, double eps, const RnnPacked& packed,
           const Sources& sources, const Frozen& frozen);

  std::shared_ptr<const Layer> layer_;
};

}  // namespace PLANISH_API

namespace nn {
inline namespace PLANISH_API {

/// Options of LayerNormLSTM, LayerNormGRU and LayerNormRNN: those of torch::nn::LSTM, GRU and RNN,
/// and the cell.
template <Cell kDefault>
struct RecurrentOptions {
  static constexpr Cell kDefaultVariant = kDefault;

  RecurrentOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  TORCH_ARG(int64_t, input_size);   ///< I, >= 1
  TORCH_ARG(int64_t, hidden_size);  ///< H, >= 1
  /// Layers, each on the outputs of the one before, >= 1.
  TORCH_ARG(int64_t, num_layers) = 1;
  /// false: no bias_ih and no bias_hh. The biases of the norms stay.
  TORCH_ARG(bool, bias) = true;
  /// true: inputs, outputs and resets are [B, T, ...]; states are [..., B, H] in either case.
  TORCH_ARG(bool, batch_first) = false;
  /// The probability in [0, 1] of zeroing an output of a layer, except the last layer, in training.
  TORCH_ARG(double, dropout) = 0;
  /// true: adds a layer that runs backward in time beside each layer; outputs have 2 O elements.
  TORCH_ARG(bool, bidirectional) = false;
  /// O of an LSTM whose h is multiplied by weight_hr, < H; 0: no projection, O = H.
  TORCH_ARG(int64_t, proj_size) = 0;
  /// N, divides H; 1 with proj_size. weight_hh is block-diagonal: RnnShape::heads.
  TORCH_ARG(int64_t, num_heads) = 1;
  /// The cell, of the module's kind (LSTM, GRU or RNN), with or without norms.
  TORCH_ARG(Cell, variant) = kDefault;
  /// Added to variances, inside the root. TensorFlow Addons' cell uses 1e-3, contrib's 1e-12.
  TORCH_ARG(double, eps) = 1e-5;
  /// true: saves less for backward, which repeats the forward pass.
  TORCH_ARG(bool, checkpoint) = false;
  /// true: computes with PyTorch's operators; see RnnSettings.
  TORCH_ARG(bool, composed) = false;
};
using LayerNormLSTMOptions = RecurrentOptions<Cell::kLnLstm>;
using LayerNormGRUOptions = RecurrentOptions<Cell::kLnGru>;
using LayerNormRNNOptions = RecurrentOptions<Cell::kLnRnn>;

/// Options of LayerNormLSTMCell, LayerNormGRUCell and LayerNormRNNCell.
template <Cell kDefault>
struct RecurrentCellOptions {
  static constexpr Cell kDefaultVariant = kDefault;

  RecurrentCellOptions(int64_t input_size, int64_t hidden_size)
      : input_size_(input_size), hidden_size_(hidden_size) {}
  TORCH_ARG(int64_t, input_size);       ///< I, >= 1
  TORCH_ARG(int64_t, hidden_size);      ///< H, >= 1
  TORCH_ARG(bool, bias) = true;         ///< false: no bias_ih and no bias_hh
  TORCH_ARG(int64_t, proj_size) = 0;    ///< as in RecurrentOptions
  TORCH_ARG(int64_t, num_heads) = 1;    ///< as in RecurrentOptions
  TORCH_ARG(Cell, variant) = kDefault;  ///< as in RecurrentOptions, without batch norm
  TORCH_ARG(double, eps) = 1e-5;        ///< added to variances, inside the root
  TORCH_ARG(bool, composed) = false;  ///< true: computes with PyTorch's operators; see RnnSettings
};
using LayerNormLSTMCellOptions = RecurrentCellOptions<Cell::kLnLstm>;
using LayerNormGRUCellOptions = RecurrentCellOptions<Cell::kLnGru>;
using LayerNormRNNCellOptions = RecurrentCellOptions<Cell::kLnRnn>;

/// Optional inputs of a layer: lengths and resets. Absent tensors are undefined. L is num_layers
/// times the number of directions.
struct RnnSequences {
  /// [B] integers of any type, each from 1 to T, in any order; undefined: all are T.
  at::Tensor lengths;
  /// [T, B] or [T, B, 1], in x's layout: nonzero resets the state before this step. bool, or 0 and
  /// 1 of any real type. Undefined: never.
  at::Tensor resets;
  at::Tensor h_reset;  ///< [L, O] the hidden state after a reset; undefined: zeros
  at::Tensor c_reset;  ///< [L, H] the cell state after a reset (LSTM); undefined: zeros
};

namespace detail {

/// A layer in one direction: the module's parameters, and the object that runs them. A copy has the
/// same parameters, without packed weights and not frozen.
class RecurrentLayer {
 public:
  /// Constructs an object without parameters.
  RecurrentLayer() = default;
  /// Registers a cell's parameters with a module, under their names followed by `suffix`. Errors
  /// name `owner`.
  RecurrentLayer(torch::nn::Module& module, const std::string& owner, Cell cell,
                 const RnnShape& shape, bool bias, const std::string& suffix);
  RecurrentLayer(const RecurrentLayer& other);
  RecurrentLayer& operator=(const RecurrentLayer& other);

  internal::RnnLayer* operator->() const { return layer_.get(); }
  const std::vector<at::Tensor>& params() const { return params_; }

 private:
  std::vector<at::Tensor> params_;
  std::shared_ptr<internal::RnnLayer> layer_;
};

/// Base of LayerNormLSTM, LayerNormGRU and LayerNormRNN. Several threads can call a module at once.
///
/// In evaluation with gradients disabled, the first call packs the weights if they are on the CPU,
/// and the module keeps the packed copy. Each later call compares the bytes of the parameters with
/// those packed, and packs again after a change. The packed weights are freed
/// by train(), eval(), freeze(), unfreeze() and the destructor. Copies of a module start without
/// packed weights.
template <class Derived, class Options>
class RecurrentImpl : public torch::nn::Cloneable<Derived> {
 public:
  RecurrentImpl(int64_t input_size, int64_t hidden_size)
      : RecurrentImpl(Options(input_size, hidden_size)) {}
  explicit RecurrentImpl(const Options& options_);

  void reset() override;
  /// Sets the mode, frees the packed weights, and calls unfreeze() if `on`.
  void train(bool on = true) override;
  /// Packs the weights at the next call in inference, and uses them until unfreeze() without
  /// comparing bytes. Until then, do not write to parameters without bumping their version counter,
  /// as fused optimizers, collectives and data() do: the results would be stale. Other changes
  /// throw c10::Error at the next call.
  void freeze();
  void unfreeze();
  bool is_frozen() const;
  /// Stores the packed weights in this type from the next call on, so that steps of few sequences
  /// read fewer bytes. Results in inference are then those of rounded weights; RnnPackedParams has
  /// the equations. Training, gradients and calls on a GPU use the parameters, which stay as they
  /// are. Copies keep the type. Throws c10::ValueError if the parameters are double.
  void quantize_(WeightType weight_type);
  WeightType weight_type() const;
  /// Draws weights and biases from the uniform distribution on [-1/sqrt(H), 1/sqrt(H)], in the
  /// order of PyTorch's modules. Sets the gains of norms to 1 and their biases to 0.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  Options options;

 protected:
  using PackedSequence = torch::nn::utils::rnn::PackedSequence;

  /// Computes the module; x and the states have the module's layout. c_n is defined only for LSTMs.
  RnnOutputs Run(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0,
                 const RnnSequences& sequences);
  /// Computes the module for a packed sequence. `y` is the data of the resulting PackedSequence.
  RnnOutputs RunPacked(const PackedSequence& x, const at::Tensor& h0, const at::Tensor& c0);

 private:
  RnnOutputs RunLayers(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0,
                       const RnnSequences& sequences);

  std::vector<RecurrentLayer> layers_;  ///< [num_layers * directions]
};

/// Base of LayerNormGRU and LayerNormRNN, whose state is only h.
template <class Derived, class Options>
class HiddenStateImpl : public RecurrentImpl<Derived, Options> {
 public:
  using PackedSequence = torch::nn::utils::rnn::PackedSequence;
  using RecurrentImpl<Derived, Options>::RecurrentImpl;

  /// Like LayerNormLSTM::forward, where the state is only h.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& hx = {},
                                             const RnnSequences& sequences = {});
  std::tuple<PackedSequence, at::Tensor> forward_with_packed_input(const PackedSequence& x,
                                                                   const at::Tensor& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())},
                           {2, torch::nn::AnyValue(RnnSequences())})
};

/// Base of LayerNormLSTMCell, LayerNormGRUCell and LayerNormRNNCell.
template <class Derived, class Options>
class RecurrentCellImpl : public torch::nn::Cloneable<Derived> {
 public:
  RecurrentCellImpl(int64_t input_size, int64_t hidden_size)
      : RecurrentCellImpl(Options(input_size, hidden_size)) {}
  explicit RecurrentCellImpl(const Options& options_);

  void reset() override;
  // train, freeze, unfreeze, is_frozen, quantize_, weight_type and reset_parameters: see
  // RecurrentImpl.
  void train(bool on = true) override;
  void freeze();
  void unfreeze();
  bool is_frozen() const;
  void quantize_(WeightType weight_type);
  WeightType weight_type() const;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// Returns the module as single steps with its present parameters, for x [B, I]. Each step checks
  /// that the bytes of the parameters have not changed; steps of a frozen module skip this until it
  /// is unfrozen. Throws c10::ValueError with the option `composed`.
  RnnSteps steps();

  Options options;

 protected:
  std::tuple<at::Tensor, at::Tensor> Run(const at::Tensor& x, const at::Tensor& h,
                                         const at::Tensor& c);

 private:
  RecurrentLayer layer_;
};

/// Base of LayerNormGRUCell and LayerNormRNNCell, whose state is only h.
template <class Derived, class Options>
class HiddenStateCellImpl : public RecurrentCellImpl<Derived, Options> {
 public:
  using RecurrentCellImpl<Derived, Options>::RecurrentCellImpl;

  /// Returns the next h for x [B, I] or [I]. hx is [B, H] or [H]; zeros by default.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})
};

}  // namespace detail

/// An LSTM with layer normalization over whole sequences, in any variant of planish/rnn.h, with the
/// interface of torch::nn::LSTM. The default variant (Ba, Kiros & Hinton 2016, Eq. 20-22), with
/// gates in PyTorch's order i, f, g, o:
///
///   a = LN(weight_ih x_t; ln_ih) + LN(weight_hh h_{t-1}; ln_hh) + bias_ih
///   c_t = s(f) * c_{t-1} + s(i) * tanh(g),   h_t = s(o) * tanh(LN(c_t; ln_c))
///
/// State-dict keys of layer k:
///
///   weight_ih_l{k}                                      [4H, I or the width of the layer below]
///   weight_hh_l{k}                                      [4H, O / N]
///   bias_ih_l{k}                                        [4H], if the variant has a bias
///   bias_hh_l{k}                                        [4H], only in kLstm and kDrawLstm
///   ln_ih_weight_l{k}, ln_ih_bias_l{k}                  [4H], if the variant has the norm
///   ln_hh_weight_l{k}, ln_hh_bias_l{k}                  [4H], if the variant has the norm
///   ln_weight_l{k}, ln_bias_l{k}                        [4H], if the variant has the norm
///   ln_c_weight_l{k}, ln_c_bias_l{k}                    [H], if the variant has the norm
///   weight_hr_l{k}                                      [O, H], only with proj_size
///
/// Keys of the backward direction end in _reverse. kLstm has the keys, shapes and results of
/// torch::nn::LSTM.
///
/// Throws c10::Error if an option is out of range or the variant is not an LSTM.
class LayerNormLSTMImpl : public detail::RecurrentImpl<LayerNormLSTMImpl, LayerNormLSTMOptions> {
 public:
  using State = std::tuple<at::Tensor, at::Tensor>;

  using RecurrentImpl::RecurrentImpl;

  /// Returns y [T, B, D * H] in x's layout, where D is the number of directions, and (h_n, c_n)
  /// with the shapes of hx.
  ///
  /// `x` is [T, B, I], or [B, T, I] with batch_first, or [T, I] for one sequence. `hx` is (h_0,
  /// c_0), each [L, B, H], or [L, H] for one sequence; zeros by default. Throws as
  /// planish::rnn_forward.
  std::tuple<at::Tensor, State> forward(const at::Tensor& x, const std::optional<State>& hx = {},
                                        const RnnSequences& sequences = {});

  /// Like forward, for a packed sequence. States are in the order of the sequences before sorting.
  std::tuple<PackedSequence, State> forward_with_packed_input(const PackedSequence& x,
                                                              const std::optional<State>& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<State>())},
                           {2, torch::nn::AnyValue(RnnSequences())})
};
TORCH_MODULE(LayerNormLSTM);

/// A GRU with layer normalization over whole sequences, with the interface of torch::nn::GRU. The
/// default variant (Ba et al. 2016, Eq. 26-28, with PyTorch's meaning of z and gates r, z, n):
///
///   ax = LN(weight_ih x_t; ln_ih),   ah = LN(weight_hh h_{t-1}; ln_hh)
///   n = tanh(ax_n + s(ax_r + ah_r) * ah_n),   z = s(ax_z + ah_z)
///   h_t = (1 - z) * n + z * h_{t-1}
///
/// One LN is over the 2H sums of r and z together, another over the H sums of n. There is no bias
/// except those of the norms. Other variants: kGru, which is torch::nn::GRU, and kLnGruHaste have
/// bias_ih and bias_hh. kLnGruDreamer has other equations (Cell), and its ln_bias of z starts at 1.
///
/// Keys and shapes are those of LayerNormLSTM, with 3H instead of 4H and without ln_c.
class LayerNormGRUImpl : public detail::HiddenStateImpl<LayerNormGRUImpl, LayerNormGRUOptions> {
 public:
  using HiddenStateImpl::HiddenStateImpl;
};
TORCH_MODULE(LayerNormGRU);

/// Elman's RNN with layer normalization over whole sequences, with the interface of torch::nn::RNN:
///
///   h_t = tanh(LN(weight_ih x_t + weight_hh h_{t-1}; ln))      (Ba et al. 2016, Eq. 4)
///
/// The variant kLnRnnRelu has relu instead of tanh; kRnn and kRnnRelu are torch::nn::RNN. Keys and
/// shapes are those of LayerNormLSTM, with H instead of 4H; of the norms, only ln_weight_l{k} and
/// ln_bias_l{k} exist.
class LayerNormRNNImpl : public detail::HiddenStateImpl<LayerNormRNNImpl, LayerNormRNNOptions> {
 public:
  using HiddenStateImpl::HiddenStateImpl;
};
TORCH_MODULE(LayerNormRNN);

/// One step of LayerNormLSTM, with the interface of torch::nn::LSTMCell. Keys have no _l{k}.
class LayerNormLSTMCellImpl
    : public detail::RecurrentCellImpl<LayerNormLSTMCellImpl, LayerNormLSTMCellOptions> {
 public:
  using State = std::tuple<at::Tensor, at::Tensor>;

  using RecurrentCellImpl::RecurrentCellImpl;

  /// Returns the next (h, c) for x [B, I] or [I]. hx is (h, c), each [B, H] or [H]; zeros by
  /// default.
  State forward(const at::Tensor& x, const std::optional<State>& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<State>())})
};
TORCH_MODULE(LayerNormLSTMCell);

/// One step of LayerNormGRU, with the interface of torch::nn::GRUCell. Keys have no _l{k}.
class LayerNormGRUCellImpl
    : public detail::HiddenStateCellImpl<LayerNormGRUCellImpl, LayerNormGRUCellOptions> {
 public:
  using HiddenStateCellImpl::HiddenStateCellImpl;
};
TORCH_MODULE(LayerNormGRUCell);

/// One step of LayerNormRNN, with the interface of torch::nn::RNNCell. Keys have no _l{k}.
class LayerNormRNNCellImpl
    : public detail::HiddenStateCellImpl<LayerNormRNNCellImpl, LayerNormRNNCellOptions> {
 public:
  using HiddenStateCellImpl::HiddenStateCellImpl;
};
TORCH_MODULE(LayerNormRNNCell);

}  // namespace PLANISH_API
}  // namespace nn
}  // namespace planish

#endif  // PLANISH_TORCH_RNN_H_
