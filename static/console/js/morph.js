// Makes one tree of elements look like another with as few changes as can be: whatever has the focus, is
// selected or was scrolled stays so. New content arrives as parsed, inert nodes: no script in it runs.

/** Parse HTML without running or loading any of it. */
export function parse(html) {
  return new DOMParser().parseFromString(html, "text/html").body;
}

/** Give `target` the children of `source`. */
export function morph(target, source) {
  const wanted = [...source.childNodes];
  wanted.forEach((node, place) => {
    const present = matching(target, place, node);
    if (!present) {
      target.insertBefore(document.importNode(node, true), target.childNodes[place] ?? null);
    } else if (node.nodeType === Node.ELEMENT_NODE) {
      alignAttributes(present, node);
      morph(present, node);
    } else if (present.nodeValue !== node.nodeValue) {
      present.nodeValue = node.nodeValue;
    }
  });
  while (target.childNodes.length > wanted.length) target.lastChild.remove();
}

/** The node at `place` that `node` may become; one with the same id is fetched from further down. */
function matching(target, place, node) {
  const present = target.childNodes[place];
  if (node.id) {
    const same = [...target.children].find((child) => child.id === node.id);
    if (same && same !== present) target.insertBefore(same, present ?? null);
    return same;
  }
  const fits = present && present.nodeName === node.nodeName && !present.id;
  if (fits) return present;
  return undefined;
}

function alignAttributes(present, wanted) {
  for (const { name, value } of [...wanted.attributes]) {
    if (present.getAttribute(name) !== value) present.setAttribute(name, value);
  }
  for (const { name } of [...present.attributes]) {
    // What the reader opened stays open.
    if (!wanted.hasAttribute(name) && name !== "open") present.removeAttribute(name);
  }
}
