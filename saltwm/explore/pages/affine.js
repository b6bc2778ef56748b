// Eq. 8 in the page: z' = A(c) z + B c + b with everything folded that does not depend on z.
//
//   h = silu(a W_h + b_h),  [g, u] = h W_e + b_e,  z' = sum_r g_r (z N_r) + u
//
// A step is a few hundred thousand products: a slider needs no answer from anybody.

import { live } from "./world.js";

const kept = new Map();

export function affine(model) {
  if (!kept.has(model)) {
    const made = live.ask("weights", { model }).then(({ header, blobs }) => {
      const fields = {};
      header.fields.forEach(({ name, shape }, place) => { fields[name] = { shape, values: new Float32Array(blobs[place]) }; });
      return new Affine(fields, header);
    });
    made.catch(() => kept.delete(model));
    kept.set(model, made);
  }
  return kept.get(model);
}

class Affine {
  constructor(fields, { frameskip, action_dim: actionDim }) {
    Object.assign(this, { fields, frameskip, actionDim });
    this.dim = fields.modes.shape[1];
    this.modes = fields.modes.shape[0] / this.dim;
  }

  // z [D], raw blocks [K][frameskip * A] -> K latents [D]
  rollout(z, blocks) {
    const path = [];
    for (const block of blocks) { z = this.step(z, block); path.push(z); }
    return path;
  }

  step(z, block) {
    const { action_mean: mean, action_std: std } = this.fields;
    const normal = block.map((a, place) => (a - mean.values[place % this.actionDim]) / std.values[place % this.actionDim]);
    const hidden = product(normal, this.fields.hidden_weight, this.fields.hidden_bias);
    for (let i = 0; i < hidden.length; i += 1) hidden[i] /= 1 + Math.exp(-hidden[i]);
    const effects = product(hidden, this.fields.effect_weight, this.fields.effect_bias);
    const next = new Float64Array(this.dim);
    for (let i = 0; i < this.dim; i += 1) next[i] = effects[this.modes + i];
    const modes = this.fields.modes.values;
    for (let r = 0; r < this.modes; r += 1) {
      for (let from = 0; from < this.dim; from += 1) {
        const weight = effects[r] * z[from];
        const row = (r * this.dim + from) * this.dim;
        for (let to = 0; to < this.dim; to += 1) next[to] += weight * modes[row + to];
      }
    }
    return next;
  }
}

function product(vector, { shape: [rows, columns], values }, bias) {
  const out = Float64Array.from(bias.values);
  for (let row = 0; row < rows; row += 1) {
    const weight = vector[row];
    for (let column = 0; column < columns; column += 1) out[column] += weight * values[row * columns + column];
  }
  return out;
}

// The stored frame whose latent is nearest.
export function nearest(gallery, z) {
  const { latents, dim, frames } = gallery;
  let best = 0;
  let least = Infinity;
  for (let place = 0; place < frames; place += 1) {
    let sum = 0;
    const row = place * dim;
    for (let i = 0; i < dim && sum < least; i += 1) { const d = latents[row + i] - z[i]; sum += d * d; }
    if (sum < least) { least = sum; best = place; }
  }
  return best;
}

// Coordinates of a latent on two principal components.
export function project(gallery, z, [first, second], offset = 0) {
  const { dim, mean, axes } = gallery;
  let x = 0;
  let y = 0;
  for (let i = 0; i < dim; i += 1) {
    const centred = z[offset + i] - mean[i];
    x += centred * axes[first * dim + i];
    y += centred * axes[second * dim + i];
  }
  return [x, y];
}
