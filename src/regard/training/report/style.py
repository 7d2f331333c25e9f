"""How the report looks: on paper, in daylight and in the dark."""

STYLE = """
:root {
  color-scheme: light dark;
  --paper: #fff; --ink: #1c2126; --soft: #5b6670; --line: #d9dee3; --wash: #f4f6f8;
  --first: #1f5fae; --second: #b4530a; --third: #1a7a50;
  --fourth: #8538a8; --fifth: #b3234a; --sixth: #5f6570;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181c; --ink: #e4e8ec; --soft: #98a3ad; --line: #333b43; --wash: #1c2227;
    --first: #7db2f0; --second: #f0a35e; --third: #62cf9c;
    --fourth: #d09bea; --fifth: #f58ba6; --sixth: #a7b0ba;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 60rem; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.2rem 0 .6rem; padding-top: .7rem; border-top: 1px solid var(--line); }
h2, p { break-after: avoid; }
p { margin: .5rem 0; color: var(--soft); max-width: 46rem; }
.tiles { display: flex; flex-wrap: wrap; gap: .75rem; margin: 0; }
.tiles div {
  flex: 1 1 9rem; padding: .6rem .9rem; break-inside: avoid;
  background: var(--wash); border: 1px solid var(--line); border-radius: 6px;
}
.tiles dt, .remark { color: var(--soft); font-size: .85rem; }
.tiles dd { margin: 0; }
.value {
  font-size: 1.55rem; font-weight: 600; line-height: 1.3; white-space: nowrap;
  font-variant-numeric: tabular-nums;
}
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td {
  text-align: left; vertical-align: top; padding: .28rem 1.1rem .28rem 0;
  border-bottom: 1px solid var(--line); overflow-wrap: break-word;
}
th { font-weight: 600; color: var(--soft); font-size: .85rem; }
.number { text-align: right; white-space: nowrap; }
tr { break-inside: avoid; }
.matrix th, .matrix td { padding: .35rem .7rem; max-width: 12rem; overflow-wrap: anywhere; }
.matrix tr :first-child { padding-left: 0; }
.matrix tbody th { color: var(--ink); }
.matrix td, .matrix thead .number { min-width: 4rem; }
.matrix thead .number { white-space: normal; vertical-align: bottom; }
.right { background: color-mix(in srgb, var(--first) calc(var(--share) * 45%), transparent); }
.wrong { background: color-mix(in srgb, var(--second) calc(var(--share) * 55%), transparent); }
pre {
  margin: .5rem 0; padding: .5rem .8rem; background: var(--wash); border: 1px solid var(--line);
  border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere;
  font: .82rem/1.5 ui-monospace, monospace;
}
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem 1.5rem; }
figure { margin: 0; break-inside: avoid; }
figcaption { font-size: .85rem; font-weight: 600; }
svg { display: block; max-width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, sans-serif; }
svg .word { fill: var(--ink); font-size: 12px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .s0, svg .s1, svg .s2, svg .s3, svg .s4, svg .s5 { fill: none; stroke-width: 1.6; }
svg .s0 { stroke: var(--first); }
svg .s1 { stroke: var(--second); }
svg .s2 { stroke: var(--third); stroke-dasharray: 6 2; }
svg .s3 { stroke: var(--fourth); stroke-dasharray: 2 2; }
svg .s4 { stroke: var(--fifth); stroke-dasharray: 8 2 2 2; }
svg .s5 { stroke: var(--sixth); stroke-dasharray: 4 4; }
svg .d0, svg .link { fill: var(--first); }
svg .d1 { fill: var(--second); }
svg .d2 { fill: var(--third); }
svg .d3 { fill: var(--fourth); }
svg .d4 { fill: var(--fifth); }
svg .d5 { fill: var(--sixth); }
svg .paper { fill: var(--paper); }
svg .cell { fill: var(--wash); stroke: var(--line); }
.sentence {
  display: grid; grid-template-columns: 6rem 1fr; gap: 0 .8rem; margin: .7rem 0; padding: .5rem .8rem;
  border-left: 3px solid var(--line); break-inside: avoid;
}
.sentence dt { color: var(--soft); font-size: .85rem; }
.sentence dd { margin: 0; overflow-wrap: anywhere; unicode-bidi: isolate; white-space: pre-wrap; }
.sentence .remark { grid-column: 1 / -1; }
.alignments { display: flex; flex-wrap: wrap; gap: 1.5rem 2.5rem; align-items: flex-end; }
@media print {
  :root {
    color-scheme: light;
    --paper: #fff; --ink: #000; --soft: #444; --line: #bbb; --wash: #fff;
    --first: #1f5fae; --second: #b4530a; --third: #1a7a50;
    --fourth: #8538a8; --fifth: #b3234a; --sixth: #5f6570;
  }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
}
"""
