'use strict';
// Reading values at the pointer or by arrow keys, showing and hiding series, opening details for
// print. The page is complete without it.
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
  const stops = [...new Set(all.flatMap((series) => series.x))].sort((a, b) => a - b);
  if (!stops.length) continue;
  const rule = svgNode('line', {class: 'rule', y1: svg.dataset.top, y2: svg.dataset.bottom});
  const readout = document.createElement('div');
  readout.className = 'readout';
  readout.setAttribute('role', 'status');
  readout.hidden = true;
  svg.parentNode.append(readout);
  const nearest = (list, x) =>
    list.reduce((best, value, i) => Math.abs(value - x) < Math.abs(list[best] - x) ? i : best, 0);
  let stop = -1;

  const hide = () => {
    rule.remove();
    readout.hidden = true;
    stop = -1;
  };
  const show = (index) => {
    stop = index;
    const x = stops[index];
    rule.setAttribute('x1', x);
    rule.setAttribute('x2', x);
    svg.append(rule);
    readout.replaceChildren();
    for (const series of all) {
      if (series.node.style.display === 'none' || !series.x.length) continue;
      const i = nearest(series.x, x);
      const line = document.createElement('div');
      line.textContent = `${series.node.dataset.name}: ${series.value[i]} at ${series.at[i]}`;
      readout.append(line);
    }
    readout.hidden = !readout.childNodes.length;
    const box = svg.viewBox.baseVal.width;
    readout.style.left = x < box / 2 ? `${100 * x / box + 2}%` : 'auto';
    readout.style.right = x < box / 2 ? 'auto' : `${102 - 100 * x / box}%`;
  };
  const point = (event) => {
    const box = svg.getBoundingClientRect();
    show(nearest(stops, (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width));
  };
  svg.tabIndex = 0;
  svg.addEventListener('pointermove', point);
  svg.addEventListener('pointerdown', point);
  svg.addEventListener('pointerleave', hide);
  svg.addEventListener('blur', hide);
  svg.addEventListener('keydown', (event) => {
    const move = {ArrowRight: 1, ArrowLeft: -1, Home: -stops.length, End: stops.length}[event.key];
    if (event.key === 'Escape') hide();
    if (!move) return;
    event.preventDefault();
    show(Math.min(Math.max(stop < 0 ? 0 : stop + move, 0), stops.length - 1));
  });
}

let closed = [];
addEventListener('beforeprint', () => {
  closed = [...document.querySelectorAll('details:not([open])')];
  for (const details of closed) details.open = true;
});
addEventListener('afterprint', () => {
  for (const details of closed) details.open = false;
});
