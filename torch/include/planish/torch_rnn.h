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
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planish/rnn.h"

// Recurrent layers for C++ users of PyTorch, on the core's kernels: RNN, LSTM and GRU, plain, with
// layer normalisation and with recurrent batch normalisation. planish/rnn.h has the equations of
// the cells and the meaning of T, B, I, H and G. planish/torch.h includes this file.
namespace planish {

/// The name by which operators know a cell: "lstm", "ln_lstm", "ln_lstm_haste", ... Throws
/// planish::Error for a value that is no cell.
const char* cell_name(Cell cell);

/// The tensors that a layer is computed from, all contiguous or not, of one device and type: float,
/// double, or one of 16 bits, computed in float. Those that are not there are undefined.
/// planish/rnn.h says what each is for, and which parameters a cell takes.
struct RnnTensors {
  at::Tensor x;             ///< [T, B, I]
  at::Tensor weight_ih;     ///< [G, I]
  at::Tensor weight_hh;     ///< [G, H]
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
  at::Tensor h0;            ///< [B, H] the state before the first step; undefined: zeros
  at::Tensor c0;            ///< [B, H] the LSTMs' carried c before it; undefined: zeros
  at::Tensor h_reset;       ///< [H] the state after a reset; undefined: zeros
  at::Tensor c_reset;       ///< [H] the LSTMs' carried c after one; undefined: zeros
  at::Tensor lengths;       ///< [B] int64, each from 1 to T, in any order; undefined: all are T
  at::Tensor resets;        ///< [T, B] bool: whether to reset before this step; undefined: never
};

/// Parameters of a layer as rnn_pack has packed them, or none.
using RnnPacked = c10::intrusive_ptr<torch::CustomClassHolder>;

/// What a layer takes beside its tensors.
struct RnnSettings {
  bool reverse = false;     ///< whether to go from the last step of each sequence to its first
  double eps = 1e-5;        ///< added to variances, inside the root
  bool checkpoint = false;  ///< whether to keep less for backward, which then computes it again
  /// Whether to compute with PyTorch's operators in place of the core, for comparison: many times
  /// the time and memory. Not for packed parameters, and not under autocast.
  bool composed = false;
};

/// What a layer computes.
struct RnnOutputs {
  at::Tensor y;    ///< [T, B, H] the state after every step, 0 beyond the length of a sequence
  at::Tensor h_n;  ///< [B, H] the state after the last step of each sequence
  at::Tensor c_n;  ///< [B, H] the LSTMs' carried c after it; [0] of other cells
};

/// A recurrent layer in one direction. Differentiable with respect to x, the parameters, h0, c0,
/// h_reset and c_reset; backward computes the gradients that are needed alone, and what it needs is
/// kept only where there are any. Second and further derivatives, and those in forward mode, go
/// through the same layer made of PyTorch's operators: they take its time and memory, many times
/// those of a first gradient. With `packed`, which must be of the same parameters, those of
/// `tensors` but for the weights may be left out, and none is read; no derivatives then.
///
/// Under autocast tensors of a lower type than float are taken as float, computed with in float,
/// and y, h_n and c_n have x's type.
///
/// Throws c10::ValueError, which is ValueError in Python, when a type or shape does not fit, a
/// tensor is given that the cell does not take, or a length or eps is out of range; before any
/// work.
RnnOutputs rnn_forward(Cell cell, const RnnTensors& tensors, const RnnSettings& settings = {},
                       const RnnPacked& packed = {});

/// One step of a layer, of x [B, I], parameters, h0 and c0: the next state and carried c, each [B,
/// H] (c is [0] where the cell has none). The same bits as rnn_forward with T = 1, which it calls
/// where gradients are needed. Throws as rnn_forward does, for a cell with batch norm, and when one
/// of the other tensors is given.
std::tuple<at::Tensor, at::Tensor> rnn_step(Cell cell, const RnnTensors& tensors, double eps = 1e-5,
                                            const RnnPacked& packed = {});

/// Copies the parameters among `params` in the order in which kernels read them. A call without
/// packed parameters packs them itself, which for a single step takes longer than the step. Later
/// changes of the parameters do not reach the copy. Throws as rnn_forward does.
RnnPacked rnn_pack(Cell cell, const RnnTensors& params);

/// Steps of one layer that are taken one by one, as the next input depends on the last output: of a
/// decoder with attention, of DRAW. The parameters are packed once, and where gradients are needed,
/// those of the parameters are taken of all steps together: backward through a step computes those
/// of x, h and c alone, as a step of rnn_forward's backward does, and not products as large as the
/// weights. Results are rnn_step's, to the bit; gradients of parameters are rounded as
/// RnnGradientSums has it.
///
/// Steps may go on from any state, be detached from each other and be left unused; backward may go
/// through them in several passes. Each pass adds to a parameter's gradient once, when it has gone
/// through all of its steps. Second derivatives are an error: rnn_step has them. Where the
/// parameters or a step are not plain tensors on the CPU, have tangents, or are under autocast or a
/// transform, a step is rnn_step's.
///
/// A copy is the same steps. Several threads may take steps at once.
class RnnSteps {
 public:
  /// Of no layer.
  RnnSteps() = default;
  /// Tensors by their names.
  using Sources = std::vector<std::pair<std::string, at::Tensor>>;
  /// A flag that is true while a module is frozen, or null.
  using Frozen = std::shared_ptr<const std::atomic<bool>>;

  /// Takes the parameters from `params` as they are now. Without gradients enabled they are
  /// constants. With `packed`, which must be of the same parameters, only the weights are needed,
  /// and there are no derivatives. If the parameters were computed from other tensors, `sources`
  /// must name those. If `params` is empty, `sources` are the parameters themselves, by their names
  /// in a module's state dict (weight_ih, bias_ih, ...).
  ///
  /// Each step compares the bytes of the sources with those that were used; while `*frozen` is true
  /// only their addresses and version counters, which misses writers that bump no version. Another
  /// thread may write to the parameters during the call, but not to the sources of computed ones.
  /// Throws as rnn_step does.
  RnnSteps(Cell cell, const RnnTensors& params, double eps = 1e-5, const RnnPacked& packed = {},
           const Sources& sources = {}, const Frozen& frozen = {});

  explicit operator bool() const { return layer_ != nullptr; }

  /// One step, of x [B, I] and the state before it, each [B, H], zeros where it is undefined: the
  /// next h, and c, which is [0] where the cell has none. Throws as rnn_step does, and when a
  /// parameter has changed.
  std::tuple<at::Tensor, at::Tensor> step(const at::Tensor& x, const at::Tensor& h = {},
                                          const at::Tensor& c = {}) const;

 private:
  struct Layer;
  std::shared_ptr<const Layer> layer_;
};

namespace nn {

/// Options of LayerNormLSTM, LayerNormGRU and LayerNormRNN: those of torch::nn::LSTM, GRU and RNN,
/// without proj_size, and with the cell.
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
  /// The probability with which an output of a layer but the last becomes 0 in training, 0 to 1.
  TORCH_ARG(double, dropout) = 0;
  /// true: a second layer beside each, from the last step to the first; outputs have 2H numbers.
  TORCH_ARG(bool, bidirectional) = false;
  /// The cell, of the module's kind: an LSTM, a GRU or an RNN, with norms or without.
  TORCH_ARG(Cell, variant) = kDefault;
  /// Added to variances, inside the root. TensorFlow Addons' cell has 1e-3, contrib's 1e-12.
  TORCH_ARG(double, eps) = 1e-5;
  /// true: keep less for backward, which computes it again for the price of a forward pass.
  TORCH_ARG(bool, checkpoint) = false;
  /// true: of PyTorch's operators, as RnnSettings has it.
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
  TORCH_ARG(Cell, variant) = kDefault;  ///< as RecurrentOptions has it, without batch norm
  TORCH_ARG(double, eps) = 1e-5;        ///< added to variances, inside the root
  TORCH_ARG(bool, composed) = false;    ///< true: of PyTorch's operators, as RnnSettings has it
};
using LayerNormLSTMCellOptions = RecurrentCellOptions<Cell::kLnLstm>;
using LayerNormGRUCellOptions = RecurrentCellOptions<Cell::kLnGru>;
using LayerNormRNNCellOptions = RecurrentCellOptions<Cell::kLnRnn>;

/// What a module takes beside inputs and states. An undefined tensor is not there. L is layers
/// times directions.
struct RnnSequences {
  /// [B] of any integer type, each from 1 to T, in any order; undefined: all are T.
  at::Tensor lengths;
  /// [T, B] or [T, B, 1], like x's first two dimensions: reset before this step. bool, or 0 and 1
  /// of any real type.
  at::Tensor resets;
  at::Tensor h_reset;  ///< [L, H] the state after a reset; undefined: zeros
  at::Tensor c_reset;  ///< [L, H] the LSTM's carried c after one; undefined: zeros
};

namespace detail {

/// The parameters of a layer in one direction.
class RecurrentParameters {
 public:
  /// Of no layer.
  RecurrentParameters() = default;
  /// Registers those of a cell with a module, under their names and `suffix`. Errors name `owner`.
  RecurrentParameters(torch::nn::Module& module, const std::string& owner, Cell cell,
                      const RnnShape& shape, bool bias, const std::string& suffix);

  /// Returns the parameters as the core takes them: bias and bias_hn made of bias_ih and bias_hh.
  RnnTensors WithBias() const;
  /// Returns the same, except in inference, that is in evaluation mode without gradients: then it
  /// sets `packed` and returns only the weights.
  RnnTensors Prepare(bool training, RnnPacked& packed);
  /// Frees packed weights.
  void Drop();
  void SetFrozen(bool frozen);
  /// Null unless frozen. Turns false with SetFrozen(false), and does not return to true.
  RnnSteps::Frozen frozen() const;

  /// Returns the parameters by their names without the suffix.
  const RnnSteps::Sources& named() const { return params_; }

 private:
  /// Packed weights. A copy starts without them, and is not frozen.
  struct Kept {
    Kept() = default;
    Kept(const Kept& /*other*/) {}
    Kept& operator=(const Kept& /*other*/) {
      packed.reset();
      frozen.reset();
      return *this;
    }

    mutable std::mutex mutex;  ///< modules may be called by several threads at once
    RnnPacked packed;
    std::shared_ptr<std::atomic<bool>> frozen;
  };

  std::string owner_, suffix_;
  Cell cell_{};
  RnnSteps::Sources params_;  ///< by their names without the suffix; the two weights first
  Kept kept_;
};

/// What LayerNormLSTM, LayerNormGRU and LayerNormRNN share.
template <class Derived, class Options>
class RecurrentImpl : public torch::nn::Cloneable<Derived> {
 public:
  RecurrentImpl(int64_t input_size, int64_t hidden_size)
      : RecurrentImpl(Options(input_size, hidden_size)) {}
  explicit RecurrentImpl(const Options& options_);

  void reset() override;
  /// Also frees packed weights, and with `on` unfreezes.
  void train(bool on = true) override;
  /// Packs the weights once for all calls in inference, without comparing them with the parameters
  /// at each call. Until unfreeze() the caller must not change parameters in a way that neither
  /// moves their memory nor counts as a change in place: by fused optimizers, collectives, data()
  /// or other writers to their memory. Other changes throw c10::Error at the next call.
  void freeze();
  void unfreeze();
  bool is_frozen() const;
  /// Draws weights and biases from the uniform distribution between -1/sqrt(H) and 1/sqrt(H), in
  /// the order of PyTorch's modules, and sets the gains of norms to 1 and their biases to 0.
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  Options options;

 protected:
  using PackedSequence = torch::nn::utils::rnn::PackedSequence;

  /// The module with its layout of inputs and states; c_n is undefined but for an LSTM.
  RnnOutputs Run(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0,
                 const RnnSequences& sequences);
  /// The same of a packed sequence. `y` is what a PackedSequence has as data.
  RnnOutputs RunPacked(const PackedSequence& x, const at::Tensor& h0, const at::Tensor& c0);

 private:
  RnnOutputs RunLayers(const at::Tensor& x, const at::Tensor& h0, const at::Tensor& c0,
                       const RnnSequences& sequences);

  std::vector<RecurrentParameters> layers_;  ///< [num_layers * directions]
};

/// What LayerNormLSTMCell, LayerNormGRUCell and LayerNormRNNCell share.
template <class Derived, class Options>
class RecurrentCellImpl : public torch::nn::Cloneable<Derived> {
 public:
  RecurrentCellImpl(int64_t input_size, int64_t hidden_size)
      : RecurrentCellImpl(Options(input_size, hidden_size)) {}
  explicit RecurrentCellImpl(const Options& options_);

  void reset() override;
  /// train, freeze, unfreeze, is_frozen and reset_parameters do as in RecurrentImpl.
  void train(bool on = true) override;
  void freeze();
  void unfreeze();
  bool is_frozen() const;
  void reset_parameters();
  void pretty_print(std::ostream& stream) const override;

  /// The module for many steps, of x [B, I], with its parameters as they are now. Each step
  /// compares the parameters' bytes with those of now. Steps of a frozen module leave that out
  /// until it is unfrozen. Throws c10::ValueError with the option composed.
  RnnSteps steps();

  Options options;

 protected:
  std::tuple<at::Tensor, at::Tensor> Run(const at::Tensor& x, const at::Tensor& h,
                                         const at::Tensor& c);

 private:
  RecurrentParameters parameters_of_cell_;
};

}  // namespace detail

/// An LSTM with layer normalisation over whole sequences, in any variant of planish/rnn.h, with the
/// interface of torch::nn::LSTM:
///
///   a = LN(weight_ih x_t; ln_ih) + LN(weight_hh h_{t-1}; ln_hh) + bias_ih
///   c_t = s(f) * c_{t-1} + s(i) * tanh(g),   h_t = s(o) * tanh(LN(c_t; ln_c))
///
/// (Ba, Kiros & Hinton 2016, Eq. 20-22, the default), gates in PyTorch's order i, f, g, o.
///
/// State-dict keys, of layer k: weight_ih_l{k} [4H, I, or what the layer below gives],
/// weight_hh_l{k} [4H, H], bias_ih_l{k} [4H], and of the norms that the variant has
/// ln_ih_weight_l{k}, ln_ih_bias_l{k}, ln_hh_weight_l{k}, ln_hh_bias_l{k}, ln_weight_l{k},
/// ln_bias_l{k} [4H], ln_c_weight_l{k}, ln_c_bias_l{k} [H]; those of the second direction end in
/// _reverse. A variant with plain sums (kLstm, kDrawLstm) has bias_hh_l{k} [4H], too: kLstm has the
/// keys, shapes and results of torch::nn::LSTM.
///
/// Throws c10::Error when options are out of range or the variant is not an LSTM.
class LayerNormLSTMImpl : public detail::RecurrentImpl<LayerNormLSTMImpl, LayerNormLSTMOptions> {
 public:
  using State = std::tuple<at::Tensor, at::Tensor>;

  using RecurrentImpl::RecurrentImpl;

  /// x: [T, B, I], [B, T, I] with batch_first, or [T, I], one sequence. hx: h_0 and c_0, each [L,
  /// B, H], or [L, H] with [T, I]; zeros without. Returns y [T, B, D * H] in x's layout, D the
  /// directions, and h_n and c_n as hx. Throws as planish::rnn_forward does.
  std::tuple<at::Tensor, State> forward(const at::Tensor& x, const std::optional<State>& hx = {},
                                        const RnnSequences& sequences = {});

  /// The same of a packed sequence, states in the order of the sequences before they were sorted.
  std::tuple<PackedSequence, State> forward_with_packed_input(const PackedSequence& x,
                                                              const std::optional<State>& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<State>())},
                           {2, torch::nn::AnyValue(RnnSequences())})
};
TORCH_MODULE(LayerNormLSTM);

/// A GRU with layer normalisation over whole sequences, with the interface of torch::nn::GRU:
///
///   ax = LN(weight_ih x_t; ln_ih),   ah = LN(weight_hh h_{t-1}; ln_hh)
///   n = tanh(ax_n + s(ax_r + ah_r) * ah_n),   z = s(ax_z + ah_z)
///   h_t = (1 - z) * n + z * h_{t-1}
///
/// each LN over the sums of r and z together and over those of n for themselves (Ba et al. 2016,
/// Eq. 26-28, with PyTorch's sense of z and order of gates: r, z, n). There is no bias beside the
/// norms'. The variant kGru is torch::nn::GRU, with its bias_ih and bias_hh.
///
/// Keys and shapes as LayerNormLSTM, with 3H for 4H and without ln_c.
class LayerNormGRUImpl : public detail::RecurrentImpl<LayerNormGRUImpl, LayerNormGRUOptions> {
 public:
  using RecurrentImpl::RecurrentImpl;

  /// As LayerNormLSTM; the state is h alone.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& hx = {},
                                             const RnnSequences& sequences = {});
  std::tuple<PackedSequence, at::Tensor> forward_with_packed_input(const PackedSequence& x,
                                                                   const at::Tensor& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())},
                           {2, torch::nn::AnyValue(RnnSequences())})
};
TORCH_MODULE(LayerNormGRU);

/// Elman's RNN with layer normalisation over whole sequences, with the interface of torch::nn::RNN:
/// h_t = tanh(LN(weight_ih x_t + weight_hh h_{t-1}; ln)) (Ba et al. 2016, Eq. 4). The variant
/// kLnRnnRelu has relu in place of tanh; kRnn and kRnnRelu are torch::nn::RNN.
///
/// Keys and shapes as LayerNormLSTM, with H for 4H and, of the norms, ln_weight_l{k} and
/// ln_bias_l{k} alone.
class LayerNormRNNImpl : public detail::RecurrentImpl<LayerNormRNNImpl, LayerNormRNNOptions> {
 public:
  using RecurrentImpl::RecurrentImpl;

  /// As LayerNormLSTM; the state is h alone.
  std::tuple<at::Tensor, at::Tensor> forward(const at::Tensor& x, const at::Tensor& hx = {},
                                             const RnnSequences& sequences = {});
  std::tuple<PackedSequence, at::Tensor> forward_with_packed_input(const PackedSequence& x,
                                                                   const at::Tensor& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())},
                           {2, torch::nn::AnyValue(RnnSequences())})
};
TORCH_MODULE(LayerNormRNN);

/// One step of LayerNormLSTM, with the interface of torch::nn::LSTMCell; keys have no _l{k}.
class LayerNormLSTMCellImpl
    : public detail::RecurrentCellImpl<LayerNormLSTMCellImpl, LayerNormLSTMCellOptions> {
 public:
  using State = std::tuple<at::Tensor, at::Tensor>;

  using RecurrentCellImpl::RecurrentCellImpl;

  /// x: [B, I] or [I]. hx: h and c, each [B, H] or [H]; zeros without. Returns the next ones.
  State forward(const at::Tensor& x, const std::optional<State>& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(std::optional<State>())})
};
TORCH_MODULE(LayerNormLSTMCell);

/// One step of LayerNormGRU, with the interface of torch::nn::GRUCell; keys have no _l{k}.
class LayerNormGRUCellImpl
    : public detail::RecurrentCellImpl<LayerNormGRUCellImpl, LayerNormGRUCellOptions> {
 public:
  using RecurrentCellImpl::RecurrentCellImpl;

  /// x: [B, I] or [I]. hx: [B, H] or [H]; zeros without. Returns the next state.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})
};
TORCH_MODULE(LayerNormGRUCell);

/// One step of LayerNormRNN, with the interface of torch::nn::RNNCell; keys have no _l{k}.
class LayerNormRNNCellImpl
    : public detail::RecurrentCellImpl<LayerNormRNNCellImpl, LayerNormRNNCellOptions> {
 public:
  using RecurrentCellImpl::RecurrentCellImpl;

  /// As LayerNormGRUCell.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& hx = {});

 protected:
  FORWARD_HAS_DEFAULT_ARGS({1, torch::nn::AnyValue(at::Tensor())})
};
TORCH_MODULE(LayerNormRNNCell);

}  // namespace nn
}  // namespace planish

#endif  // PLANISH_TORCH_RNN_H_
