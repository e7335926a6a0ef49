// Which names a list of patterns takes, as the node reads them: `*`, `?`, `[…]`.

function matcher(pattern) {
  const source = pattern.replace(/[.+^${}()|\\]/g, "\\$&").replace(/\*/g, ".*").replace(/\?/g, ".").replace(/\[!/g, "[^");
  try {
    return new RegExp(`^${source}$`, "su");
  } catch {
    return { test: (name) => name === pattern };
  }
}

export const matches = (patterns, name) => patterns.some((pattern) => matcher(pattern).test(name));
