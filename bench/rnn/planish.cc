#include "bench/rnn/contestants.h"
#include "lab/bench/threads.h"
#include "src/rnn/cell.h"

namespace planish::bench::rnn {

namespace {

RnnOptions<float> Options() { return {.eps = kEps, .parallel_for = TorchThreads()}; }

RnnOptions<float> PackedOptions(Cell cell, const Case& c, const Arrays& arrays,
                                WeightType type = WeightType::kFull) {
  RnnOptions<float> options = Options();
  options.packed = {cell,
                    c.shape.inputs,
                    c.shape.hidden,
                    ParamsFor(cell, c.shape, arrays),
                    options.parallel_for,
                    /*backward=*/false,
                    c.shape.projected,
                    c.shape.heads,
                    type};
  return options;
}

Contestant MakeStep(Cell cell, const Case& c, const Arrays& arrays, WeightType type) {
  const internal::CellRecipe recipe = internal::RecipeOf(cell);
  if (recipe.over == internal::Over::kBatch) return {.absent = "has no step by itself"};
  const RnnStepArgs<float> args{.batch = c.shape.batch,
                                .inputs = c.shape.inputs,
                                .hidden = c.shape.hidden,
                                .x = arrays.x,
                                .params = ParamsFor(cell, c.shape, arrays),
                                .h = arrays.h,
                                .c = recipe.is_lstm() ? arrays.c : nullptr,
                                .h_next = arrays.y,
                                .projected = c.shape.projected,
                                .heads = c.shape.heads};
  return {.call = [=, options = PackedOptions(cell, c, arrays, type)] {
    RnnStep(cell, args, options);
  }};
}

Contestant MakeRounded(Cell cell, const Case& c, const Arrays& arrays, WeightType type) {
  if (c.mode != Mode::kStep) return {.absent = "is measured only in a step"};
  return MakeStep(cell, c, arrays, type);
}

}  // namespace

Contestant MakePlanish(Cell cell, const Case& c, const Arrays& arrays) {
  if (c.mode == Mode::kStep) return MakeStep(cell, c, arrays, WeightType::kFull);
  const RnnInputs<float> inputs{
      .shape = c.shape, .x = arrays.x, .params = ParamsFor(cell, c.shape, arrays)};
  const RnnForwardArgs<float> forward{.inputs = inputs, .y = arrays.y, .saved = arrays.saved};
  if (c.mode == Mode::kForward) {
    return {.call = [=, options = Options()] { RnnForward(cell, forward, options); }};
  }
  const RnnBackwardArgs<float> backward{.inputs = inputs,
                                        .y = arrays.y,
                                        .saved = arrays.saved,
                                        .dy = arrays.dy,
                                        .dx = arrays.dx,
                                        .dparams = GradientsFor(cell, c.shape, arrays)};
  return {.call = [=, options = Options()] {
    RnnForward(cell, forward, options);
    RnnBackward(cell, backward, options);
  }};
}

Contestant MakePlanishBfloat16(Cell cell, const Case& c, const Arrays& arrays) {
  return MakeRounded(cell, c, arrays, WeightType::kBfloat16);
}

Contestant MakePlanishInt8(Cell cell, const Case& c, const Arrays& arrays) {
  return MakeRounded(cell, c, arrays, WeightType::kInt8);
}

Contestant MakePlanishPacked(Cell cell, const Case& c, const Arrays& arrays) {
  if (c.mode == Mode::kStep) return {.absent = "has for a step the same call as planish"};
  if (c.mode == Mode::kTraining) return {.absent = "is measured only forward"};
  const RnnForwardArgs<float> forward{.inputs = {.shape = c.shape, .x = arrays.x}, .y = arrays.y};
  return {.call = [=, options = PackedOptions(cell, c, arrays)] {
    RnnForward(cell, forward, options);
  }};
}

}  // namespace planish::bench::rnn
