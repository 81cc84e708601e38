#include "lab/tasks/draw/model.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cmath>
#include <vector>

namespace planish::lab {

namespace {

// Makes a cell and restores the default generator, because cells of different norms draw different
// amounts.
std::shared_ptr<RecurrentSteps> MakeUndrawn(const DrawModel::Options& options, int64_t inputs) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const at::Tensor state = generator.get_state();
  auto steps = MakeRecurrentSteps(options.cell, {.inputs = inputs,
                                                 .hidden = options.hidden,
                                                 .epsilon = options.epsilon,
                                                 .gain = options.gain,
                                                 .composed = options.composed});
  generator.set_state(state);
  return steps;
}

// Draws the weights that all cells have from the default generator, and sets their biases to 0.
void DrawWeights(RecurrentSteps& steps, int64_t hidden) {
  const at::NoGradGuard no_grad;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden));
  for (auto& item : steps.named_parameters()) {
    const std::string name = item.key().substr(item.key().rfind('.') + 1);
    if (name.starts_with("weight_")) item.value().uniform_(-bound, bound);
    if (name.starts_with("bias_")) item.value().zero_();
  }
}

// Returns a learned state [2, H] for a batch.
RecurrentState Start(const at::Tensor& start, int64_t batch) {
  const auto rows = [&](int64_t i) { return start[i].expand({batch, -1}).contiguous(); };
  return {rows(0), rows(1)};
}

}  // namespace

DrawModel::DrawModel(const Options& o)
    : options_(o),
      attention_(o.side, o.read, o.write),
      posterior_(register_module("posterior", Linear(o.hidden, 2 * o.latents))),
      head_(register_module("head",
                            Linear(o.hidden, SelectiveAttention::kParameters + o.write * o.write))),
      encoder_(register_module("encoder", MakeUndrawn(o, 2 * o.read * o.read + o.hidden))),
      decoder_(register_module("decoder", MakeUndrawn(o, o.latents))),
      encoder_start_(register_parameter("encoder_start", at::zeros({2, o.hidden}))),
      decoder_start_(register_parameter("decoder_start", at::zeros({2, o.hidden}))),
      canvas_start_(register_parameter("canvas_start", at::zeros({o.side, o.side}))) {
  DrawWeights(*encoder_, o.hidden);
  DrawWeights(*decoder_, o.hidden);
  const at::NoGradGuard no_grad;
  // A bias of the patch would add up over all glimpses, starting with a canvas far from blank.
  posterior_->bias.zero_();
  head_->bias.zero_();
}

DrawModel::Head DrawModel::HeadOf(const at::Tensor& h) {
  const std::vector<at::Tensor> parts = head_->forward(h).split_with_sizes(
      {SelectiveAttention::kParameters, options_.write * options_.write}, 1);
  return {parts[0], parts[1]};
}

DrawModel::Bound DrawModel::forward(const at::Tensor& x, const at::Tensor& noise) {
  const int64_t batch = x.size(0);
  const at::Tensor image = x.view({batch, options_.side, options_.side});
  encoder_->Begin();
  decoder_->Begin();
  RecurrentState e = Start(encoder_start_, batch), h = Start(decoder_start_, batch);
  at::Tensor canvas = canvas_start_.expand_as(image);
  SelectiveAttention::Filters filters = attention_.MakeFilters(HeadOf(h.h).attention);
  std::vector<at::Tensor> posteriors;
  for (const at::Tensor& now : noise.unbind(0)) {
    const at::Tensor glimpse = attention_.Read(filters, image, canvas.sigmoid());
    e = encoder_->Step(at::cat({glimpse, h.h}, 1), e);
    posteriors.push_back(posterior_->forward(e.h));
    const std::vector<at::Tensor> moments = posteriors.back().chunk(2, 1);
    h = decoder_->Step(at::addcmul(moments[0], moments[1].exp(), now), h);
    const Head head = HeadOf(h.h);
    filters = attention_.MakeFilters(head.attention);
    canvas = attention_.Write(filters, head.patch, canvas);
  }
  const std::vector<at::Tensor> moments = at::stack(posteriors).chunk(2, 2);
  const at::Tensor kl =
      0.5 * (moments[0].square() + (2 * moments[1]).exp() - 1) - moments[1];  // [T, B, Z]
  const at::Tensor pixels =
      at::binary_cross_entropy_with_logits(canvas, image, {}, {}, at::Reduction::None);
  return {pixels.sum({1, 2}), kl.sum(at::IntArrayRef({0, 2}))};
}

DrawModel::Drawing DrawModel::Generate(const at::Tensor& noise) {
  const int64_t batch = noise.size(1);
  decoder_->Begin();
  RecurrentState h = Start(decoder_start_, batch);
  at::Tensor canvas = canvas_start_.expand({batch, -1, -1});
  std::vector<at::Tensor> canvases, windows;
  for (const at::Tensor& z : noise.unbind(0)) {
    h = decoder_->Step(z, h);
    const Head head = HeadOf(h.h);
    canvas = attention_.Write(attention_.MakeFilters(head.attention), head.patch, canvas);
    canvases.push_back(canvas.sigmoid().flatten(1));
    windows.push_back(attention_.WriteWindows(head.attention));
  }
  return {at::stack(canvases), at::stack(windows)};
}

}  // namespace planish::lab
