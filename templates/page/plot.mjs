// A plot of points {x, y, said} as SVG, logarithmic where the numbers double; `here` is the present point.
export function plot(svg, points, here, label) {
  const [left, right, top, bottom] = [120, 600, 15, 255];
  const make = (kind, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.textContent = text;
    return made;
  };
  svg.setAttribute("aria-label", label);
  const all = here ? [...points, here] : points;
  if (all.length < 2) return svg.replaceChildren();
  const scale = (numbers, from, to) => {
    const [low, high] = [Math.min(...numbers), Math.max(...numbers)];
    const by = low > 0 && high / low > 8 ? Math.log : (value) => value;
    return (value) => (high === low ? (from + to) / 2 : from + ((by(value) - by(low)) / (by(high) - by(low))) * (to - from));
  };
  const x = scale(all.map((one) => one.x), left, right), y = scale(all.map((one) => one.y), bottom, top);
  const at = (one) => `${x(one.x).toFixed(1)},${y(one.y).toFixed(1)}`;
  const ends = [...points].sort((a, b) => a.y - b.y), few = points.filter((_, n) => n % Math.ceil(points.length / 6) === 0);
  svg.replaceChildren(
    make("line", { class: "axis", x1: left, x2: right, y1: bottom + 8, y2: bottom + 8 }),
    make("line", { class: "axis", x1: left - 8, x2: left - 8, y1: top, y2: bottom }),
    make("polyline", { class: "curve", points: points.map(at).join(" ") }),
    ...points.map((one) => make("circle", { r: 3, cx: x(one.x), cy: y(one.y) })),
    ...few.map((one) => make("text", { x: x(one.x), y: bottom + 32, "text-anchor": "middle" }, one.x.toLocaleString("en", { maximumSignificantDigits: 4 }))),
    make("text", { x: left - 14, y: y(ends.at(-1).y) + 5, "text-anchor": "end" }, ends.at(-1).said),
    make("text", { x: left - 14, y: y(ends[0].y) + 5, "text-anchor": "end" }, ends[0].said === ends.at(-1).said ? "" : ends[0].said),
    ...(here ? [make("circle", { class: "here", r: 6, cx: x(here.x), cy: y(here.y) })] : []),
  );
}
