/* LayerNorm forward and backward, and a layer-normalized LSTM step by step, through the C
 * interface. C99. Every call returns a status, which Check() turns into a message and an exit. */
#include <math.h>
#include <planish/planish.h>
#include <stdio.h>
#include <stdlib.h>

static void Check(planish_status status) {
  if (status == PLANISH_OK) return;
  fprintf(stderr, "error %d: %s\n", (int)status, planish_error_message());
  exit(1);
}

/* LayerNorm of two rows of three, and its gradients for the loss L = y[0] + y[4]. */
static void LayerNorm(void) {
  const float x[6] = {-1, 0, 1, 1, 2, 3};
  const float gain[3] = {1, 2, 3}, bias[3] = {0, 0, 10};
  const float dy[6] = {1, 0, 0, 0, 1, 0};
  float y[6], mean[2], mean_lo[2], rstd[2];
  float dx[6], dgain[3], dbias[3];
  int i;

  planish_norm_forward_args forward;
  Check(planish_norm_forward_args_init(&forward, sizeof forward));
  forward.type = PLANISH_FLOAT;
  forward.rows = 2;
  forward.cols = 3;
  forward.x = x;
  forward.gain = gain;
  forward.bias = bias;
  forward.y = y;
  forward.mean = mean;
  forward.mean_lo = mean_lo;
  forward.rstd = rstd;
  Check(planish_norm_forward(PLANISH_NORM_LAYER, &forward, NULL));

  planish_norm_backward_args backward;
  Check(planish_norm_backward_args_init(&backward, sizeof backward));
  backward.type = PLANISH_FLOAT;
  backward.rows = 2;
  backward.cols = 3;
  backward.dy = dy;
  backward.x = x;
  backward.gain = gain;
  backward.mean = mean;
  backward.mean_lo = mean_lo;
  backward.rstd = rstd;
  backward.dx = dx;
  backward.dgain = dgain;
  backward.dbias = dbias;
  Check(planish_norm_backward(PLANISH_NORM_LAYER, &backward, NULL));

  printf("y =");
  for (i = 0; i < 6; ++i) printf(" %.3f", y[i]);
  printf("\ndx =");
  for (i = 0; i < 6; ++i) printf(" %.3f", dx[i]);
  printf("\ndgain = %.3f %.3f %.3f\n", dgain[0], dgain[1], dgain[2]);
}

enum { kInputs = 4, kHidden = 8, kSteps = 5, kGates = 4 };

/* An LN-LSTM whose weights are packed once; each step reads the output of the last one. */
static void Lstm(void) {
  float weight_ih[kGates * kHidden * kInputs], weight_hh[kGates * kHidden * kHidden];
  float x[kInputs] = {1, 0, 0, 0}, h[kHidden] = {0}, c[kHidden] = {0};
  int i, t;
  for (i = 0; i < kGates * kHidden * kInputs; ++i) weight_ih[i] = sinf(1.0f + (float)i);
  for (i = 0; i < kGates * kHidden * kHidden; ++i) weight_hh[i] = sinf(2.0f * (float)i);

  planish_rnn_params params;
  Check(planish_rnn_params_init(&params, sizeof params));
  params.weight_ih = weight_ih;
  params.weight_hh = weight_hh;

  planish_rnn_pack_args pack;
  planish_rnn_packed* packed = NULL;
  Check(planish_rnn_pack_args_init(&pack, sizeof pack));
  pack.type = PLANISH_FLOAT;
  pack.inputs = kInputs;
  pack.hidden = kHidden;
  pack.params = &params;
  Check(planish_rnn_pack(PLANISH_CELL_LN_LSTM, &pack, &packed));

  planish_rnn_options options;
  Check(planish_rnn_options_init(&options, sizeof options));
  options.packed = packed;

  planish_rnn_step_args step;
  Check(planish_rnn_step_args_init(&step, sizeof step));
  step.type = PLANISH_FLOAT;
  step.batch = 1;
  step.inputs = kInputs;
  step.hidden = kHidden;
  step.x = x;
  step.h = h; /* the states are updated in place */
  step.h_next = h;
  step.c = c;
  step.c_next = c;
  for (t = 0; t < kSteps; ++t) {
    Check(planish_rnn_step(PLANISH_CELL_LN_LSTM, &step, &options));
    for (i = 0; i < kInputs; ++i) x[i] = h[i];
    printf("h[0] after step %d = %.4f\n", t + 1, h[0]);
  }
  planish_rnn_packed_free(packed);
}

int main(void) {
  printf("Planish %s, SIMD target %s\n", planish_version(), planish_target());
  LayerNorm();
  Lstm();
  return 0;
}
