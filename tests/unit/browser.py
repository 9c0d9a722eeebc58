"""A page in headless Chromium, as a reader on a phone or at a desk sees it: what it measures and what axe-core says.

Chromium opens no window narrower than 500 pixels, so the page stands in a frame of the width that is asked for.
"""

import html
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome") or ""
AXE = Path(os.environ.get("AUDIT_AXE") or Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js")

# Everything is opened first, so that nothing hides. Boxes of words that cross by more than a pixel collide.
_LOOK = """
addEventListener('load', async () => {
  for (const fold of document.querySelectorAll('details')) fold.open = true;
  const out = {wide: document.documentElement.scrollWidth, inner: innerWidth, scripts: document.scripts.length,
    dark: matchMedia('(prefers-color-scheme: dark)').matches, collisions: [], outside: [], small: [], pictures: 0};
  out.away = [...document.querySelectorAll('main *')].filter(e => e.getBoundingClientRect().right < 0).length;
  const name = element => element.closest('figure').id + ': ' + element.textContent;
  for (const svg of document.querySelectorAll('figure svg')) {
    out.pictures += 1;
    const frame = svg.getBoundingClientRect();
    const words = [...svg.querySelectorAll('text')].map(e => [e, e.getBoundingClientRect()]);
    for (const [e, box] of words) {
      const within = box.left > frame.left - 2 && box.right < frame.right + 2 && box.bottom < frame.bottom + 2;
      if (!within) out.outside.push(name(e));
      if (box.height < 9) out.small.push(name(e) + ' ' + box.height);
    }
    words.forEach(([a, p], i) => words.slice(i + 1).forEach(([b, q]) => {
      const across = Math.min(p.right, q.right) - Math.max(p.left, q.left);
      const down = Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top);
      if (across > 1 && down > 3) out.collisions.push(name(a) + ' / ' + b.textContent);
    }));
  }
  if (window.axe) {
    const found = await axe.run(document, {resultTypes: ['violations', 'incomplete']});
    out.violations = found.violations.map(v => v.id + ': ' + v.nodes.map(n => n.target).join(' | '));
    out.checked = found.passes.length;
  }
  parent.document.getElementById('told').textContent = JSON.stringify(out);
});
"""


def looked_at(page: str, folder: Path, width: int, *, dark: bool = False, axe: bool = False) -> dict:
    """What a reader with a screen of this width gets of a page: measures, collisions, and axe-core's violations."""
    scripts = [_LOOK, *([AXE.read_text(encoding="utf-8")] if axe else [])]
    open_to_scripts = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    inside = open_to_scripts.replace("</head>", "".join(f"<script>{s}</script>" for s in scripts) + "</head>", 1)
    frame = f'<iframe style="border:0;width:{width}px;height:2000px" srcdoc="{html.escape(inside)}"></iframe>'
    outer = folder / "outer.html"
    head = '<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">'
    outer.write_text(f'{head}<pre id="told"></pre>{frame}', encoding="utf-8")
    scheme = f"--blink-settings=preferredColorScheme={0 if dark else 1}"
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", scheme, f"--user-data-dir={folder / 'profile'}"]
    command += [f"--window-size={max(width, 500)},2000", "--virtual-time-budget=60000", "--dump-dom", outer.as_uri()]
    dumped = subprocess.run(command, capture_output=True, text=True, check=True, timeout=180).stdout
    told = re.search(r'<pre id="told">(.*?)</pre>', dumped, re.DOTALL)
    assert told is not None, dumped[:2000]
    assert told[1], "the page never finished"
    return json.loads(html.unescape(told[1]))
