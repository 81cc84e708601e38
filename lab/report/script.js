'use strict';
// Reading values at the pointer or by arrow keys, showing and hiding series, opening folds that a
// link leads to and those that are printed. The page is complete without it.
const svgNode = (name, attributes) => {
  const node = document.createElementNS('http://www.w3.org/2000/svg', name);
  for (const key in attributes) node.setAttribute(key, attributes[key]);
  return node;
};

for (const input of document.querySelectorAll('.legend input')) {
  input.hidden = false;
  input.addEventListener('change', () => {
    for (const series of input.closest('.panel').querySelectorAll('.series')) {
      if (series.dataset.name === input.dataset.series) {
        series.style.display = input.checked ? '' : 'none';
      }
    }
  });
}

for (const svg of document.querySelectorAll('figure > svg')) {
  const all = [...svg.querySelectorAll('.series')].map((node) => ({
    node,
    x: node.dataset.x ? node.dataset.x.split('|').map(Number) : [],
    at: node.dataset.at.split('|'),
    value: node.dataset.value.split('|'),
  }));
  if (!all.some((series) => series.x.length)) continue;
  const visible = () =>
    all.filter((series) => series.x.length && series.node.style.display !== 'none');
  const rule = svgNode('line', {class: 'rule', y1: svg.dataset.top, y2: svg.dataset.bottom});
  const readout = document.createElement('div');
  readout.className = 'readout';
  readout.setAttribute('role', 'status');
  readout.hidden = true;
  svg.parentNode.append(readout);
  const nearest = (list, x) =>
    list.reduce((best, value, i) => Math.abs(value - x) < Math.abs(list[best] - x) ? i : best, 0);
  let at = null;

  const hide = () => {
    rule.remove();
    readout.hidden = true;
    at = null;
  };
  // Values at the place nearest to `x` where a visible series has one, `move` places further.
  const show = (x, move = 0) => {
    const series = visible();
    if (!series.length) return hide();
    const stops = [...new Set(series.flatMap(({x}) => x))].sort((a, b) => a - b);
    const stop = nearest(stops, x) + move;
    at = x = stops[Math.min(Math.max(stop, 0), stops.length - 1)];
    rule.setAttribute('x1', x);
    rule.setAttribute('x2', x);
    svg.append(rule);
    readout.replaceChildren();
    for (const one of series) {
      const i = nearest(one.x, x);
      const line = document.createElement('div');
      line.textContent = `${one.node.dataset.name}: ${one.value[i]} at ${one.at[i]}`;
      readout.append(line);
    }
    readout.hidden = false;
    const box = svg.viewBox.baseVal.width;
    readout.style.left = x < box / 2 ? `${100 * x / box + 2}%` : 'auto';
    readout.style.right = x < box / 2 ? 'auto' : `${102 - 100 * x / box}%`;
  };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    show((event.clientX - box.left) / box.width * svg.viewBox.baseVal.width);
  };
  svg.tabIndex = 0;
  svg.addEventListener('pointermove', point);
  svg.addEventListener('pointerdown', point);
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('blur', hide);
  svg.addEventListener('keydown', (event) => {
    const move = {ArrowRight: 1, ArrowLeft: -1, Home: -1e9, End: 1e9}[event.key];
    if (event.key === 'Escape') hide();
    if (!move) return;
    event.preventDefault();
    show(at ?? 0, at === null && move === 1 ? 0 : move);
  });
}

const reveal = () => {
  const target = document.getElementById(location.hash.slice(1));
  if (!target) return;
  for (let fold = target.closest('details') ?? target.querySelector('details'); fold;
    fold = fold.parentElement.closest('details')) fold.open = true;
  target.scrollIntoView();
};
addEventListener('hashchange', reveal);
reveal();

let closed = [];
addEventListener('beforeprint', () => {
  closed = [...document.querySelectorAll('main details:not([open])')];
  for (const details of closed) details.open = true;
});
addEventListener('afterprint', () => {
  for (const details of closed) details.open = false;
});
