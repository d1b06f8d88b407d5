// Builds the page into the package's folder, and notes of which sources it was built.
import { createHash } from "node:crypto";
import { readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";

const target = join(import.meta.dirname, "../src/gangline/page/static");
await build({
  entryPoints: { app: "src/main.tsx" },
  splitting: true,
  chunkNames: "[name]",
  bundle: true,
  minify: true,
  target: "es2022",
  format: "esm",
  jsx: "automatic",
  jsxImportSource: "preact",
  legalComments: "inline",
  outdir: target,
});
rmSync(join(target, "terminal.css")); // its rules are in app.css too
writeFileSync(join(target, "index.html"), readFileSync("src/index.html"));

// The same files, in the same order, as tests/tidy/test_page_build.py reads.
const files = [...readdirSync("src").map((name) => `src/${name}`), "build.mjs", "package.json"].sort();
const sum = createHash("sha256");
for (const file of files) sum.update(`${file}\0`).update(readFileSync(file));
writeFileSync(join(target, "sources.sha256"), `${sum.digest("hex")}\n`);
